#include "runtime/device/worker_pool.h"

#include "runtime/signals_blocked.h"
#include "runtime/torch_errors.h"

namespace gavel {

WorkerPool::~WorkerPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

absl::Status WorkerPool::Run(size_t count, const Task& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = &task;
  count_ = count;
  next_ = 0;
  error_ = absl::OkStatus();
  if (count > 1) {
    if (workers_.empty()) Start();
    changed_.notify_all();
  }
  TakeTasks(lock);
  changed_.wait(lock, [this] { return running_ == 0; });
  task_ = nullptr;
  return error_;
}

void WorkerPool::Start() {
  const internal::SignalsBlocked blocked;
  // With fewer threads than wished for it only takes longer.
  internal::CatchAsStatus("starting threads", [this] {
    for (int i = 1; i < threads_; ++i) {
      workers_.emplace_back([this] { Work(); });
    }
    return absl::OkStatus();
  }).IgnoreError();
}

void WorkerPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    TakeTasks(lock);
    changed_.wait(lock, [this] {
      return stopping_ || (task_ != nullptr && next_ < count_);
    });
  }
}

void WorkerPool::TakeTasks(std::unique_lock<std::mutex>& lock) {
  while (task_ != nullptr && next_ < count_) {
    const size_t index = next_++;
    const Task& task = *task_;
    ++running_;
    lock.unlock();
    absl::Status status =
        internal::CatchAsStatus("checkpoint", [&] { return task(index); });
    lock.lock();
    --running_;
    if (!status.ok()) {
      if (error_.ok() || index < error_index_) {
        error_ = std::move(status);
        error_index_ = index;
      }
      next_ = count_;
    }
  }
  if (running_ == 0) changed_.notify_all();
}

}  // namespace gavel
