// The checkpoints of one job in one directory. Commit writes a generation so
// that after a crash at any moment either it or an earlier one can be restored;
// Restore gives the latest that verifies.
//
// Called by CheckpointWriter. Not thread-safe; one committing store per
// directory (of a gang: one per rank) at a time, which the lease ensures, and
// if it does not, the higher epoch wins. Restoring from another process
// meanwhile is safe.
//
// The protocol: a manifest gets its name only when all
// shards and their names are durable and it is itself; acknowledged is only
// what has a durable manifest and a durable folder; only after that are older
// generations deleted, never a higher one. What the order leaves open
// goes on at once: names are made durable while the data is written.
#ifndef GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
#define GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/attempt_writer.h"
#include "runtime/checkpoint/checkpoint_rules.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/snapshot_stage.h"
#include "runtime/device/arena.h"
#include "runtime/device/copy_list.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

struct GenerationStoreOptions {
  // Committed generations that stay, at least 2.
  int keep_last = 2;
  // Beside them, see GenerationsToPreserve.
  uint64_t keep_every_steps = 0;
  BestBy keep_best = {};
  // A new shard is begun when the tensors of one reach this many bytes; a
  // larger tensor has a shard of its own. Small enough for several threads, and
  // for what does not change to lie in shards of its own.
  uint64_t shard_size_bytes_max = uint64_t{64} << 20;
  // Threads that copy, sum, write and read, the caller among them; >= 1.
  int threads = 4;
  // Borrowed; must outlive the store.
  FileSystem* file_system = &FileSystem::Posix();
  // Restore() shares the memory of what it reads with the other processes of
  // this machine that do so: for the ranks of a gang.
  bool shares_restored = false;
  // See SnapshotStage; may be empty. Called by who calls Stage.
  DeviceHash device_hash = nullptr;
  // Borrowed; must outlive the store. Null: the store has one of its own.
  Arena* arena = nullptr;
};

struct CommitOptions {
  // The gang that trained up to this generation: each rank calls with the same
  // generation and state (but for its RankEntryPrefix entries and its parts of
  // what is in Snapshot::partitions), stores its share of it, and returns when
  // all is committed.
  int rank = 0;
  int world_size = 1;
  // How long ranks wait for one another once all have begun, in seconds, > 0.
  double gang_wait_s = 60;
  // Asked while ranks wait for one another, until it says so: the others may
  // be busy with something else as long as `gives_up` does not tell that one is
  // lost. Empty: they begin together.
  std::function<bool()> all_have_begun = nullptr;
  // Asked when all is durable but the manifest's name: anything but OK (the
  // lease ran out) gives the attempt up and is returned. May be empty. Rank 0
  // only.
  std::function<absl::Status()> before_commit = nullptr;
  // Asked while ranks wait for one another: anything but OK (one is lost, or
  // can't write its part) ends that and is returned. May be empty.
  std::function<absl::Status()> gives_up = nullptr;
  // For Manifest::scalars; rank 0's.
  std::map<std::string, double> scalars = {};
};

struct Restored {
  Generation generation;
  int world_size = 1;
  // Its tensors look into the arena, or into files; while one is there, the
  // next save takes other memory.
  Snapshot snapshot;
  // Later generations that were rejected, and why; empty when all is well.
  std::vector<std::string> notes;
};

class GenerationStore {
 public:
  using Options = GenerationStoreOptions;

  // Creates the directory when there is none. INVALID_ARGUMENT: options out of
  // range; else the FileSystem's errors.
  static absl::StatusOr<GenerationStore> Open(const std::string& directory,
                                              const Options& options = {});

  // Copies what this rank stores of `snapshot`, which may change afterwards.
  // INVALID_ARGUMENT: an empty, repeated or reserved name, or a tensor that
  // cannot be stored (see CheckStorable); rank and world size that don't fit.
  // RESOURCE_EXHAUSTED: no memory for the copy.
  absl::Status Stage(const Snapshot& snapshot,
                     const CommitOptions& options = {});

  // Of `snapshot`, which was staged last: see SnapshotStage::Copies.
  std::vector<HostCopy> StagedCopies(const Snapshot& snapshot) const {
    return stage_->Copies(snapshot);
  }

  // Commits what was staged. OK: the generation is durable. On any error the
  // attempt is removed and all earlier generations are as they were; calling
  // again makes a new attempt with new files, as a file whose fsync failed is
  // lost. FAILED_PRECONDITION: nothing is staged; a generation of a higher
  // epoch is there, so this worker was replaced; or ranks that don't fit
  // together. RESOURCE_EXHAUSTED: the disk is full. DEADLINE_EXCEEDED: a rank
  // is missing. Else before_commit's or the FileSystem's errors.
  absl::Status CommitStaged(Generation generation,
                            const CommitOptions& options = {});

  // Both.
  absl::Status Commit(Generation generation, const Snapshot& snapshot,
                      const CommitOptions& options = {});

  // Bytes of memory that Stage will need; looks at names and sizes only.
  // Errors as of Stage.
  absl::StatusOr<uint64_t> SizeOf(const Snapshot& snapshot,
                                  const CommitOptions& options = {});
  // Gets that much and makes its pages be there (Arena::Fault), so that the
  // first Stage is as fast as the others.
  absl::Status Prepare(uint64_t size_bytes);

  // The latest by (epoch, step) that verifies. NOT_FOUND: nothing was committed
  // yet. DATA_LOSS: all that was committed is damaged; the message lists why;
  // or nothing is left of it but the mark of the directory.
  // FAILED_PRECONDITION: the latest was written by a newer version. Other
  // errors (memory, permission) concern the latest and are no reason to fall
  // back to an older state. What was staged is staged no more.
  absl::StatusOr<Restored> Restore();

  // Removes what was begun in this epoch or a lower one and not committed,
  // because its processes died. Each commit does so first; but rank 0 of a gang
  // that may commit under names of before (its epoch is not new) calls this
  // before the ranks meet, or another could join what the dead have begun.
  absl::Status RemoveLeftovers(uint64_t epoch);

  // The latest committed, by its name, without reading it. NOT_FOUND if none.
  absl::StatusOr<Generation> LatestGeneration() const;

  // Verified by its own checksum only. NOT_FOUND if it is not committed.
  absl::StatusOr<Manifest> ReadManifest(Generation generation) const;

  // Deleting old generations does not fail a commit; what came of it at the
  // last one.
  const absl::Status& cleanup_status() const { return cleanup_status_; }

  // Of the last commit: shards that were as in the generation before it, and
  // were not written again.
  size_t linked_shards() const { return linked_shards_; }

  const Arena& arena() const { return *arena_; }

 private:
  GenerationStore(std::string directory, const Options& options);

  std::string FolderOf(const Attempt& attempt) const;
  absl::StatusOr<Attempt> PrepareAttempt(Generation generation);
  absl::Status WriteAttempt(const Attempt& attempt,
                            const CommitOptions& options);
  absl::Status WriteManifest(const std::string& folder,
                             const Manifest& manifest);
  Manifest MakeManifest(const Attempt& attempt, const CommitOptions& options,
                        std::vector<AttemptWriter::IndexedShard> shards) const;
  // Of this rank, without its shards.
  ManifestPart PartOf(Generation generation,
                      const CommitOptions& options) const;
  // Rank > 0 of a gang.
  absl::Status JoinAttempt(Generation generation, const CommitOptions& options);
  absl::Status WriteOwnPart(const Attempt& attempt,
                            const CommitOptions& options);
  absl::Status CommitManifest(const std::string& folder,
                              const std::function<absl::Status()>& veto);
  // The committed generation is what the next one is compared with and cut by.
  void Remember(const std::string& folder, Manifest manifest,
                const std::map<std::string, uint64_t>& sizes_bytes);
  void RememberLatest();
  void Forget();
  // Once, see kCommittedName.
  absl::Status MarkDirectory();
  absl::StatusOr<bool> IsMarked() const;
  absl::Status DeleteSuperseded(const Attempt& committed);
  absl::Status RemoveUncommitted(const Attempts& attempts, uint64_t epoch);
  absl::Status RemoveAll(const std::vector<Attempt>& attempts);
  absl::StatusOr<Manifest> ReadAttemptManifest(const Attempt& attempt) const;
  absl::StatusOr<Restored> RestoreAttempt(const Attempt& attempt);

  FileSystem& file_system() const { return *options_.file_system; }
  // As far as Restore has seen.
  bool IsSound(const Attempt& attempt) const {
    return !damaged_.contains(attempt) && !unreadable_.contains(attempt);
  }

  std::string directory_;
  Options options_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Arena> own_arena_;
  Arena* arena_;
  std::unique_ptr<SnapshotStage> stage_;
  Retention retention_;
  bool is_staged_ = false;
  ShardHistory history_;
  size_t linked_shards_ = 0;
  absl::Status cleanup_status_;
  bool is_marked_ = false;  // the directory
  // Found by Restore: they do not count as kept. Damaged ones are deleted after
  // the next commit; those that an error of the disk hid, which may pass, when
  // there are enough later ones.
  std::set<Attempt> damaged_;
  std::set<Attempt> unreadable_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
