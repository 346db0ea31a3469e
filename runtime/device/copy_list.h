// Many blocks of memory to be copied by several threads at once, large ones in
// pieces and small ones together. Called where the state of a job is copied.
//
// Not thread-safe.
#ifndef GAVEL_RUNTIME_DEVICE_COPY_LIST_H_
#define GAVEL_RUNTIME_DEVICE_COPY_LIST_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "runtime/device/worker_pool.h"

namespace gavel {

class CopyList {
 public:
  // What one thread copies at a time: large against the cost of taking it,
  // small against the whole.
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
