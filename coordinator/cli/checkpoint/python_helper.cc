// Written beside each export, so that Python needs nothing of ours.
#include "coordinator/cli/checkpoint/pytorch_files.h"

namespace gavel {
namespace {

constexpr char kHelper[] =
    R"py("""Checkpoints of Gavel jobs in Python. Needs torch and safetensors.

    import gavel_checkpoint
    state = gavel_checkpoint.load("DIR")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    ...
    gavel_checkpoint.save("DIR", steps=100, model=model, optimizer=optimizer)

The names are those that the C++ program tracks. DIR is what
`gavel checkpoint export` wrote; `gavel checkpoint import` takes it back.
"""

import json
import os

import torch
from safetensors.torch import load_file, save_file

_INDEX = "checkpoint.json"


def _read_index(folder):
    with open(os.path.join(folder, _INDEX)) as file:
        return json.load(file)


def _decode(value, tensors):
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _decode(one, tensors) for key, one in value.items()}
    if isinstance(value, list):
        return [_decode(one, tensors) for one in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def _encode(value, name, tensors):
    if isinstance(value, torch.Tensor):
        tensors[name] = _plain(value)
        return {"tensor": name}
    if isinstance(value, dict):
        return {str(key): _encode(one, f"{name}.{key}", tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(one, f"{name}.{i}", tensors) for i, one in enumerate(value)]
    return value


def _plain(tensor):
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)


def _replace(path, write):
    write(path + ".part")  # tensors that were loaded may still look into the old file
    os.replace(path + ".part", path)


def load(folder):
    """State by name: what load_state_dict() of the module or optimizer takes."""
    index = _read_index(folder)
    state = {}
    for name in index["modules"]:
        state[name] = load_file(os.path.join(folder, name + ".safetensors"))
    for name, optimizer in index["optimizers"].items():
        tensors = load_file(os.path.join(folder, name + ".safetensors"))
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
    index = _read_index(folder)
    index["step"] += steps
    for name, thing in objects.items():
        path = os.path.join(folder, name + ".safetensors")
        if name in index["modules"]:
            tensors = {key: _plain(one) for key, one in thing.state_dict().items()}
        elif name in index["optimizers"]:
            tensors = {}
            state = thing.state_dict()
            index["optimizers"][name]["param_groups"] = _encode(state["param_groups"], "group", tensors)
            index["optimizers"][name]["state"] = {
                str(i): _encode(one, str(i), tensors) for i, one in state["state"].items()
            }
        else:
            known = ", ".join([*index["modules"], *index["optimizers"]])
            raise KeyError(f"'{name}' is not in {folder}, which has {known}")
        _replace(path, lambda part: save_file(tensors, part, {"format": "pt"}))
    _replace(os.path.join(folder, _INDEX), lambda part: _write_json(part, index))
)py";

}  // namespace

std::string_view PythonHelper() { return kHelper; }

}  // namespace gavel
