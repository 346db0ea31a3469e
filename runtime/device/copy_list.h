// Copies of large blocks within host memory, by the threads of a WorkerPool and
// past the caches.
#ifndef GAVEL_RUNTIME_DEVICE_COPY_LIST_H_
#define GAVEL_RUNTIME_DEVICE_COPY_LIST_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// A few threads that share a list of tasks: copies, checksums and writes of
// shards. Called by GenerationStore.
//
// Thread-safety: one Run at a time; the threads start at the first that needs
// them and block all signals, so that those reach the host's own threads.
class WorkerPool {
 public:
  using Task = std::function<absl::Status(size_t index)>;

  // `threads` >= 1 counts the caller of Run; with 1 there are no others, and
  // tasks run one after the other in their order.
  explicit WorkerPool(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  // Runs task(0) to task(count - 1), begun in this order, and returns when none
  // runs any more. After an error no further one is begun; of several errors
  // that of the lowest index is returned.
  absl::Status Run(size_t count, const Task& task);

 private:
  void Start();

  const int threads_;
  std::deque<TaskThread> helpers_;  // the threads but the caller of Run
};

// A memcpy for large blocks that nobody reads soon, such as a copy of a model.
// It bypasses the caches, so that training finds its data in them, and memory
// is not read before it is overwritten. Called by CopyList.
//
// Pure, thread-safe.

// The blocks must not overlap. Any alignment and size.
void StreamingCopy(char* to, const char* from, size_t size);

// Many blocks of memory to be copied by several threads at once, large ones in
// pieces and small ones together. Called where the state of a job is copied.
//
// Not thread-safe.
class CopyList {
 public:
  // The bytes that one thread copies at a time: large against the cost of
  // taking a piece, small against the whole.
  static constexpr size_t kPieceBytesMax = size_t{8} << 20;

  // Blocks must not overlap.
  void Add(char* to, const char* from, size_t size);
  size_t size_bytes() const { return size_bytes_; }
  // Copies all of them (see StreamingCopy); the list is empty then.
  absl::Status Run(WorkerPool& pool);

 private:
  struct Piece {
    char* to;
    const char* from;
    size_t size;
  };

  std::vector<Piece> pieces_;
  size_t size_bytes_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_COPY_LIST_H_
