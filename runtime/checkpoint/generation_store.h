// When a job checkpoints, which of its generations are kept, the store of its
// generations, and the writer that fills it in the background.
#ifndef GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
#define GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/attempt_writer.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/snapshot_stage.h"
#include "runtime/device/host_memory.h"
#include "runtime/files/worker_thread.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// How often to checkpoint: a pure function of what a checkpoint costs and how
// often workers fail. Called by the iterator after each save.

inline constexpr double kCheckpointIntervalMin_s = 10;
inline constexpr double kCheckpointIntervalMax_s = 1800;

// Seconds between two checkpoints at which the time lost is least: sqrt(2 *
// stall_s * failure_interval_s), within the bounds above. `stall_s`: how long
// one holds training up. `failure_interval_s`: mean time between failures of
// one worker; a job fails when any of `world_size` workers does. A value that
// is not finite or negative counts as the least (a cost) or greatest (a time
// without failures). Source: J. W. Young, "A first order approximation to the
// optimum checkpoint interval", CACM 17(9), 1974, equation 8; J. T. Daly, "A
// higher order estimate of the optimum checkpoint interval", FGCS 22, 2006,
// whose further terms matter only when a stall is not small against the time
// between failures.
double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size);

// Which generations stay beside the newest ones: milestones, and the best by a
// scalar that the job reports and manifests keep. Called by GenerationStore.
// Not thread-safe.
class Retention {
 public:
  using ReadManifest =
      std::function<absl::StatusOr<Manifest>(const Attempt& attempt)>;

  // See GenerationsToPreserve.
  Retention(uint64_t every_steps, BestBy best)
      : every_steps_(every_steps), best_(std::move(best)) {}

  // Returns the generations of `committed` that stay; all of them must be
  // undamaged. A manifest is read once; one that can't be read has no score.
  std::vector<Generation> Preserved(const std::vector<Attempt>& committed,
                                    const ReadManifest& read);
  // The best of them; nullopt: none has the scalar.
  std::optional<Generation> Best(const std::vector<Attempt>& committed,
                                 const ReadManifest& read);
  // It is deleted.
  void Forget(const Attempt& attempt) { scores_.erase(attempt); }

 private:
  std::vector<ScoredGeneration> Scored(const std::vector<Attempt>& committed,
                                       const ReadManifest& read);
  std::optional<double> ScoreOf(const Attempt& attempt,
                                const ReadManifest& read);

  uint64_t every_steps_;
  BestBy best_;
  std::map<Attempt, std::optional<double>> scores_;
};

// The checkpoints of one job in one directory. Commit writes a generation so
// that after a crash at any moment either this generation or an earlier one can
// be restored. Restore returns the latest generation that verifies.
//
// Called by CheckpointWriter. Not thread-safe. The lease ensures that at most
// one store per directory commits at a time (in a gang: one per rank); if it
// does not, the higher epoch wins. Another process may restore meanwhile.
//
// The protocol: a manifest gets its name only after all shards, their names and
// the manifest itself are durable. A generation is acknowledged only when its
// manifest and its folder are durable. Only after that are older generations
// deleted, and never one later than it. Steps that this order does not
// constrain overlap: names are made durable while the data is written.

struct GenerationStoreOptions {
  // The number of newest committed generations to keep, at least 2.
  int keep_last = 2;
  // Further generations to keep, see GenerationsToPreserve.
  uint64_t keep_every_steps = 0;
  BestBy keep_best = {};
  // A new shard begins when the tensors of one reach this many bytes; a larger
  // tensor has a shard of its own. The size is small enough that several
  // threads can work on a checkpoint and that unchanged tensors can have shards
  // of their own.
  uint64_t shard_size_bytes_max = uint64_t{64} << 20;
  // The number of threads that copy, sum, write and read, including the caller;
  // >= 1.
  int threads = 4;
  // Borrowed; must outlive the store.
  FileSystem* file_system = &FileSystem::Posix();
  // Restore() maps the files, so that the ranks of a gang on one machine share
  // the memory of the state.
  bool shares_restored = false;
  // See SnapshotStage; may be empty. Called in the thread that calls Stage.
  DeviceHash device_hash = nullptr;
  // Borrowed; must outlive the store. Null: the store creates one.
  Arena* arena = nullptr;
};

struct CommitOptions {
  // The gang that trained up to this generation. Each rank calls with the same
  // generation and state, except for its RankEntryPrefix entries and its parts
  // of the tensors in Snapshot::partitions. Each rank stores its share of the
  // state and returns when the whole generation is committed.
  int rank = 0;
  int world_size = 1;
  // How long ranks wait for one another after all have begun, in seconds, > 0.
  double gang_wait_s = 60;
  // Called while ranks wait for one another, until it returns true; gang_wait_s
  // counts from then. Before that, other ranks may be busy with something else,
  // and the wait goes on unless `gives_up` reports that one is lost. Empty: all
  // ranks begin together.
  std::function<bool()> all_have_begun = nullptr;
  // Called when everything except the manifest's name is durable. An error (the
  // lease ran out) ends the attempt and is returned. May be empty. Used by rank
  // 0 only.
  std::function<absl::Status()> before_commit = nullptr;
  // Called while ranks wait for one another. An error (a rank is lost, or can't
  // write its part) ends the wait and is returned. May be empty.
  std::function<absl::Status()> gives_up = nullptr;
  // Written to Manifest::scalars. Used by rank 0 only.
  std::map<std::string, double> scalars = {};
};

struct Restored {
  Generation generation;
  int world_size = 1;
  // Its tensors refer to the arena or to mapped files. While one of them is
  // alive, the next save uses other memory.
  Snapshot snapshot;
  std::map<std::string, double> scalars;  // Manifest::scalars
  // Later generations that were rejected, with the reason; empty if none was.
  std::vector<std::string> notes;
};

class GenerationStore {
 public:
  using Options = GenerationStoreOptions;

  // Creates the directory if there is none. INVALID_ARGUMENT: an option is out
  // of range. Otherwise the FileSystem's errors.
  static absl::StatusOr<GenerationStore> Open(const std::string& directory,
                                              const Options& options = {});

  // Copies the parts of `snapshot` that this rank stores; the snapshot may
  // change afterwards. INVALID_ARGUMENT: an empty, repeated or reserved name, a
  // tensor that cannot be stored (see CheckStorable), or a rank that is not
  // within the world size. RESOURCE_EXHAUSTED: no memory for the copy.
  absl::Status Stage(const Snapshot& snapshot,
                     const CommitOptions& options = {});

  // Returns the staged copies of the tensors of `snapshot`, which must be the
  // one staged last; see SnapshotStage::Copies.
  std::vector<HostCopy> StagedCopies(const Snapshot& snapshot) const {
    return stage_->Copies(snapshot);
  }

  // Commits the staged snapshot. OK: the generation is durable. On any error
  // rank 0 tries to remove the attempt, and all earlier generations are
  // unchanged. Another call makes a new attempt with new files, as a file whose
  // fsync failed can't be trusted. FAILED_PRECONDITION: nothing is staged; or
  // there is a generation of a higher epoch, so this worker was replaced; or
  // the ranks' states or steps differ. RESOURCE_EXHAUSTED: the disk is full.
  // DEADLINE_EXCEEDED: a rank is missing. ABORTED: rank 0 gave the attempt up.
  // Otherwise the errors of before_commit, gives_up or the FileSystem.
  absl::Status CommitStaged(Generation generation,
                            const CommitOptions& options = {});

  // Stages the snapshot and commits it.
  absl::Status Commit(Generation generation, const Snapshot& snapshot,
                      const CommitOptions& options = {});

  // Returns the bytes of memory that Stage will need. Reads names and sizes
  // only. Nothing is staged afterwards. The errors are those of Stage.
  absl::StatusOr<uint64_t> SizeOf(const Snapshot& snapshot,
                                  const CommitOptions& options = {});
  // Allocates that much memory and faults in its pages (Arena::Fault), so that
  // the first Stage is as fast as later ones.
  absl::Status Prepare(uint64_t size_bytes);

  // Returns the latest generation, by (epoch, step), that verifies. NOT_FOUND:
  // nothing was committed yet, or the directory was emptied. DATA_LOSS: all
  // committed generations are damaged, and the message lists why; or
  // generations were committed in this directory, and of the folders that are
  // left none has its manifest. FAILED_PRECONDITION: the latest generation was
  // written by a newer version. Other errors (memory, permission) concern the
  // latest generation and are no reason to fall back to an older state. Nothing
  // is staged afterwards.
  absl::StatusOr<Restored> Restore();

  // Returns the best committed generation by Options::keep_best, which commits
  // keep. NOT_FOUND: none has that scalar. The store stays as it is; errors as
  // of Restore(), without a fall-back.
  absl::StatusOr<Restored> RestoreBest();

  // Removes uncommitted attempts of this epoch and of lower ones, which
  // processes that died have left. Each commit does so first. Rank 0 of a gang
  // whose epoch is not new, so that its attempts may have the names of earlier
  // ones, calls this before the ranks meet; otherwise another rank could join
  // an attempt that was left behind.
  absl::Status RemoveLeftovers(uint64_t epoch);

  // Returns the latest committed generation by its name, without reading it.
  // NOT_FOUND if there is none.
  absl::StatusOr<Generation> LatestGeneration() const;

  // Returns a manifest, verified by its own checksum only. NOT_FOUND if the
  // generation is not committed.
  absl::StatusOr<Manifest> ReadManifest(Generation generation) const;

  // The outcome of marking the directory and deleting old generations after the
  // last commit. A failure does not fail the commit.
  const absl::Status& cleanup_status() const { return cleanup_status_; }

  // The number of shards that the last commit linked instead of writing them,
  // because they were the same in the generation before.
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
  // Returns this rank's part of the manifest, without its shards.
  ManifestPart PartOf(Generation generation,
                      const CommitOptions& options) const;
  // CommitStaged for a rank > 0 of a gang.
  absl::Status JoinAttempt(Generation generation, const CommitOptions& options);
  absl::Status WriteOwnPart(const Attempt& attempt,
                            const CommitOptions& options);
  absl::Status CommitManifest(const std::string& folder,
                              const std::function<absl::Status()>& veto);
  // Remembers the committed generation, with which the next one is compared and
  // by which it is cut into shards.
  void Remember(const std::string& folder, Manifest manifest,
                const std::map<std::string, uint64_t>& sizes_bytes);
  void RememberLatest();
  void Forget();
  // Writes the mark kCommittedName if it is not there yet.
  absl::Status MarkDirectory();
  absl::StatusOr<bool> IsMarked() const;
  absl::Status DeleteSuperseded(const Attempt& committed);
  absl::Status RemoveUncommitted(const Attempts& attempts, uint64_t epoch);
  absl::Status RemoveAll(const std::vector<Attempt>& attempts);
  absl::StatusOr<Manifest> ReadAttemptManifest(const Attempt& attempt) const;
  absl::StatusOr<Restored> RestoreAttempt(const Attempt& attempt);
  // Changes nothing here. `sizes_bytes`: see Remember().
  absl::StatusOr<Restored> ReadAttempt(
      const Attempt& attempt, const Manifest& manifest,
      std::map<std::string, uint64_t>* sizes_bytes);

  FileSystem& file_system() const { return *options_.file_system; }
  // Whether Restore has not found the attempt damaged or unreadable.
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
  bool is_marked_ = false;  // the directory has its mark
  // Generations that Restore could not read; they do not count towards
  // keep_last. Damaged ones are deleted after the next commit. Unreadable ones,
  // for which the disk gave an error that may pass, are deleted when there are
  // enough later ones.
  std::set<Attempt> damaged_;
  std::set<Attempt> unreadable_;
};

// Saves checkpoints in the background. The caller waits only until its state is
// copied. A thread then makes the copy a durable generation, while training
// continues or the accelerator serves the next job. One save runs at a time.
// Called by the iterator.
//
// Thread-safety: one thread makes all calls, except those marked otherwise.
// `done` is called by the writer's thread, which starts with the first save and
// blocks all signals. The destructor waits for the save under way.
class CheckpointWriter {
 public:
  // Called after each save, before Wait() returns and IsBusy() says no.
  using Done = std::function<void(Generation, const absl::Status&)>;

  CheckpointWriter(GenerationStore store, Done done);

  // Waits for the save under way, copies `snapshot`, and begins to write the
  // copy. Returns the errors of GenerationStore::Stage, which copies; `done`
  // gets the outcome of the write. The writer's thread calls
  // options.before_commit. `copies`, if not null, is set to
  // GenerationStore::StagedCopies.
  absl::Status Begin(Generation generation, const Snapshot& snapshot,
                     const CommitOptions& options,
                     std::vector<HostCopy>* copies = nullptr);

  // Begins to allocate the memory that Begin will need.
  void Prepare(const Snapshot& snapshot, const CommitOptions& options);

  // Returns whether a save, or the preparation of one, is under way.
  bool IsBusy() const { return thread_ != nullptr && thread_->IsBusy(); }
  // Returns the generation that is being written.
  std::optional<Generation> InFlight() const;
  // Waits until nothing is under way. Returns the outcome of the last save, OK
  // if there was none.
  absl::Status Wait();

  // The same as in GenerationStore. These wait for the save under way.
  absl::StatusOr<Restored> Restore();
  absl::StatusOr<Restored> RestoreBest();
  absl::Status RemoveLeftovers(uint64_t epoch);
  // The same as in GenerationStore. May be called from any thread.
  absl::StatusOr<Generation> LatestGeneration() const {
    return store_.LatestGeneration();
  }
  // May be called from any thread.
  const Arena& arena() const { return store_.arena(); }

 private:
  void Post(std::function<void()> job);

  GenerationStore store_;
  const Done done_;
  mutable std::mutex mutex_;  // guards the two below
  std::optional<Generation> in_flight_;
  absl::Status last_;
  std::unique_ptr<TaskThread> thread_;  // null before the first job
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_GENERATION_STORE_H_
