#include "runtime/checkpoint/checkpoint_writer.h"

#include <utility>

#include "core/status.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/signals_blocked.h"

namespace gavel {

using internal::CatchAsStatus;

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
