// A few threads that share a list of tasks: copies, checksums and writes of
// shards. Called by GenerationStore.
//
// Thread-safety: one Run at a time; the threads start at the first that needs
// them and block all signals, so that those reach the host's own threads.
#ifndef GAVEL_RUNTIME_DEVICE_WORKER_POOL_H_
#define GAVEL_RUNTIME_DEVICE_WORKER_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace gavel {

class WorkerPool {
 public:
  using Task = std::function<absl::Status(size_t index)>;

  // `threads` >= 1 counts the caller of Run; with 1 there are no others, and
  // tasks run one after the other in their order.
  explicit WorkerPool(int threads) : threads_(threads) {}
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_; }

  // Runs task(0) to task(count - 1), begun in this order, and returns when none
  // runs any more. After an error no further one is begun; of several errors
  // that of the lowest index is returned.
  absl::Status Run(size_t count, const Task& task);

 private:
  void Work();
  // Takes tasks until there are none. Called and returns with `lock` held.
  void TakeTasks(std::unique_lock<std::mutex>& lock);
  void Start();

  const int threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> workers_;
  bool stopping_ = false;
  // Of the present Run.
  const Task* task_ = nullptr;
  size_t count_ = 0;
  size_t next_ = 0;
  size_t running_ = 0;
  size_t error_index_ = 0;
  absl::Status error_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_WORKER_POOL_H_
