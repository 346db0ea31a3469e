// Saves checkpoints in the background. The caller waits only until its state is
// copied. A thread then makes the copy a durable generation, while training
// continues or the accelerator serves the next job. One save runs at a time.
// Called by the iterator.
//
// Thread-safety: one thread makes all calls, except those marked otherwise.
// `done` is called by the writer's thread, which starts with the first save and
// blocks all signals. The destructor waits for the save under way.
#ifndef GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_
#define GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

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

#endif  // GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_
