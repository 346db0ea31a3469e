#include "runtime/checkpoint/generation_store.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/checkpoint/attempt_writer.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size) {
  if (!std::isfinite(stall_s) || stall_s < 0) stall_s = 0;
  if (!std::isfinite(failure_interval_s) || failure_interval_s < 0) {
    return kCheckpointIntervalMax_s;
  }
  const double of_the_job_s = failure_interval_s / std::max(1, world_size);
  return std::clamp(std::sqrt(2 * stall_s * of_the_job_s),
                    kCheckpointIntervalMin_s, kCheckpointIntervalMax_s);
}

std::optional<double> Retention::ScoreOf(const Attempt& attempt,
                                         const ReadManifest& read) {
  if (best_.scalar.empty()) return std::nullopt;
  const auto known = scores_.find(attempt);
  if (known != scores_.end()) return known->second;
  const absl::StatusOr<Manifest> manifest = read(attempt);
  if (!manifest.ok()) return std::nullopt;
  std::optional<double>& score = scores_[attempt];
  const auto found = manifest->scalars.find(best_.scalar);
  if (found != manifest->scalars.end()) score = found->second;
  return score;
}

std::vector<ScoredGeneration> Retention::Scored(
    const std::vector<Attempt>& committed, const ReadManifest& read) {
  std::vector<ScoredGeneration> all;
  for (const Attempt& attempt : committed) {
    all.push_back({attempt.generation, ScoreOf(attempt, read)});
  }
  return all;
}

std::vector<Generation> Retention::Preserved(
    const std::vector<Attempt>& committed, const ReadManifest& read) {
  return GenerationsToPreserve(Scored(committed, read), every_steps_,
                               best_.highest);
}

std::optional<Generation> Retention::Best(const std::vector<Attempt>& committed,
                                          const ReadManifest& read) {
  const std::vector<Generation> best = GenerationsToPreserve(
      Scored(committed, read), /*every_steps=*/0, best_.highest);
  if (best.empty()) return std::nullopt;
  return best.front();
}

namespace {

GangWait WaitOf(const CommitOptions& options) {
  return {options.gang_wait_s, options.gives_up, options.all_have_begun};
}

using internal::CatchAsStatus;

// Tensors are grouped into shards anew if more than 1 / kRegroupFraction of a
// shard's maximum size is unchanged tensors that are written again, because
// they share shards with others.
constexpr uint64_t kRegroupFraction = 64;

// A file that is missing, too short or of another kind counts as damage, too.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

// True for damage and for errors of the disk (EIO has no code of its own).
// False for a lack of memory, descriptors or permission: falling back to an
// older generation would hide it and lose work.
bool MayFallBack(const absl::Status& status) {
  return IsDamage(status) || absl::IsUnknown(status);
}

std::map<std::string, uint64_t> SizesOf(const ShardPlan& plan) {
  std::map<std::string, uint64_t> sizes_bytes;
  for (const PlannedShard& shard : plan.shards()) {
    for (const TensorEntry& tensor : shard.layout.header.tensors) {
      sizes_bytes[tensor.name] = tensor.end - tensor.begin;
    }
  }
  return sizes_bytes;
}

absl::Status CheckGang(const CommitOptions& options) {
  if (options.world_size >= 1 && options.rank >= 0 &&
      options.rank < options.world_size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("rank ", options.rank, " with a world_size of ",
             options.world_size, "; ranks are 0 to world_size - 1"));
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
    return absl::InvalidArgumentError(StrCat(
        "checkpoint directory ", directory, ": keep_last is ",
        options.keep_last,
        "; keep at least 2, so that one is left when the newest is damaged"));
  }
  if (options.threads < 1) {
    return absl::InvalidArgumentError(StrCat("checkpoint directory ", directory,
                                             ": ", options.threads,
                                             " threads; give at least 1"));
  }
  GAVEL_RETURN_IF_ERROR(
      Annotate(CreateDirectories(*options.file_system, directory),
               StrCat("checkpoint directory ", directory)));
  return GenerationStore(directory, options);
}

GenerationStore::GenerationStore(std::string directory, const Options& options)
    : directory_(std::move(directory)),
      options_(options),
      pool_(std::make_unique<WorkerPool>(options.threads)),
      own_arena_(options.arena == nullptr ? std::make_unique<Arena>()
                                          : nullptr),
      arena_(options.arena == nullptr ? own_arena_.get() : options.arena),
      stage_(std::make_unique<SnapshotStage>(
          options.shard_size_bytes_max, *pool_, *arena_, options.device_hash)),
      retention_(options.keep_every_steps, options.keep_best) {}

std::string GenerationStore::FolderOf(const Attempt& attempt) const {
  return StrCat(directory_, "/", AttemptName(attempt));
}

absl::Status GenerationStore::Stage(const Snapshot& snapshot,
                                    const CommitOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckGang(options));
  is_staged_ = false;
  GAVEL_RETURN_IF_ERROR(
      stage_->Copy(snapshot, options.rank, options.world_size));
  is_staged_ = true;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> GenerationStore::SizeOf(const Snapshot& snapshot,
                                                 const CommitOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckGang(options));
  is_staged_ = false;
  return stage_->SizeOf(snapshot, options.rank, options.world_size);
}

absl::Status GenerationStore::Prepare(uint64_t size_bytes) {
  return arena_->Fault(size_bytes);
}

absl::Status GenerationStore::Commit(Generation generation,
                                     const Snapshot& snapshot,
                                     const CommitOptions& options) {
  GAVEL_RETURN_IF_ERROR(Stage(snapshot, options));
  return CommitStaged(generation, options);
}

absl::Status GenerationStore::CommitStaged(Generation generation,
                                           const CommitOptions& options) {
  if (!is_staged_) {
    return absl::FailedPreconditionError(
        "nothing is staged for a checkpoint; call Stage first");
  }
  // Faults in the arena here, where training does not wait for it. A failure
  // does no harm: the save works without.
  arena_->Fault(stage_->size_bytes()).IgnoreError();
  const std::string what =
      StrCat("checkpoint ", GenerationName(generation),
             " is not committed, earlier ones are unchanged");
  if (options.rank > 0) {
    absl::Status joined = JoinAttempt(generation, options);
    RememberLatest();
    return Annotate(joined, what);
  }
  GAVEL_ASSIGN_OR_RETURN(Attempt attempt, PrepareAttempt(generation));
  absl::Status status = WriteAttempt(attempt, options);
  if (!status.ok()) {
    // A failure to remove the attempt does no harm: the next commit tries
    // again, and an attempt that already has its manifest is a complete
    // generation.
    RemoveAttempt(file_system(), directory_, attempt).IgnoreError();
    // The other ranks group their next shards by the newest committed
    // generation on disk (RememberLatest). Rank 0 must do the same.
    if (options.world_size > 1) RememberLatest();
    return Annotate(status, what);
  }
  damaged_.erase(attempt);
  unreadable_.erase(attempt);
  cleanup_status_ = MarkDirectory();
  cleanup_status_.Update(DeleteSuperseded(attempt));
  return absl::OkStatus();
}

// Called after the commit, as a mark without any generation would be taken for
// a loss.
absl::Status GenerationStore::MarkDirectory() {
  if (is_marked_) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(is_marked_, IsMarked());
  if (is_marked_) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(WriteTextFile(
      file_system(), StrCat(directory_, "/", kCommittedName),
      "Checkpoints were committed here. Training does not begin anew beside "
      "folders of which none has its manifest.\n"));
  GAVEL_RETURN_IF_ERROR(file_system().SyncDirectory(directory_));
  is_marked_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> GenerationStore::IsMarked() const {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         file_system().List(directory_));
  return std::ranges::find(entries, kCommittedName, &DirectoryEntry::name) !=
         entries.end();
}

// Each attempt gets a new folder: the files of an earlier attempt, whose fsync
// may have failed, are never written again.
absl::StatusOr<Attempt> GenerationStore::PrepareAttempt(Generation generation) {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  if (!attempts.committed.empty() &&
      attempts.committed.back().generation.epoch > generation.epoch) {
    return Superseded(directory_, generation,
                      attempts.committed.back().generation);
  }
  if (attempts.committed.empty()) {
    // The mark is a leftover of generations that the user has removed.
    is_marked_ = false;
    file_system()
        .RemoveFile(StrCat(directory_, "/", kCommittedName))
        .IgnoreError();
  }
  Attempt attempt{generation, 0};
  for (const Attempt& other : attempts.uncommitted) {
    if (other.generation == generation) attempt.number = other.number + 1;
  }
  for (const Attempt& other : attempts.committed) {
    if (other.generation != generation) continue;
    attempt.number = std::max(attempt.number, other.number + 1);
  }
  // Removed now, not after the commit, as they may be what fills the disk.
  RemoveUncommitted(attempts, generation.epoch).IgnoreError();
  return attempt;
}

absl::Status GenerationStore::RemoveLeftovers(uint64_t epoch) {
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(file_system(), directory_));
  return RemoveUncommitted(attempts, epoch);
}

absl::Status GenerationStore::RemoveUncommitted(const Attempts& attempts,
                                                uint64_t epoch) {
  std::vector<Attempt> leftovers;
  for (const Attempt& attempt : attempts.uncommitted) {
    if (attempt.generation.epoch <= epoch) leftovers.push_back(attempt);
  }
  return RemoveAll(leftovers);
}

absl::Status GenerationStore::WriteManifest(const std::string& folder,
                                            const Manifest& manifest) {
  return WriteTextFile(file_system(),
                       StrCat(folder, "/", kManifestTemporaryName),
                       EncodeManifest(manifest));
}

Manifest GenerationStore::MakeManifest(
    const Attempt& attempt, const CommitOptions& options,
    std::vector<AttemptWriter::IndexedShard> shards) const {
  Manifest manifest{attempt.generation, options.world_size, {}};
  for (AttemptWriter::IndexedShard& shard : shards) {
    if (shard.linked > 0) manifest.linked[shard.index] = shard.linked;
    manifest.shards.push_back(std::move(shard.summary));
  }
  manifest.unchanged = CountUnchanged(history_.manifest, manifest.shards);
  manifest.unchanged_shards = stage_->plan().unchanged_shards();
  manifest.scalars = options.scalars;
  return manifest;
}

absl::Status GenerationStore::WriteAttempt(const Attempt& attempt,
                                           const CommitOptions& options) {
  const std::string folder = FolderOf(attempt);
  GAVEL_RETURN_IF_ERROR(file_system().CreateDirectory(folder));
  AttemptWriter writer(file_system(), *pool_, history_);
  const bool is_gang = options.world_size > 1;
  ManifestPart own = PartOf(attempt.generation, options);
  Manifest manifest;
  GAVEL_RETURN_IF_ERROR(
      writer.Write(folder, stage_->shards(),
                   [&](const std::vector<AttemptWriter::IndexedShard>& shards) {
                     own.shards = shards;
                     if (is_gang) return WritePart(file_system(), folder, own);
                     manifest = MakeManifest(attempt, options, shards);
                     return WriteManifest(folder, manifest);
                   }));
  if (is_gang) {
    GAVEL_ASSIGN_OR_RETURN(
        std::vector<AttemptWriter::IndexedShard> shards,
        CollectParts(file_system(), folder, own, WaitOf(options)));
    manifest = MakeManifest(attempt, options, std::move(shards));
    GAVEL_RETURN_IF_ERROR(WriteManifest(folder, manifest));
  }
  GAVEL_RETURN_IF_ERROR(CommitManifest(folder, options.before_commit));
  if (is_gang) {
    GAVEL_RETURN_IF_ERROR(AnnounceCommit(file_system(), folder));
  }
  linked_shards_ = writer.linked_count();
  Remember(folder, std::move(manifest), SizesOf(stage_->plan()));
  return absl::OkStatus();
}

absl::Status GenerationStore::CommitManifest(
    const std::string& folder, const std::function<absl::Status()>& veto) {
  if (veto) {
    GAVEL_RETURN_IF_ERROR(CatchAsStatus("before_commit", veto));
  }
  GAVEL_RETURN_IF_ERROR(
      file_system().Rename(StrCat(folder, "/", kManifestTemporaryName),
                           StrCat(folder, "/", kManifestFileName)));
  return file_system().SyncDirectory(folder);
}

ManifestPart GenerationStore::PartOf(Generation generation,
                                     const CommitOptions& options) const {
  return {generation,
          options.rank,
          options.world_size,
          {},
          stage_->plan().checksum()};
}

absl::Status GenerationStore::JoinAttempt(Generation generation,
                                          const CommitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const Attempt attempt,
                         WaitForAttempt(file_system(), directory_, generation,
                                        options.rank, WaitOf(options)));
  absl::Status status = WriteOwnPart(attempt, options);
  if (status.ok()) {
    status = WaitForCommit(file_system(), directory_, attempt, WaitOf(options));
  }
  // NOT_FOUND means that the attempt's folder is gone.
  if (!absl::IsNotFound(status)) return status;
  return absl::AbortedError(
      StrCat("rank 0 gave this checkpoint up, and its log says why; or the "
             "folder is gone from this machine: ",
             ToStd(status.message())));
}

absl::Status GenerationStore::WriteOwnPart(const Attempt& attempt,
                                           const CommitOptions& options) {
  const std::string folder = FolderOf(attempt);
  AttemptWriter writer(file_system(), *pool_, history_);
  ManifestPart part = PartOf(attempt.generation, options);
  GAVEL_RETURN_IF_ERROR(
      writer.Write(folder, stage_->shards(),
                   [&](const std::vector<AttemptWriter::IndexedShard>& shards) {
                     part.shards = shards;
                     return WritePart(file_system(), folder, part);
                   }));
  linked_shards_ = writer.linked_count();
  return PublishPart(file_system(), folder, options.rank);
}

void GenerationStore::Remember(
    const std::string& folder, Manifest manifest,
    const std::map<std::string, uint64_t>& sizes_bytes) {
  const std::vector<ShardSummary>& before = history_.manifest.shards;
  std::vector<char> changed(manifest.shards.size(), 0);
  for (size_t i = 0; i < changed.size() && i < before.size(); ++i) {
    // A shard of unchanged tensors differs from the one before only because
    // tensors were grouped anew. It does not count as changed, so that the next
    // commit tries to link it.
    changed[i] = before[i] != manifest.shards[i] && !IsUnchanged(manifest, i);
  }
  stage_->GroupUnchanged(ChooseUnchanged(
      manifest, sizes_bytes, options_.shard_size_bytes_max / kRegroupFraction));
  history_ = {folder, std::move(manifest), std::move(changed)};
}

// Called by a rank of a gang that did not commit the generation itself. All
// ranks must cut the next generation into shards alike, so each rank uses the
// newest committed one on disk, even if it did not see the commit. As long as a
// rank uses another one, rank 0 commits nothing.
void GenerationStore::RememberLatest() {
  const absl::StatusOr<Attempts> attempts =
      ListAttempts(file_system(), directory_);
  // If the directory can't be read, keep the generation remembered before: it
  // is most likely cut alike.
  if (!attempts.ok()) return;
  const auto it =
      std::find_if(attempts->committed.rbegin(), attempts->committed.rend(),
                   [this](const Attempt& attempt) { return IsSound(attempt); });
  if (it == attempts->committed.rend()) return Forget();
  const Attempt& latest = *it;
  if (history_.folder == FolderOf(latest)) return;
  absl::StatusOr<Manifest> manifest = ReadAttemptManifest(latest);
  if (!manifest.ok()) return;
  Remember(FolderOf(latest), *std::move(manifest), SizesOf(stage_->plan()));
}

void GenerationStore::Forget() {
  history_ = {};
  stage_->GroupUnchanged({});
}

// Lists the directory again, as another worker may have committed a higher
// epoch meanwhile.
absl::Status GenerationStore::DeleteSuperseded(const Attempt& committed) {
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  std::vector<Attempt> sound;
  std::vector<Generation> existing;
  for (const Attempt& attempt : attempts.committed) {
    if (!IsSound(attempt)) continue;
    sound.push_back(attempt);
    existing.push_back(attempt.generation);
  }
  std::vector<Generation> old =
      GenerationsToDelete(existing, committed.generation, options_.keep_last);
  for (const Attempt& attempt : unreadable_) {
    std::vector<Generation> with_it = existing;
    with_it.push_back(attempt.generation);
    const std::vector<Generation> too_old =
        GenerationsToDelete(with_it, committed.generation, options_.keep_last);
    if (std::ranges::find(too_old, attempt.generation) != too_old.end()) {
      old.push_back(attempt.generation);
    }
  }
  const std::vector<Generation> preserved = retention_.Preserved(
      sound, [this](const Attempt& one) { return ReadAttemptManifest(one); });
  std::erase_if(old, [&preserved](Generation generation) {
    return std::ranges::find(preserved, generation) != preserved.end();
  });
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
    if (status.ok()) {
      damaged_.erase(attempt);
      unreadable_.erase(attempt);
      retention_.Forget(attempt);
    }
    first_error.Update(status);
  }
  return Annotate(first_error, "an old generation is left on disk");
}

absl::StatusOr<Restored> GenerationStore::Restore() {
  is_staged_ = false;
  stage_->Release();
  GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                         ListAttempts(file_system(), directory_));
  std::vector<std::string> notes;
  while (!attempts.committed.empty()) {
    Attempt attempt = attempts.committed.back();
    attempts.committed.pop_back();
    absl::StatusOr<Restored> restored = RestoreAttempt(attempt);
    if (restored.ok()) {
      unreadable_.erase(attempt);
      restored->notes = std::move(notes);
      return restored;
    }
    if (!MayFallBack(restored.status())) {
      return Annotate(restored.status(),
                      StrCat("cannot restore ", AttemptName(attempt)));
    }
    (IsDamage(restored.status()) ? damaged_ : unreadable_).insert(attempt);
    if (history_.folder == FolderOf(attempt)) Forget();
    notes.push_back(StrCat(AttemptName(attempt),
                           " rejected: ", restored.status().message()));
  }
  if (notes.empty()) {
    GAVEL_ASSIGN_OR_RETURN(const bool marked, IsMarked());
    if (!marked || attempts.uncommitted.empty()) {
      return absl::NotFoundError(
          StrCat(directory_, " has no committed checkpoint"));
    }
    return absl::DataLossError(StrCat(
        "checkpoints were committed in ", directory_, ", and none has its ",
        kManifestFileName,
        " any more; bring them back from a copy, or empty the directory to "
        "start from the beginning"));
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
    return absl::DataLossError(
        StrCat(path, " is damaged: it belongs to another generation"));
  }
  return manifest;
}

absl::StatusOr<Restored> GenerationStore::RestoreBest() {
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(file_system(), directory_));
  std::vector<Attempt> sound;
  for (const Attempt& attempt : attempts.committed) {
    if (IsSound(attempt)) sound.push_back(attempt);
  }
  const std::optional<Generation> best = retention_.Best(
      sound, [this](const Attempt& one) { return ReadAttemptManifest(one); });
  const auto found = std::find_if(
      sound.rbegin(), sound.rend(),
      [&](const Attempt& attempt) { return attempt.generation == best; });
  if (found == sound.rend()) {
    return absl::NotFoundError(
        StrCat("no checkpoint in ", directory_, " has the scalar '",
               options_.keep_best.scalar,
               "', so none is the best; report it before a checkpoint"));
  }
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest, ReadAttemptManifest(*found));
  std::map<std::string, uint64_t> sizes_bytes;
  absl::StatusOr<Restored> restored =
      ReadAttempt(*found, manifest, &sizes_bytes);
  if (restored.ok()) return restored;
  return Annotate(restored.status(),
                  StrCat("cannot restore ", AttemptName(*found)));
}

absl::StatusOr<Restored> GenerationStore::RestoreAttempt(
    const Attempt& attempt) {
  GAVEL_ASSIGN_OR_RETURN(Manifest manifest, ReadAttemptManifest(attempt));
  std::map<std::string, uint64_t> sizes_bytes;
  GAVEL_ASSIGN_OR_RETURN(Restored restored,
                         ReadAttempt(attempt, manifest, &sizes_bytes));
  history_ = {};
  Remember(FolderOf(attempt), std::move(manifest), sizes_bytes);
  return restored;
}

absl::StatusOr<Restored> GenerationStore::ReadAttempt(
    const Attempt& attempt, const Manifest& manifest,
    std::map<std::string, uint64_t>* sizes_bytes) {
  // Twice the threads, as in a new process half of them fault in the arena's
  // pages while the others wait for the disk.
  WorkerPool readers(options_.threads == 1 ? 1 : 2 * options_.threads);
  const auto read = options_.shares_restored ? MapShards : ReadShards;
  GAVEL_ASSIGN_OR_RETURN(
      std::vector<NamedTensor> tensors,
      read(file_system(), FolderOf(attempt), manifest, readers, *arena_));
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(kBytesPrefix)) (*sizes_bytes)[name] = tensor.nbytes();
  }
  GAVEL_ASSIGN_OR_RETURN(Snapshot snapshot, FromTensors(std::move(tensors)));
  return Restored{manifest.generation,
                  manifest.world_size,
                  std::move(snapshot),
                  manifest.scalars,
                  {}};
}

CheckpointWriter::CheckpointWriter(GenerationStore store, Done done)
    : store_(std::move(store)), done_(std::move(done)) {}

absl::Status CheckpointWriter::Begin(Generation generation,
                                     const Snapshot& snapshot,
                                     const CommitOptions& options,
                                     std::vector<HostCopy>* copies) {
  Wait().IgnoreError();
  GAVEL_RETURN_IF_ERROR(store_.Stage(snapshot, options));
  if (copies != nullptr) *copies = store_.StagedCopies(snapshot);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    in_flight_ = generation;
  }
  Post([this, generation, options] {
    absl::Status status = CatchAsStatus("writing a checkpoint", [&] {
      return store_.CommitStaged(generation, options);
    });
    done_(generation, status);
    std::lock_guard<std::mutex> lock(mutex_);
    last_ = std::move(status);
    in_flight_.reset();
  });
  return absl::OkStatus();
}

void CheckpointWriter::Prepare(const Snapshot& snapshot,
                               const CommitOptions& options) {
  Wait().IgnoreError();
  // Reads the tensors in the training thread, which may change them later.
  absl::StatusOr<uint64_t> size_bytes = store_.SizeOf(snapshot, options);
  // An error in the state is not reported here: saving reports it.
  if (!size_bytes.ok()) return;
  Post([this, size = *size_bytes] { store_.Prepare(size).IgnoreError(); });
}

std::optional<Generation> CheckpointWriter::InFlight() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_;
}

absl::Status CheckpointWriter::Wait() {
  if (thread_) thread_->WaitUntilIdle();
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

absl::StatusOr<Restored> CheckpointWriter::Restore() {
  Wait().IgnoreError();
  return store_.Restore();
}

absl::StatusOr<Restored> CheckpointWriter::RestoreBest() {
  Wait().IgnoreError();
  return store_.RestoreBest();
}

absl::Status CheckpointWriter::RemoveLeftovers(uint64_t epoch) {
  Wait().IgnoreError();
  return store_.RemoveLeftovers(epoch);
}

void CheckpointWriter::Post(std::function<void()> job) {
  if (!thread_) {
    const internal::SignalsBlocked blocked;
    // If the thread can't be started, the job runs in the caller's thread,
    // which only takes longer.
    absl::Status status = CatchAsStatus("the writer's thread", [this] {
      thread_ = std::make_unique<TaskThread>();
      return absl::OkStatus();
    });
    if (!status.ok()) return job();
  }
  thread_->Post(std::move(job));
}

}  // namespace gavel
