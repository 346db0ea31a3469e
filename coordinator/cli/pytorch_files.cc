#include "coordinator/cli/pytorch_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "coordinator/cli/optimizer_dict.h"
#include "coordinator/cli/stored_tensors.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/own_files.h"
#include "runtime/files/user_files.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "runtime/generation/shard_layout.h"

namespace gavel {

// ---- Export ----

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrackedPrefix = "gavel/tracked/";

std::string TensorPath(const std::string& folder, const std::string& name) {
  return StrCat(folder, "/", name, ".safetensors");
}

absl::Status MakeEmptyDirectory(const std::string& path) {
  GAVEL_RETURN_IF_ERROR(MakeDirectory(path));
  std::error_code error;
  const bool empty = fs::is_empty(path, error);
  if (empty && !error) return absl::OkStatus();
  return absl::AlreadyExistsError(
      StrCat(path,
             " is not an empty directory; give another one, or remove "
             "what is in it"));
}

// Names in the generation begin with that of the module.
absl::StatusOr<std::vector<TensorSource>> ModuleTensors(
    const StoredGeneration& generation, const std::string& module) {
  const std::string prefix = module + "/";
  for (const auto& [entry, text] : generation.bytes) {
    const std::string_view name = entry;
    if (!name.starts_with(prefix) || !name.ends_with("/layout")) continue;
    return absl::UnimplementedError(
        StrCat("module '", module, "' has the sparse tensor '",
               name.substr(0, name.size() - std::string_view("/layout").size()),
               "', which is not exported; make it dense"));
  }
  std::vector<TensorSource> tensors;
  for (const auto& [name, tensor] : generation.tensors) {
    if (!std::string_view(name).starts_with(prefix)) continue;
    TensorSource source{tensor.entry, tensor};
    source.entry.name = name.substr(prefix.size());
    tensors.push_back(std::move(source));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<PyTorchFiles> ExportToPyTorch(const std::string& from,
                                             const std::string& to) {
  GAVEL_ASSIGN_OR_RETURN(const StoredGeneration generation,
                         OpenGeneration(from));
  GAVEL_RETURN_IF_ERROR(MakeEmptyDirectory(to));
  PyTorchFiles files;
  files.generation = generation.attempt.generation;
  files.folder = generation.folder();
  Json optimizers = Json::object();
  for (const auto& [entry, kind] : generation.bytes) {
    if (!std::string_view(entry).starts_with(kTrackedPrefix)) continue;
    const std::string name = entry.substr(kTrackedPrefix.size());
    std::vector<TensorSource> tensors;
    if (kind == "module" || kind == "script module") {
      GAVEL_ASSIGN_OR_RETURN(tensors, ModuleTensors(generation, name));
      files.modules.push_back(name);
    } else if (kind == "optimizer") {
      GAVEL_ASSIGN_OR_RETURN(const StoredOptimizer optimizer,
                             FindOptimizer(generation, name));
      GAVEL_ASSIGN_OR_RETURN(OptimizerDict dict, ToDict(generation, optimizer));
      optimizers[name] = std::move(dict.json);
      tensors = std::move(dict.tensors);
      files.optimizers.push_back(name);
    } else {
      files.notes.push_back(
          StrCat("'", name, "' (", kind, ") has no place in Python's files"));
      continue;
    }
    GAVEL_RETURN_IF_ERROR(
        WriteTensorFile(TensorPath(to, name), tensors).status());
  }
  const Json index = {{"format_version", 1},
                      {"epoch", files.generation.epoch},
                      {"step", files.generation.step},
                      {"modules", files.modules},
                      {"optimizers", std::move(optimizers)}};
  GAVEL_RETURN_IF_ERROR(WriteFile(StrCat(to, "/gavel_checkpoint.py"),
                                  std::string(PythonHelper())));
  GAVEL_RETURN_IF_ERROR(
      WriteFile(StrCat(to, "/", kPyTorchIndex), index.dump(1) + "\n"));
  return files;
}

// ---- Import ----

namespace {

constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr int64_t kIndexVersion = 1;
constexpr uint64_t kShardBytes = uint64_t{64} << 20;
constexpr int64_t kStepMax = int64_t{1} << 52;

// The state of the new generation: at first that of the newest.
class Merge {
 public:
  explicit Merge(const StoredGeneration& newest) : newest_(newest) {
    for (const auto& [name, tensor] : newest.tensors) {
      tensors_[name] = {tensor.entry, tensor};
    }
    bytes_ = newest.bytes;
  }

  absl::Status TakeModule(const std::string& name, const std::string& file) {
    GAVEL_RETURN_IF_ERROR(CheckTracked(name, {"module", "script module"}));
    GAVEL_ASSIGN_OR_RETURN(const StoredTensors given, ReadTensorFile(file));
    const std::string prefix = name + "/";
    for (auto& [entry, source] : tensors_) {
      if (!std::string_view(entry).starts_with(prefix)) continue;
      const auto found = given.find(entry.substr(prefix.size()));
      if (found == given.end()) {
        return Refuse(file, " has no '", entry.substr(prefix.size()),
                      "', which '", name, "' of the checkpoint has");
      }
      GAVEL_RETURN_IF_ERROR(CheckSame(file, found->second.entry, source.entry));
      source.from = found->second;
    }
    for (const auto& [entry, tensor] : given) {
      if (tensors_.contains(prefix + entry)) continue;
      return Refuse(file, " has '", entry, "', which '", name,
                    "' of the checkpoint does not have");
    }
    return absl::OkStatus();
  }

  absl::Status TakeOptimizer(const std::string& name, const ParsedJson& json,
                             const std::string& file) {
    GAVEL_RETURN_IF_ERROR(CheckTracked(name, {"optimizer"}));
    GAVEL_ASSIGN_OR_RETURN(const StoredOptimizer optimizer,
                           FindOptimizer(newest_, name));
    GAVEL_ASSIGN_OR_RETURN(const StoredTensors given, ReadTensorFile(file));
    absl::StatusOr<OptimizerEntries> entries = FromDict(json, given, optimizer);
    if (!entries.ok()) {
      return Annotate(entries.status(), StrCat("optimizer '", name, "'"));
    }
    for (const TensorSource& tensor : entries->tensors) {
      const auto before = newest_.tensors.find(tensor.entry.name);
      if (before == newest_.tensors.end()) continue;
      // Python may have a number, of another type.
      if (tensor.entry.shape.empty() && before->second.entry.shape.empty()) {
        continue;
      }
      GAVEL_RETURN_IF_ERROR(
          CheckSame(file, tensor.entry, before->second.entry));
    }
    Replace(name, *std::move(entries));
    return absl::OkStatus();
  }

  std::vector<std::string> TakeNotes() { return std::move(notes_); }

  // One shard after another, as GenerationStore cuts them.
  absl::StatusOr<std::vector<ShardSummary>> Write(const std::string& folder) {
    std::vector<std::vector<TensorSource>> shards(1);
    uint64_t size = 0;
    for (auto& [name, tensor] : tensors_) {
      const uint64_t bytes = SizeOf(tensor.entry);
      if (size > 0 && size + bytes > kShardBytes) {
        shards.emplace_back();
        size = 0;
      }
      size += bytes;
      shards.back().push_back(std::move(tensor));
    }
    shards.push_back(Bytes());
    std::vector<ShardSummary> summaries;
    for (const std::vector<TensorSource>& shard : shards) {
      if (shard.empty()) continue;
      GAVEL_ASSIGN_OR_RETURN(
          ShardSummary summary,
          WriteTensorFile(StrCat(folder, "/", ShardFileName(summaries.size())),
                          shard));
      summaries.push_back(std::move(summary));
    }
    return summaries;
  }

 private:
  absl::Status CheckTracked(const std::string& name,
                            const std::vector<std::string>& kinds) const {
    const std::string* const kind =
        newest_.FindBytes(StrCat("gavel/tracked/", name));
    if (kind != nullptr && std::ranges::count(kinds, *kind) > 0) {
      return absl::OkStatus();
    }
    return Refuse("the checkpoint has ",
                  kind == nullptr ? "nothing" : StrCat("a ", *kind), " as '",
                  name, "', and ", kPyTorchIndex, " a ", kinds.front(),
                  "; export this job's checkpoint and use its names");
  }

  static absl::Status CheckSame(const std::string& file,
                                const TensorEntry& given,
                                const TensorEntry& before) {
    if (given.dtype == before.dtype && given.shape == before.shape) {
      return absl::OkStatus();
    }
    return Refuse(file, ": '", given.name, "' is ", KindOf(given), ", and ",
                  KindOf(before),
                  " in the checkpoint; give it the same shape and type");
  }

  void Replace(const std::string& name, OptimizerEntries entries) {
    for (const char* part : {"/group/", "/state/"}) {
      const std::string prefix = name + part;
      const auto is_old = [&prefix](const auto& entry) {
        return std::string_view(entry.first).starts_with(prefix);
      };
      std::erase_if(tensors_, is_old);
      std::erase_if(bytes_, is_old);
    }
    for (auto& [entry, text] : entries.bytes) bytes_[entry] = std::move(text);
    for (TensorSource& tensor : entries.tensors) {
      const std::string entry = tensor.entry.name;
      tensors_[entry] = std::move(tensor);
    }
    notes_.insert(notes_.end(), entries.notes.begin(), entries.notes.end());
  }

  static uint64_t SizeOf(const TensorEntry& entry) {
    uint64_t size = SizeOfDtype(entry.dtype);
    for (const int64_t extent : entry.shape) {
      size *= static_cast<uint64_t>(extent);
    }
    return size;
  }

  std::vector<TensorSource> Bytes() {
    std::vector<TensorSource> rows;
    for (auto& [name, text] : bytes_) {
      const auto size = static_cast<int64_t>(text.size());
      rows.push_back({{StrCat(kBytesPrefix, name), Dtype::kU8, {size}, 0, 0},
                      std::move(text)});
    }
    return rows;
  }

  const StoredGeneration& newest_;
  std::map<std::string, TensorSource> tensors_;
  std::map<std::string, std::string> bytes_;
  std::vector<std::string> notes_;
};

absl::StatusOr<ParsedJson> ReadIndex(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(path, kIndexBytesMax));
  GAVEL_ASSIGN_OR_RETURN(ParsedJson json, ParseJson(text));
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const version,
      Field(json, "format_version", ParsedJson::value_t::number_unsigned, "1"));
  if (*version != kIndexVersion) {
    return absl::FailedPreconditionError(
        StrCat("format version ", version->dump(),
               " is not known here; use the version of Gavel that wrote it"));
  }
  return json;
}

// A new attempt, when its generation is there already: it counts more.
absl::StatusOr<Attempt> NextAttempt(const StoredGeneration& newest,
                                    const ParsedJson& index) {
  const Generation before = newest.attempt.generation;
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const given,
      Field(index, "step", ParsedJson::value_t::number_unsigned,
            "the steps that the state has been trained for"));
  GAVEL_ASSIGN_OR_RETURN(const int64_t step,
                         Whole(*given, "step", 0, kStepMax));
  if (static_cast<uint64_t>(step) < before.step) {
    return Refuse("its step is ", step, ", and ", newest.directory,
                  " has one of step ", before.step,
                  "; export that, or import into a copy of the directory");
  }
  Attempt attempt{{before.epoch, static_cast<uint64_t>(step)}, 0};
  GAVEL_ASSIGN_OR_RETURN(const Attempts all,
                         ListAttempts(FileSystem::Posix(), newest.directory));
  for (const auto* list : {&all.committed, &all.uncommitted}) {
    for (const Attempt& other : *list) {
      if (other.generation != attempt.generation) continue;
      attempt.number = std::max(attempt.number, other.number + 1);
    }
  }
  return attempt;
}

// In the order of GenerationStore's protocol.
absl::Status Commit(const StoredGeneration& newest, const Attempt& attempt,
                    Merge& merge, const std::string& folder) {
  FileSystem& disk = FileSystem::Posix();
  GAVEL_RETURN_IF_ERROR(disk.CreateDirectory(folder));
  Manifest manifest;
  manifest.generation = attempt.generation;
  manifest.world_size = newest.manifest.world_size;
  GAVEL_ASSIGN_OR_RETURN(manifest.shards, merge.Write(folder));
  const std::string temporary = StrCat(folder, "/", kManifestTemporaryName);
  GAVEL_RETURN_IF_ERROR(
      WriteTextFile(disk, temporary, EncodeManifest(manifest)));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(newest.directory));
  GAVEL_RETURN_IF_ERROR(
      disk.Rename(temporary, StrCat(folder, "/", kManifestFileName)));
  return disk.SyncDirectory(folder);
}

absl::Status TakeAll(const ParsedJson& index, const std::string& from,
                     Merge& merge, PyTorchFiles* files) {
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const modules,
      Field(index, "modules", ParsedJson::value_t::array, "a list of names"));
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* const optimizers,
      Field(index, "optimizers", ParsedJson::value_t::object, "an object"));
  const auto file_of = [&from](const std::string& name) {
    return StrCat(from, "/", name, ".safetensors");
  };
  for (const ParsedJson& module : *modules) {
    if (!module.is_string()) return Refuse("modules is no list of names");
    const std::string name = module.get<std::string>();
    GAVEL_RETURN_IF_ERROR(merge.TakeModule(name, file_of(name)));
    files->modules.push_back(name);
  }
  for (const auto& [name, json] : optimizers->items()) {
    GAVEL_RETURN_IF_ERROR(merge.TakeOptimizer(name, json, file_of(name)));
    files->optimizers.push_back(name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PyTorchFiles> ImportFromPyTorch(const std::string& from,
                                               const std::string& directory) {
  const std::string path = StrCat(from, "/", kPyTorchIndex);
  absl::StatusOr<ParsedJson> index = ReadIndex(path);
  if (!index.ok()) return Annotate(index.status(), path);
  GAVEL_ASSIGN_OR_RETURN(const StoredGeneration newest,
                         OpenGeneration(directory));
  if (newest.directory != directory) {
    return Refuse(directory,
                  " is one generation; give the checkpoint "
                  "directory that it lies in");
  }
  const absl::StatusOr<FileLock> lock =
      FileLock::Take(StrCat(directory, "/", kInUseName));
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        StrCat("a program that runs saves its checkpoints in ", directory, " (",
               lock.status().message(),
               "); let it end first, a job by gavel hold JOB"));
  }
  PyTorchFiles files;
  Merge merge(newest);
  GAVEL_RETURN_IF_ERROR(TakeAll(*index, from, merge, &files));
  absl::StatusOr<Attempt> attempt = NextAttempt(newest, *index);
  if (!attempt.ok()) return Annotate(attempt.status(), path);
  files.generation = attempt->generation;
  files.folder = StrCat(directory, "/", AttemptName(*attempt));
  files.notes = merge.TakeNotes();
  const absl::Status status = Commit(newest, *attempt, merge, files.folder);
  if (status.ok()) return files;
  RemoveAttempt(FileSystem::Posix(), directory, *attempt).IgnoreError();
  return Annotate(status, "nothing is imported");
}

// ---- The module for Python, written beside each export ----

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
