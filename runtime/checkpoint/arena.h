// The host memory that a checkpoint passes through: one block that is kept from
// save to save, so that its pages are there already (copying into fresh pages
// takes many times as long). Pinned once this process has been on an
// accelerator, so that copies from it run at full speed; not before, as that
// needs a context, which takes memory of a device that may be another job's.
// Pinning takes as long as faulting in: Fault() and Pin() do it, Take() does
// not wait for it. Called by GenerationStore.
//
// Thread-safety: an Arena by one thread at a time, but for AllowPinned(); its
// blocks by any.
#ifndef GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
#define GAVEL_RUNTIME_CHECKPOINT_ARENA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/worker_pool.h"

namespace gavel {

// Makes copies between host memory and accelerators run at full speed, and
// beside the host. From any thread.
struct Pinning {
  // False: not possible.
  std::function<bool(void* data, uint64_t size_bytes)> pin;
  std::function<void(void* data)> unpin;
};

// Memory that begins at a multiple of kDirectAlignmentBytes.
class ArenaBlock {
 public:
  // RESOURCE_EXHAUSTED: there is not as much.
  static absl::StatusOr<std::shared_ptr<ArenaBlock>> Allocate(
      uint64_t size_bytes);
  ~ArenaBlock();
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  // As a whole: CUDA may refuse a copy that spans two pinned pieces, or pinned
  // and other memory. Does nothing once it is pinned.
  void Pin(const std::shared_ptr<const Pinning>& pinning);

  char* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_pinned() const { return is_pinned_; }

 private:
  ArenaBlock(char* data, uint64_t size_bytes)
      : data_(data), size_bytes_(size_bytes) {}

  char* data_;
  uint64_t size_bytes_;
  std::shared_ptr<const Pinning> pinning_;
  std::atomic<bool> is_pinned_{false};
};

class Arena {
 public:
  // An accelerator is held: from any thread.
  void AllowPinned(Pinning pinning);

  // At least `size_bytes`, with what was in it before or anything else. The
  // block of the last time when it is large enough, not far larger, and nobody
  // else holds it (a restored tensor may still look into it: then it is left to
  // that).
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Take(uint64_t size_bytes);

  // Takes that much, makes its pages be there, and pins them if it may.
  absl::Status Fault(uint64_t size_bytes, WorkerPool& pool);
  // Pins what is held, if it may.
  void Pin();

  // What is held at present.
  uint64_t size_bytes() const { return block_ ? block_->size_bytes() : 0; }

 private:
  std::mutex mutex_;
  std::shared_ptr<const Pinning> pinning_;  // under mutex_; null: not allowed
  std::shared_ptr<ArenaBlock> block_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_ARENA_H_
