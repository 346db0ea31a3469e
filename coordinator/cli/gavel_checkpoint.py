"""Checkpoints of Gavel jobs in Python. load() and save() need torch and safetensors.

    import gavel_checkpoint
    state = gavel_checkpoint.load("DIR")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    ...
    gavel_checkpoint.save("DIR", steps=100, model=model, optimizer=optimizer)

The names are those that the C++ program tracks. DIR is what
`gavel checkpoint export` wrote; `gavel checkpoint import` takes it back:

    DIR/checkpoint.json        a list of the content, and the optimizers, with
                               {"tensor": NAME} in the place of tensors
    DIR/NAME.safetensors       the state_dict() of each module; the tensors of
                               each optimizer that the JSON names
    DIR/gavel_checkpoint.py    this file

Both commands run this file, too, with Python 3.6 or later and no package: they
move tensors as the bytes that they are, so that any type survives, and no model
has to fit in memory.
"""

import glob
import json
import math
import os
import struct
import sys
from typing import NamedTuple, Tuple, Union

_INDEX = "checkpoint.json"

# ---- load() and save() ----


def _packages():
    try:
        import torch
        from safetensors import torch as files
    except ImportError as error:
        raise ImportError(
            f"gavel_checkpoint needs {error.name}; install both packages: python3 -m pip install torch safetensors"
        ) from error
    return torch, files


def _read_index(folder):
    words = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}  # which JSON lacks: as text
    with open(os.path.join(folder, _INDEX), encoding="utf-8") as file:
        return json.load(file, parse_constant=words.get)


def _write_index(path, index):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1, ensure_ascii=False)
        file.write("\n")


def _decode(value, tensors):
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _decode(one, tensors) for key, one in value.items()}
    if isinstance(value, list):
        return [_decode(one, tensors) for one in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def _encode(value, name, tensors, torch):
    if isinstance(value, torch.Tensor):
        tensors[name] = _plain(value, torch)
        return {"tensor": name}
    if isinstance(value, dict):
        return {str(key): _encode(one, f"{name}.{key}", tensors, torch) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(one, f"{name}.{i}", tensors, torch) for i, one in enumerate(value)]
    return value


def _plain(tensor, torch):
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _replace(path, write):
    write(path + ".part")  # tensors that were loaded may still look into the old file
    os.replace(path + ".part", path)


def load(folder):
    """State by name: what load_state_dict() of the module or optimizer takes."""
    _, files = _packages()
    index = _read_index(folder)
    state = {}
    for name in index["modules"]:
        state[name] = files.load_file(_tensor_path(folder, name))
    for name, optimizer in index["optimizers"].items():
        tensors = files.load_file(_tensor_path(folder, name))
        groups = _decode(optimizer["param_groups"], tensors)
        by_parameter = _decode(optimizer["state"], tensors)
        state[name] = {
            "state": {int(i): one for i, one in by_parameter.items()},
            "param_groups": groups,
        }
    return state


def save(folder, steps=0, **objects):
    """Writes modules and optimizers, by name, over those in `folder`.

    `steps`: trained since the export; the C++ program continues after them.
    """
    torch, files = _packages()
    index = _read_index(folder)
    index["step"] += steps
    for name, thing in objects.items():
        if name in index["modules"]:
            tensors = {key: _plain(one, torch) for key, one in thing.state_dict().items()}
        elif name in index["optimizers"]:
            tensors = {}
            state = thing.state_dict()
            index["optimizers"][name]["param_groups"] = _encode(state["param_groups"], "group", tensors, torch)
            index["optimizers"][name]["state"] = {
                str(i): _encode(one, str(i), tensors, torch) for i, one in state["state"].items()
            }
        else:
            known = ", ".join([*index["modules"], *index["optimizers"]])
            raise KeyError(f"'{name}' is not in {folder}, which has {known}")
        _replace(_tensor_path(folder, name), lambda part: files.save_file(tensors, part, {"format": "pt"}))
    _replace(os.path.join(folder, _INDEX), lambda part: _write_index(part, index))


# ---- Files in the safetensors layout ----

_PIECE_BYTES = 8 << 20
_ALIGNMENT_BYTES = 64  # of the data, as LibTorch aligns memory
_DTYPE_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E5M2": 1, "F8_E4M3": 1, "C64": 8, "BOOL": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
}
_SCALAR_FORMATS = {"F32": "<f", "F64": "<d", "I64": "<q", "I32": "<i"}


class _Refused(Exception):
    """What the user reads: the reason and the remedy."""


class _Tensor(NamedTuple):
    dtype: str
    shape: Tuple[int, ...]
    size_bytes: int
    source: Union[str, bytes]  # the path of its file, or its bytes
    offset: int = 0  # in the file

    def kind(self):
        return f"{self.dtype} {list(self.shape)}"

    def pieces(self):
        if isinstance(self.source, bytes):
            yield self.source
            return
        with open(self.source, "rb") as file:
            file.seek(self.offset)
            left = self.size_bytes
            while left > 0:
                piece = file.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise _Refused(f"{self.source} became shorter while it was read; let no program write to it")
                left -= len(piece)
                yield piece

    def data(self):
        return b"".join(self.pieces())


def _text_tensor(text):
    data = text.encode()
    return _Tensor("U8", (len(data),), len(data), data)


def _tensor_path(folder, name):
    return os.path.join(folder, name + ".safetensors")


def _read_tensors(path):
    """The tensors of a file, by name; their data stays in it."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if 8 + length > size:
                raise ValueError("its header is cut off")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            size_bytes = _DTYPE_BYTES[entry["dtype"]]
            for extent in entry["shape"]:
                size_bytes *= extent
            if not 0 <= begin <= end <= size - 8 - length or end - begin != size_bytes:
                raise ValueError(f"'{name}' has no valid place")
            tensors[name] = _Tensor(entry["dtype"], tuple(entry["shape"]), size_bytes, path, 8 + length + begin)
        return tensors
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _Refused(f"{path} is not in the safetensors layout ({error}); save it once more") from error


def _write_tensors(path, tensors):
    """A new file, durable: by falling element size, so that each tensor is aligned, and by name."""
    order = sorted(tensors, key=lambda name: (-_DTYPE_BYTES[tensors[name].dtype], name))
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        one = tensors[name]
        begin, end = end, end + one.size_bytes
        header[name] = {"data_offsets": [begin, end], "dtype": one.dtype, "shape": list(one.shape)}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT_BYTES)
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for piece in tensors[name].pieces():
                file.write(piece)
        file.flush()
        os.fsync(file.fileno())


# ---- A generation: gavel has verified it, or gives it its manifest ----

_SHARD_BYTES = 64 << 20
_BYTES = "gavel.bytes/"  # entries of bytes: tensors of U8
_TRACKED = "gavel/tracked/"


class _Generation:
    def __init__(self, folder):
        self.entries = {}
        for shard in sorted(glob.glob(os.path.join(glob.escape(folder), "shard-*.safetensors"))):
            self.entries.update(_read_tensors(shard))

    def text(self, name):
        """An entry of bytes, as text; None when there is none."""
        entry = self.entries.get(_BYTES + name)
        try:
            return None if entry is None else entry.data().decode()
        except UnicodeDecodeError as error:
            raise _unreadable(name) from error

    def below(self, prefix):
        """Names of entries, those of bytes as well, without the prefix; sorted."""
        names = (name[len(_BYTES) :] if name.startswith(_BYTES) else name for name in self.entries)
        return sorted(name[len(prefix) :] for name in names if name.startswith(prefix))

    def tensors(self, prefix):
        """Tensors by name, without the prefix."""
        return {name[len(prefix) :]: one for name, one in self.entries.items() if name.startswith(prefix)}


def _write_shards(folder, entries):
    shards = [{}]
    size_bytes = 0
    for name in sorted(name for name in entries if not name.startswith(_BYTES)):
        if size_bytes > 0 and size_bytes + entries[name].size_bytes > _SHARD_BYTES:
            shards.append({})
            size_bytes = 0
        size_bytes += entries[name].size_bytes
        shards[-1][name] = entries[name]
    shards.append({name: one for name, one in entries.items() if name.startswith(_BYTES)})
    for i, shard in enumerate(filter(None, shards)):
        _write_tensors(os.path.join(folder, f"shard-{i:05}.safetensors"), shard)


# ---- An optimizer, as a generation describes it (iterator/optimizers.h) ----

_GIVEN = ".given"  # whether the field of that name has a value


class _Field(NamedTuple):
    is_option: bool  # of a group, else of a parameter's state
    name: str
    # tensor, tensors, int64, double, bool or text; number: an int64 or a double,
    # of a generation that does not say.
    type: str


class _Optimizer(NamedTuple):
    name: str
    kind: str  # "Adam"
    fields: list
    group_sizes: list  # in parameters

    def fields_of(self, is_option):
        return [field for field in self.fields if field.is_option == is_option]


def _unreadable(entry):
    return _Refused(f"checkpoint entry '{entry}' is missing or not readable; export or import an earlier generation")


def _lines(text):
    """ "lr 0.001\\nbeta1 0.9\\n", by the first word."""
    return dict(line.partition(" ")[::2] for line in text.split("\n") if line)


def _guess_fields(generation, name):
    """Of earlier versions, whose optimizers have no lists and no numbers but integers in their state."""
    options = _lines(generation.text(f"{name}/group/0/options") or "")
    fields = [_Field(True, key, "bool" if options[key] in ("true", "false") else "number") for key in sorted(options)]
    prefix = f"{name}/state/"
    tensors = {entry.partition("/")[2] for entry in generation.tensors(prefix)}
    for field in sorted({entry.partition("/")[2] for entry in generation.below(prefix)} - {"present"}):
        fields.append(_Field(False, field, "tensor" if field in tensors else "number"))
    return fields


def _find_group_sizes(generation, name):
    sizes = []
    groups = 0
    while generation.text(f"{name}/group/{groups}/options") is not None:
        groups += 1
    for i in range(groups):
        entry = f"{name}/group/{i}/parameters"
        text = generation.text(entry)
        if text is None and groups == 1:
            text = generation.text(f"{name}/parameters")
        elif text is None:
            raise _Refused(
                f"optimizer '{name}' has {groups} groups, and an earlier version of Gavel wrote this checkpoint "
                "without their sizes; let the job write one with this version first"
            )
        if text is None or not text.isdecimal():
            raise _unreadable(entry)
        sizes.append(int(text))
    return sizes


def _find_optimizer(generation, name):
    kind = generation.text(f"{name}/kind")
    if kind is None:
        raise _unreadable(f"{name}/kind")
    text = generation.text(f"{name}/fields")
    if text is None:
        fields = _guess_fields(generation, name)
    else:
        rows = [line.split(" ") for line in text.split("\n") if line]
        if any(len(row) != 3 for row in rows):
            raise _unreadable(f"{name}/fields")
        fields = [_Field(row[0] == "option", row[1], row[2]) for row in rows]
    return _Optimizer(name, kind, fields, _find_group_sizes(generation, name))


# ---- An optimizer, to what optimizer.state_dict() of Python has ----


def _unescape(text):
    return text.encode("ascii").decode("unicode_escape").encode("latin-1").decode()


def _value_of(text, type, entry):
    try:
        if type == "bool":
            return {"true": True, "false": False}[text]
        if type == "text":
            return _unescape(text)
        if type in ("int64", "number"):
            try:
                return int(text)
            except ValueError:
                if type == "int64":
                    raise
        number = float(text)
        return number if math.isfinite(number) else str(number)
    except (KeyError, ValueError) as error:
        raise _unreadable(entry) from error


class _DictMaker:
    def __init__(self, generation, optimizer):
        self.generation = generation
        self.optimizer = optimizer
        self.tensors = {}  # of the file for Python

    def make(self):
        name = self.optimizer.name
        groups = []
        first = 0
        for i, size in enumerate(self.optimizer.group_sizes):
            group = self._group(i)
            group["params"] = list(range(first, first + size))
            groups.append(group)
            first += size
        states = {}
        for i in range(first):
            if self.generation.text(f"{name}/state/{i}/present") is not None:
                states[str(i)] = self._state(i)
        return {"class": self.optimizer.kind, "param_groups": groups, "state": states}

    def _group(self, i):
        prefix = f"{self.optimizer.name}/group/{i}/"
        group = self._fields(True, prefix, _lines(self.generation.text(prefix + "options")).get, f"group.{i}.")
        # Python has a pair of them.
        if "beta1" in group and "beta2" in group:
            group["betas"] = [group.pop("beta1"), group.pop("beta2")]
        return group

    def _state(self, i):
        prefix = f"{self.optimizer.name}/state/{i}/"
        return self._fields(False, prefix, lambda field: self.generation.text(prefix + field), f"{i}.")

    def _fields(self, options, prefix, text_of, tensor_prefix):
        """`tensor_prefix`: of names in the file for Python."""
        values = {}
        for field in self.optimizer.fields_of(options):
            value = self._value(field, prefix + field.name, text_of, tensor_prefix + field.name)
            # Python leaves out a tensor that is undefined.
            if field.type != "tensor" or value is not None:
                values[field.name] = value
        # {"x.given": false, "x": 0} is {"x": null}, and none at all in a state.
        result = {}
        for name, value in values.items():
            absent = values.get(name + _GIVEN) is False
            if not name.endswith(_GIVEN) and (options or not absent):
                result[name] = None if absent else value
        return result

    def _value(self, field, entry, text_of, tensor_name):
        if field.type == "tensor":
            return self._tensor(entry, tensor_name)
        text = text_of(field.name + "/count" if field.type == "tensors" else field.name)
        if text is None:
            raise _unreadable(entry)
        if field.type != "tensors":
            return _value_of(text, field.type, entry)
        count = _value_of(text, "int64", entry)
        return [self._tensor(f"{entry}/{i}", f"{tensor_name}.{i}") for i in range(count)]

    def _tensor(self, entry, name):
        """None: it is undefined."""
        if entry not in self.generation.entries:
            return None
        self.tensors[name] = self.generation.entries[entry]
        return {"tensor": name}


def _module_tensors(generation, module):
    for entry in generation.below(module + "/"):
        if entry.endswith("/layout") and generation.text(f"{module}/{entry}") is not None:
            raise _Refused(
                f"module '{module}' has the sparse tensor '{module}/{entry[: -len('/layout')]}', "
                "which is not exported; make it dense"
            )
    return generation.tensors(module + "/")


def _export(folder, to, epoch, step):
    """Writes the generation in `folder` as files for Python."""
    generation = _Generation(folder)
    os.makedirs(to, exist_ok=True)
    if os.listdir(to):
        raise _Refused(f"{to} is not an empty directory; give another one, or remove what is in it")
    modules = []
    optimizers = {}
    for name in generation.below(_TRACKED):
        kind = generation.text(_TRACKED + name)
        if kind in ("module", "script module"):
            _write_tensors(_tensor_path(to, name), _module_tensors(generation, name))
            modules.append(name)
        elif kind == "optimizer":
            maker = _DictMaker(generation, _find_optimizer(generation, name))
            optimizers[name] = maker.make()
            _write_tensors(_tensor_path(to, name), maker.tensors)
        else:
            _note(f"'{name}' ({kind}) has no place in Python's files")
    index = {"format_version": 1, "epoch": int(epoch), "step": int(step), "modules": modules, "optimizers": optimizers}
    _write_index(os.path.join(to, _INDEX), index)


# ---- An optimizer, from what optimizer.state_dict() of Python has ----

_JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean"}


def _required(values, key, type, form):
    value = values.get(key)
    if isinstance(value, type):
        return value
    what = "missing" if value is None else _JSON_TYPES.get(value.__class__, "number")
    raise _Refused(f"{key} is {what}; give {form}")


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _escape(text):
    """As absl::CEscape."""
    short = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("'"): "\\'", ord("\\"): "\\\\"}
    return "".join(short.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())


def _number_text(number):
    if isinstance(number, float) and not (number.is_integer() and abs(number) < 1e15):
        return f"{number:.17g}"
    return str(int(number))


class _EntryMaker:
    """Makes the entries of a generation below the optimizer's name."""

    def __init__(self, optimizer, tensors):
        self.optimizer = optimizer
        self.given_tensors = tensors  # of the file from Python
        self.entries = {}

    def make(self, given):
        kind = given.get("class")
        if kind is not None and kind != self.optimizer.kind:
            raise _Refused(f"it is of class {json.dumps(kind)}, and {self.optimizer.kind} in the checkpoint")
        groups = _required(given, "param_groups", list, "a list")
        states = _required(given, "state", dict, "an object")
        sizes = self.optimizer.group_sizes
        if len(groups) != len(sizes):
            raise _Refused(f"it has {len(groups)} param_groups, and {len(sizes)} in the checkpoint")
        first = 0
        for i, group in enumerate(groups):
            self._add_group(group, i, first)
            first += sizes[i]
        for key, state in states.items():
            if not key.isdecimal() or int(key) >= first:
                raise _Refused(f"state[{key}] is of none of its {first} parameters")
            prefix = f"{self.optimizer.name}/state/{int(key)}/"
            self._add_text(prefix + "present", "true")
            self._add_fields(
                False, state, f"state[{int(key)}]", prefix, lambda name, text: self._add_text(prefix + name, text)
            )
        return self.entries

    def _add_text(self, name, text):
        self.entries[_BYTES + name] = _text_tensor(text)

    def _add_group(self, given, i, first):
        what = f"param_groups[{i}]"
        if not isinstance(given, dict):
            raise _Refused(f"{what} is no object")
        size = self.optimizer.group_sizes[i]
        parameters = _required(given, "params", list, "a list")
        if parameters != list(range(first, first + size)):
            raise _Refused(
                f"{what} has {len(parameters)} params, and those of the checkpoint are the {size} from {first} on"
            )
        group = {key: value for key, value in given.items() if key != "params"}
        if isinstance(group.get("betas"), list) and len(group["betas"]) == 2:
            group["beta1"], group["beta2"] = group.pop("betas")
        prefix = f"{self.optimizer.name}/group/{i}/"
        lines = []
        self._add_fields(True, group, what, prefix, lambda name, text: lines.append(f"{name} {text}\n"))
        self._add_text(prefix + "options", "".join(lines))
        self._add_text(prefix + "parameters", str(size))

    def _add_fields(self, options, values, what, prefix, add_text):
        if not isinstance(values, dict):
            raise _Refused(f"{what} is no object")
        fields = self.optimizer.fields_of(options)
        known = {field.name for field in fields}
        for field in fields:
            try:
                self._add_field(field, values, known, prefix, add_text)
            except _Refused as error:
                raise _Refused(f'{what}["{field.name}"]: {error}') from error
        for name, value in values.items():
            # This option makes an Adam of Python an AdamW.
            is_adamw = name == "decoupled_weight_decay" and self.optimizer.kind == "AdamW"
            if name not in known and value is not None and value is not False and not is_adamw:
                _note(
                    f'{what}["{name}"] of {self.optimizer.name} has no place in '
                    f"C++'s {self.optimizer.kind} and is left out"
                )

    def _add_field(self, field, values, known, prefix, add_text):
        if field.name.endswith(_GIVEN):
            given = values.get(field.name[: -len(_GIVEN)]) is not None
            add_text(field.name, "true" if given else "false")
            return
        value = values.get(field.name)
        if field.type == "tensor":
            if value is not None:
                self.entries[prefix + field.name] = self._tensor(value)
        elif field.type == "tensors":
            if not isinstance(value, (list, type(None))):
                raise _Refused("is no list")
            add_text(field.name + "/count", str(len(value or [])))
            for i, one in enumerate(value or []):
                if one is not None:
                    self.entries[f"{prefix}{field.name}/{i}"] = self._tensor(one)
        elif value is not None:
            add_text(field.name, self._text(field.type, value))
        elif field.name + _GIVEN in known:
            add_text(field.name, {"text": "", "bool": "false"}.get(field.type, "0"))
        else:
            raise _Refused("is not there")

    def _text(self, type, value):
        if type == "text":
            if not isinstance(value, str):
                raise _Refused("is no text")
            return _escape(value)
        if type == "bool":
            if not isinstance(value, bool):
                raise _Refused("is not true or false")
            return "true" if value else "false"
        number = self._number(value)
        if type == "int64" and not float(number).is_integer():
            raise _Refused(f"is {number:g}; give a whole number")
        return _number_text(number)

    def _number(self, value):
        if _is_number(value):
            return value
        if isinstance(value, str):  # as NaN and infinities are written
            try:
                return float(value)
            except ValueError:
                pass
        tensor = self._find(value)
        # A tensor of one element: Python counts steps in one.
        if tensor.dtype in _SCALAR_FORMATS and tensor.size_bytes == _DTYPE_BYTES[tensor.dtype]:
            return struct.unpack(_SCALAR_FORMATS[tensor.dtype], tensor.data())[0]
        raise _Refused(f"it is {tensor.kind()}; give one number, or a tensor of one (F32, F64, I64, I32)")

    def _tensor(self, value):
        if not _is_number(value):
            return self._find(value)
        try:  # where C++ has a tensor of one element
            return _Tensor("F32", (), 4, struct.pack("<f", value))
        except OverflowError as error:
            raise _Refused(f"is {value:g}; give a number within the range of F32") from error

    def _find(self, value):
        name = value.get("tensor") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise _Refused("is neither a number nor a tensor")
        if name not in self.given_tensors:
            raise _Refused(f"is the tensor '{name}', which its file does not have")
        return self.given_tensors[name]


class _Merge:
    """The entries of the new generation: at first those of the newest."""

    def __init__(self, newest):
        self.newest = newest
        self.entries = dict(newest.entries)

    def take_module(self, name, path):
        self._check_tracked(name, ("module", "script module"))
        given = _read_tensors(path)
        before = self.newest.tensors(name + "/")
        for entry in sorted(before):
            if entry not in given:
                raise _Refused(f"{path} has no '{entry}', which '{name}' of the checkpoint has; save the whole module")
            self._check_same(path, entry, given[entry], before[entry])
            self.entries[f"{name}/{entry}"] = given[entry]
        for entry in sorted(given):
            if entry not in before:
                raise _Refused(
                    f"{path} has '{entry}', which '{name}' of the checkpoint does not have; save the same module"
                )

    def take_optimizer(self, name, given, path):
        self._check_tracked(name, ("optimizer",))
        optimizer = _find_optimizer(self.newest, name)
        tensors = _read_tensors(path)
        try:
            if not isinstance(given, dict):
                raise _Refused("is no object; give what save() writes")
            entries = _EntryMaker(optimizer, tensors).make(given)
        except _Refused as error:
            raise _Refused(f"optimizer '{name}': {error}") from error
        for entry, tensor in entries.items():
            before = self.newest.entries.get(entry)
            # Python may have a number, of another type.
            if before is None or entry.startswith(_BYTES) or not (tensor.shape or before.shape):
                continue
            self._check_same(path, entry, tensor, before)
        parts = tuple(kind + name + part for kind in ("", _BYTES) for part in ("/group/", "/state/"))
        self.entries = {entry: one for entry, one in self.entries.items() if not entry.startswith(parts)}
        self.entries.update(entries)

    def _check_tracked(self, name, kinds):
        kind = self.newest.text(_TRACKED + name)
        if kind not in kinds:
            raise _Refused(
                f"the checkpoint has {'nothing' if kind is None else 'a ' + kind} as '{name}', and {_INDEX} "
                f"a {kinds[0]}; export this job's checkpoint and use its names"
            )

    @staticmethod
    def _check_same(path, name, given, before):
        if (given.dtype, given.shape) != (before.dtype, before.shape):
            raise _Refused(
                f"{path}: '{name}' is {given.kind()}, and {before.kind()} in the checkpoint; "
                "give it the same shape and type"
            )


def _import(folder, newest, to):
    """Writes into `to` the shards of a generation: `newest`, with the modules and optimizers of `folder`."""
    index = _read_index(folder)
    merge = _Merge(_Generation(newest))
    try:
        modules = _required(index, "modules", list, "a list of names")
        optimizers = _required(index, "optimizers", dict, "an object")
    except _Refused as error:
        raise _Refused(f"{os.path.join(folder, _INDEX)}: {error}") from error
    for name in modules:
        if not isinstance(name, str):
            raise _Refused(f"{os.path.join(folder, _INDEX)}: modules is no list of names; give one")
        merge.take_module(name, _tensor_path(folder, name))
    for name, given in optimizers.items():
        merge.take_optimizer(name, given, _tensor_path(folder, name))
    _write_shards(to, merge.entries)


# ---- What gavel runs: notes are lines on stderr, and so is the error of an exit code that is not 0 ----


def _note(text):
    print(text, file=sys.stderr)


def _main(command, *arguments):
    try:
        {"export": _export, "import": _import}[command](*arguments)
    except _Refused as error:
        sys.exit(str(error))
    except OSError as error:
        remedy = "free some space, or give a directory that may be read and written"
        if isinstance(error, FileNotFoundError):
            remedy = "give a directory that has it, or export once more"
        sys.exit(f"{error.filename or arguments[1]}: {error.strerror}; {remedy}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
