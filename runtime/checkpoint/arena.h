// The host memory that a checkpoint passes through: one block that is kept from
// save to save, so that its pages are there already (copying into fresh pages
// takes many times as long). Pinned once this process has been on a GPU, so
// that copies from it run at full speed; not before, as pinned memory needs a
// CUDA context, which takes memory of a GPU that may be another job's. Called
// by GenerationStore.
//
// Thread-safety: an Arena by one thread at a time, but for AllowPinned(); its
// blocks by any.
#ifndef GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
#define GAVEL_RUNTIME_CHECKPOINT_ARENA_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/worker_pool.h"

namespace gavel {

// Memory that begins at a multiple of kDirectAlignmentBytes.
class ArenaBlock {
 public:
  // A mapping; or `pinned`, which has `size_bytes` and room to align them.
  // RESOURCE_EXHAUSTED: there is not as much.
  static absl::StatusOr<std::shared_ptr<ArenaBlock>> Allocate(
      uint64_t size_bytes, at::Tensor pinned = {});
  ~ArenaBlock();
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  char* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool pinned() const { return pinned_.defined(); }

 private:
  ArenaBlock(at::Tensor pinned, char* data, uint64_t size_bytes)
      : pinned_(std::move(pinned)), data_(data), size_bytes_(size_bytes) {}

  at::Tensor pinned_;  // owns `data_` if defined, else it is a mapping
  char* data_;
  uint64_t size_bytes_;
};

// Bytes in pinned memory; undefined: there is none.
using PinnedAllocator = std::function<at::Tensor(uint64_t size_bytes)>;
at::Tensor AllocatePinned(uint64_t size_bytes);

class Arena {
 public:
  explicit Arena(PinnedAllocator allocate_pinned = AllocatePinned)
      : allocate_pinned_(std::move(allocate_pinned)) {}

  // An accelerator is held that is a GPU: blocks are pinned from the next
  // Take() on, while there is pinned memory. From any thread.
  void AllowPinned() { may_pin_ = true; }

  // At least `size_bytes`, with what was in it before or anything else. The
  // block of the last time when it is large enough, pinned if it may be, and
  // nobody else holds it (a restored tensor may still look into it: then it is
  // left to that).
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Take(uint64_t size_bytes);

  // Takes that much and makes its pages be there.
  absl::Status Fault(uint64_t size_bytes, WorkerPool& pool);

  // What is held at present.
  uint64_t size_bytes() const { return block_ ? block_->size_bytes() : 0; }

 private:
  const PinnedAllocator allocate_pinned_;
  std::atomic<bool> may_pin_{false};
  bool cannot_pin_ = false;  // has failed to
  std::shared_ptr<ArenaBlock> block_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
