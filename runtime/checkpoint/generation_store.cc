#include "runtime/checkpoint/generation_store.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

// [begin, end) of the tensors of each shard; always at least one shard.
std::vector<std::pair<size_t, size_t>> CutIntoShards(
    const std::vector<NamedTensor>& tensors, uint64_t size_bytes_max) {
  std::vector<std::pair<size_t, size_t>> shards;
  size_t begin = 0;
  uint64_t size_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t tensor_size = tensors[i].second.nbytes();
    if (i > begin && size_bytes + tensor_size > size_bytes_max) {
      shards.emplace_back(begin, i);
      begin = i;
      size_bytes = 0;
    }
    size_bytes += tensor_size;
  }
  shards.emplace_back(begin, tensors.size());
  return shards;
}

absl::Status WriteTextFile(FileSystem& file_system, const std::string& path,
                           const std::string& text) {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                         file_system.CreateFile(path));
  GAVEL_RETURN_IF_ERROR(file->Append(text));
  GAVEL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status Damaged(const std::string& path, std::string_view why) {
  return absl::DataLossError(StrCat(path, " is damaged: ", why));
}

absl::Status CheckShard(const std::string& path, const ShardSummary& expected,
                        const ShardSummary& found) {
  if (found.size_bytes != expected.size_bytes) {
    return Damaged(
        path, StrCat("it has ", found.size_bytes, " bytes, its manifest says ",
                     expected.size_bytes));
  }
  if (found.checksum != expected.checksum || found != expected) {
    return Damaged(path, "its checksum differs from its manifest's");
  }
  return absl::OkStatus();
}

// A file that is missing, short or of another kind is damage, too.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

// Besides damage, an error of the disk (EIO has no code of its own). Not a lack
// of memory, descriptors or permission: going back to an older state would hide
// it and lose work.
bool MayFallBack(const absl::Status& status) {
  return IsDamage(status) || absl::IsUnknown(status);
}

absl::Status Superseded(const std::string& directory, Generation mine,
                        Generation other) {
  return absl::FailedPreconditionError(
      StrCat("checkpoint ", GenerationName(mine),
             " is not committed: ", directory, " has ", GenerationName(other),
             " of a higher epoch, so another worker has taken over; end this "
             "one, or restore first"));
}

}  // namespace

absl::StatusOr<GenerationStore> GenerationStore::Open(
    const std::string& directory, const Options& options) {
  if (directory.empty()) {
    return absl::InvalidArgumentError(
        "the checkpoint directory has no name; give one");
  }
  if (options.keep_last < 2) {
    return absl::InvalidArgumentError(
        StrCat("checkpoint directory ", directory, ": keep_last is ",
               options.keep_last,
               "; keep at least 2, so that a damaged one can be replaced"));
  }
  GAVEL_RETURN_IF_ERROR(
      Annotate(CreateDirectories(*options.file_system, directory),
               StrCat("checkpoint directory ", directory)));
  return GenerationStore(directory, options);
}

std::string GenerationStore::FolderOf(const Attempt& attempt) const {
  return StrCat(directory_, "/", AttemptName(attempt));
}

absl::Status GenerationStore::Commit(Generation generation,
                                     const Snapshot& snapshot,
                                     const CommitOptions& options) {
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(
        StrCat("world_size is ", options.world_size, "; it is at least 1"));
  }
  GAVEL_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, ToTensors(snapshot));
  GAVEL_ASSIGN_OR_RETURN(Attempt attempt, PrepareAttempt(generation));
  absl::Status status = WriteAttempt(attempt, tensors, options);
  if (!status.ok()) {
    // Of no consequence when this fails, too: it has no manifest, and the next
    // commit tries again.
    RemoveAttempt(file_system(), directory_, attempt).IgnoreError();
    return Annotate(status,
                    StrCat("checkpoint ", GenerationName(generation),
                           " is not committed, earlier ones are unchanged"));
  }
  damaged_.erase(attempt);
  cleanup_status_ = DeleteSuperseded(attempt);
  return absl::OkStatus();
}

// A new folder for each attempt: files of an earlier one, whose fsync may have
// failed, are never written again.
absl::StatusOr<Attempt> GenerationStore::PrepareAttempt(Generation generation) {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  if (!attempts.committed.empty() &&
      attempts.committed.back().generation.epoch > generation.epoch) {
    return Superseded(directory_, generation,
                      attempts.committed.back().generation);
  }
  Attempt attempt{generation, 0};
  std::vector<Attempt> leftovers;
  for (const Attempt& other : attempts.uncommitted) {
    if (other.generation.epoch <= generation.epoch) leftovers.push_back(other);
    if (other.generation == generation) attempt.number = other.number + 1;
  }
  for (const Attempt& other : attempts.committed) {
    if (other.generation != generation) continue;
    attempt.number = std::max(attempt.number, other.number + 1);
  }
  // Now, not after the commit: they may be what fills the disk.
  RemoveAll(leftovers).IgnoreError();
  return attempt;
}

absl::Status GenerationStore::WriteAttempt(
    const Attempt& attempt, const std::vector<NamedTensor>& tensors,
    const CommitOptions& options) {
  std::string folder = FolderOf(attempt);
  Manifest manifest{attempt.generation, options.world_size, {}};
  GAVEL_RETURN_IF_ERROR(file_system().CreateDirectory(folder));
  GAVEL_RETURN_IF_ERROR(WriteShards(folder, tensors, &manifest));
  GAVEL_RETURN_IF_ERROR(file_system().SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(WriteManifest(folder, manifest, options.before_commit));
  GAVEL_RETURN_IF_ERROR(file_system().SyncDirectory(folder));
  return file_system().SyncDirectory(directory_);
}

absl::Status GenerationStore::WriteShards(
    const std::string& folder, const std::vector<NamedTensor>& tensors,
    Manifest* manifest) {
  const std::map<std::string, std::string> metadata = {
      {"format", "pt"}, {"gavel", GenerationName(manifest->generation)}};
  for (const auto& [begin, end] :
       CutIntoShards(tensors, options_.shard_size_bytes_max)) {
    std::string path =
        StrCat(folder, "/", ShardFileName(manifest->shards.size()));
    std::span<const NamedTensor> part(tensors.data() + begin, end - begin);
    GAVEL_ASSIGN_OR_RETURN(ShardSummary summary,
                           WriteShard(file_system(), path, part, metadata));
    manifest->shards.push_back(std::move(summary));
  }
  return absl::OkStatus();
}

absl::Status GenerationStore::WriteManifest(
    const std::string& folder, const Manifest& manifest,
    const std::function<absl::Status()>& veto) {
  std::string temporary = StrCat(folder, "/", kManifestTemporaryName);
  GAVEL_RETURN_IF_ERROR(
      WriteTextFile(file_system(), temporary, EncodeManifest(manifest)));
  if (veto) {
    GAVEL_RETURN_IF_ERROR(CatchAsStatus("before_commit", veto));
  }
  return file_system().Rename(temporary,
                              StrCat(folder, "/", kManifestFileName));
}

// Lists anew: another worker may have committed a higher epoch meanwhile.
absl::Status GenerationStore::DeleteSuperseded(const Attempt& committed) {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  std::vector<Generation> existing;
  for (const Attempt& attempt : attempts.committed) {
    if (!damaged_.contains(attempt)) existing.push_back(attempt.generation);
  }
  std::vector<Generation> old =
      GenerationsToDelete(existing, committed.generation, options_.keep_last);
  std::vector<Attempt> doomed;
  for (const Attempt& attempt : attempts.committed) {
    bool replaced = attempt.generation == committed.generation &&
                    attempt.number < committed.number;
    bool damaged = damaged_.contains(attempt) &&
                   attempt.generation.epoch <= committed.generation.epoch;
    if (replaced || damaged ||
        std::find(old.begin(), old.end(), attempt.generation) != old.end()) {
      doomed.push_back(attempt);
    }
  }
  return RemoveAll(doomed);
}

absl::Status GenerationStore::RemoveAll(const std::vector<Attempt>& attempts) {
  absl::Status first_error;
  for (const Attempt& attempt : attempts) {
    absl::Status status = RemoveAttempt(file_system(), directory_, attempt);
    if (status.ok()) damaged_.erase(attempt);
    first_error.Update(status);
  }
  return Annotate(first_error, "an old generation is left on disk");
}

absl::StatusOr<Restored> GenerationStore::Restore() {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  std::vector<std::string> notes;
  while (!attempts.committed.empty()) {
    Attempt attempt = attempts.committed.back();
    attempts.committed.pop_back();
    absl::StatusOr<Restored> restored = RestoreAttempt(attempt);
    if (restored.ok()) {
      restored->notes = std::move(notes);
      return restored;
    }
    if (!MayFallBack(restored.status())) {
      return Annotate(restored.status(),
                      StrCat("cannot restore ", AttemptName(attempt)));
    }
    if (IsDamage(restored.status())) damaged_.insert(attempt);
    notes.push_back(StrCat(AttemptName(attempt),
                           " rejected: ", restored.status().message()));
  }
  if (notes.empty()) {
    return absl::NotFoundError(
        StrCat(directory_, " has no committed checkpoint"));
  }
  std::string message = StrCat(
      "no checkpoint in ", directory_,
      " can be restored; repair the disk, or move the directory away to start "
      "from the beginning");
  for (const std::string& note : notes) StrAppend(&message, "; ", note);
  return absl::DataLossError(message);
}

absl::StatusOr<Generation> GenerationStore::LatestGeneration() const {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  if (attempts.committed.empty()) {
    return absl::NotFoundError(
        StrCat(directory_, " has no committed checkpoint"));
  }
  return attempts.committed.back().generation;
}

absl::StatusOr<Manifest> GenerationStore::ReadManifest(
    Generation generation) const {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  auto match = std::find_if(
      attempts.committed.rbegin(), attempts.committed.rend(),
      [&](const Attempt& attempt) { return attempt.generation == generation; });
  if (match == attempts.committed.rend()) {
    return absl::NotFoundError(
        StrCat(directory_, " has no ", GenerationName(generation)));
  }
  return ReadAttemptManifest(*match);
}

absl::StatusOr<Manifest> GenerationStore::ReadAttemptManifest(
    const Attempt& attempt) const {
  std::string path = StrCat(FolderOf(attempt), "/", kManifestFileName);
  GAVEL_ASSIGN_OR_RETURN(
      std::string text,
      ReadWholeFile(file_system(), path, kManifestSizeBytesMax));
  absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  if (manifest->generation != attempt.generation) {
    return Damaged(path, "it belongs to another generation");
  }
  return manifest;
}

absl::StatusOr<Restored> GenerationStore::RestoreAttempt(
    const Attempt& attempt) const {
  GAVEL_ASSIGN_OR_RETURN(Manifest manifest, ReadAttemptManifest(attempt));
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    std::string path = StrCat(FolderOf(attempt), "/", ShardFileName(i));
    GAVEL_ASSIGN_OR_RETURN(Shard shard, ReadShard(file_system(), path));
    GAVEL_RETURN_IF_ERROR(CheckShard(path, manifest.shards[i], shard.summary));
    std::move(shard.tensors.begin(), shard.tensors.end(),
              std::back_inserter(tensors));
  }
  GAVEL_ASSIGN_OR_RETURN(Snapshot snapshot, FromTensors(std::move(tensors)));
  return Restored{
      manifest.generation, manifest.world_size, std::move(snapshot), {}};
}

}  // namespace gavel
