#include "runtime/checkpoint/checkpoint_writer.h"

#include <utility>

#include "core/status.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/signals_blocked.h"

namespace gavel {

using internal::CatchAsStatus;

CheckpointWriter::CheckpointWriter(GenerationStore store, Done done)
    : store_(std::move(store)), done_(std::move(done)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

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

bool CheckpointWriter::IsBusy() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return busy_;
}

std::optional<Generation> CheckpointWriter::InFlight() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_;
}

absl::Status CheckpointWriter::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  return last_;
}

absl::StatusOr<Restored> CheckpointWriter::Restore() {
  Wait().IgnoreError();
  return store_.Restore();
}

absl::Status CheckpointWriter::RemoveLeftovers(uint64_t epoch) {
  Wait().IgnoreError();
  return store_.RemoveLeftovers(epoch);
}

void CheckpointWriter::Post(std::function<void()> job) {
  if (!thread_.joinable()) {
    const internal::SignalsBlocked blocked;
    // If the thread can't be started, the job runs in the caller's thread,
    // which only takes longer.
    absl::Status status = CatchAsStatus("the writer's thread", [this] {
      thread_ = std::thread([this] { Run(); });
      return absl::OkStatus();
    });
    if (!status.ok()) return job();
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    job_ = std::move(job);
    busy_ = true;
  }
  changed_.notify_all();
}

void CheckpointWriter::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || job_; });
    if (!job_) return;
    std::function<void()> job = std::exchange(job_, nullptr);
    lock.unlock();
    job();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace gavel
