#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/cli/checkpoint/optimizer_dict.h"
#include "coordinator/cli/checkpoint/pytorch_files.h"
#include "coordinator/cli/checkpoint/stored_tensors.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/file_lock.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/generation_directory.h"
#include "runtime/generation/safetensors_header.h"

namespace gavel {
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

}  // namespace gavel
