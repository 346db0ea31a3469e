// The host memory that a checkpoint passes through: one block that is kept from
// save to save, so that its pages are there already (copying into fresh pages
// takes many times as long). Pinned where LibTorch sees a GPU, so that copies
// from it run at full speed. Called by GenerationStore.
//
// Thread-safety: an Arena by one thread at a time, its blocks by any.
#ifndef GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
#define GAVEL_RUNTIME_CHECKPOINT_ARENA_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/worker_pool.h"

namespace gavel {

// Memory that begins at a multiple of kDirectAlignmentBytes.
class ArenaBlock {
 public:
  // RESOURCE_EXHAUSTED: there is not as much.
  static absl::StatusOr<std::shared_ptr<ArenaBlock>> Allocate(
      uint64_t size_bytes);
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

class Arena {
 public:
  // At least `size_bytes`, with what was in it before or anything else. The
  // block of the last time when it is large enough and nobody else holds it (a
  // restored tensor may still look into it: then it is left to that).
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Take(uint64_t size_bytes);

  // Takes that much and makes its pages be there.
  absl::Status Fault(uint64_t size_bytes, WorkerPool& pool);

  // Gives the memory back.
  void Release() { block_.reset(); }

  // What is held at present.
  uint64_t size_bytes() const { return block_ ? block_->size_bytes() : 0; }

 private:
  std::shared_ptr<ArenaBlock> block_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
