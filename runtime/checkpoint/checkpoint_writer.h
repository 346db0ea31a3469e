// Saves in the background: the caller waits only until its state is copied, and
// a thread makes the copy a durable generation while training goes on, or while
// the accelerator serves the next job. One save at a time. Called by the
// iterator.
//
// Thread-safety: one thread calls, `done` comes from the writer's thread, which
// starts with the first save and blocks all signals. Destruction waits for the
// save under way.
#ifndef GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_
#define GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/generation_store.h"

namespace gavel {

class CheckpointWriter {
 public:
  // Called after each save, before Wait() returns and IsBusy() says no.
  using Done = std::function<void(Generation, const absl::Status&)>;

  CheckpointWriter(GenerationStore store, Done done);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the save under way, then copies `snapshot` (see
  // GenerationStore::Stage, whose errors it returns) and begins to write it.
  // What comes of that is told to `done`. options.before_commit is called by
  // the writer's thread. `copies`, if not null: GenerationStore::StagedCopies.
  absl::Status Begin(Generation generation, const Snapshot& snapshot,
                     const CommitOptions& options,
                     std::vector<HostCopy>* copies = nullptr);

  // Begins to get the memory that Begin will need.
  void Prepare(const Snapshot& snapshot, const CommitOptions& options);

  // A save, or the preparation of one, is under way.
  bool IsBusy() const;
  // The generation that is being written.
  std::optional<Generation> InFlight() const;
  // Until nothing is under way; the outcome of the last save, OK if none.
  absl::Status Wait();

  // As GenerationStore's; these two wait for the save under way.
  absl::StatusOr<Restored> Restore();
  absl::Status RemoveLeftovers(uint64_t epoch);
  // As GenerationStore's, from any thread.
  absl::StatusOr<Generation> LatestGeneration() const {
    return store_.LatestGeneration();
  }
  // From any thread.
  const Arena& arena() const { return store_.arena(); }

 private:
  void Post(std::function<void()> job);
  void Run();

  GenerationStore store_;
  const Done done_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;  // empty: nothing to do
  bool busy_ = false;
  std::optional<Generation> in_flight_;
  absl::Status last_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_WRITER_H_
