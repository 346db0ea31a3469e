// The host memory that the state of a job passes through on its way to a
// checkpoint, and from and to an accelerator: blocks that are kept, so that
// their pages are there already (copying into fresh pages takes many times as
// long). They are pinned once this process has been on an accelerator, so that
// copies run at full speed; not before, as that needs a context, which takes
// memory of a device that may be another job's.
//
// On a CPU one block is kept. With an accelerator there are two, as a pause may
// come while a checkpoint is written from the first. The limit holds for what
// is pinned: a block beyond it is not pinned, and a second one beyond it is not
// kept, nor one larger than half of the machine's free memory. Copies from and
// to pageable memory go through pieces() (see DeviceCopies).
//
// Fault() and Pin() take long; Take() waits for neither. Called by
// GenerationStore, DeviceCopies, and who moves tensors.
//
// Thread-safe, but for pieces(), which one thread uses at a time.
#ifndef GAVEL_RUNTIME_DEVICE_ARENA_H_
#define GAVEL_RUNTIME_DEVICE_ARENA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// Makes copies between host memory and accelerators run at full speed, and
// beside the host. From any thread.
struct Pinning {
  // False: not possible.
  std::function<bool(void* data, uint64_t size_bytes)> pin;
  std::function<void(void* data)> unpin;
};

// The bytes of all blocks that exist.
struct ArenaUse {
  std::atomic<uint64_t> size_bytes{0};
  std::atomic<uint64_t> pinned_bytes{0};
};

// Memory that begins at a multiple of a page. It is pinned as a whole or not at
// all: CUDA may refuse a copy that spans two pinned pieces, or pinned and other
// memory.
class ArenaBlock {
 public:
  // RESOURCE_EXHAUSTED: there is not as much.
  static absl::StatusOr<std::shared_ptr<ArenaBlock>> Allocate(
      uint64_t size_bytes, std::shared_ptr<ArenaUse> use);
  ~ArenaBlock();
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;

  char* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_pinned() const { return is_pinned_; }

 private:
  friend class Arena;

  ArenaBlock(char* data, uint64_t size_bytes, std::shared_ptr<ArenaUse> use);
  // Does nothing once it is pinned, or where the limit forbids it.
  void Pin(const std::shared_ptr<const Pinning>& pinning,
           uint64_t pinned_bytes_max);
  // Makes its pages be there, by all cores of the job. Nobody else may hold it.
  void Touch() const;

  char* data_;
  uint64_t size_bytes_;
  std::shared_ptr<ArenaUse> use_;
  std::mutex mutex_;                        // of pinning
  std::shared_ptr<const Pinning> pinning_;  // under mutex_
  std::atomic<bool> is_pinned_{false};
};

class Arena {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
  static constexpr size_t kPieces = 2;

  // `pinned_bytes_max`: beside pieces(), which are always allowed; 0: a quarter
  // of what this process may use of host memory.
  explicit Arena(uint64_t pinned_bytes_max = 0);

  // An accelerator is held. The first call counts.
  void AllowPinned(Pinning pinning);

  // Returns a block of at least `size_bytes`, whose content may be anything:
  // one that the arena keeps and nobody else holds, or else a new one. A
  // restored tensor may still use a block; then that block is left to it.
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Take(uint64_t size_bytes);

  // The second block has this size from the next Fault() on: a move of all the
  // state to host memory takes so much.
  void ExpectMove(uint64_t size_bytes);

  // Makes a block of that size, and the second one where it is wanted and the
  // limit allows it, with their pages; then Pin().
  absl::Status Fault(uint64_t size_bytes);
  // Pins the blocks that are kept, if it may.
  void Pin();

  // kPieces pieces of kPieceBytes in one pinned block, for copies from and to
  // memory that is not pinned. Null: pinning is not allowed or not possible.
  std::shared_ptr<ArenaBlock> pieces();

  // The bytes of all blocks that exist, and of the pieces.
  uint64_t size_bytes() const {
    return use_->size_bytes + pieces_use_->size_bytes;
  }
  uint64_t pinned_bytes() const {
    return use_->pinned_bytes + pieces_use_->pinned_bytes;
  }
  uint64_t pinned_bytes_max() const { return pinned_bytes_max_; }
  // The size of the block that was last not pinned or kept; 0: none.
  uint64_t refused_bytes() const { return refused_bytes_; }

 private:
  using Blocks = std::vector<std::shared_ptr<ArenaBlock>>;

  // Under mutex_. The first takes the smallest of the pinned ones, else of all.
  std::shared_ptr<ArenaBlock> FindKept(
      uint64_t size_bytes,
      const std::function<bool(const std::shared_ptr<ArenaBlock>&)>& may) const;
  bool MayKeep(uint64_t size_bytes) const;
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Make(uint64_t size_bytes);

  // With its pages. The second one is another than `beside`, and null where the
  // limit forbids it; `beside` null: the first.
  absl::StatusOr<std::shared_ptr<ArenaBlock>> FaultOne(
      uint64_t size_bytes, const ArenaBlock* beside);

  const uint64_t pinned_bytes_max_;
  const std::shared_ptr<ArenaUse> use_ = std::make_shared<ArenaUse>();
  const std::shared_ptr<ArenaUse> pieces_use_ = std::make_shared<ArenaUse>();
  std::atomic<uint64_t> refused_bytes_{0};
  std::mutex mutex_;
  std::shared_ptr<const Pinning> pinning_;  // null: not allowed
  Blocks blocks_;                           // at most kept_max()
  uint64_t move_bytes_ = 0;
  std::shared_ptr<ArenaBlock> pieces_;
  bool has_no_pieces_ = false;
};

// The host memory that this process may use: the machine's, or less where its
// control group has a limit. `meminfo`, `limit`: /proc/meminfo and the group's
// memory.max. 0: unknown.
uint64_t ParseHostMemory(std::string_view meminfo, std::string_view limit);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_ARENA_H_
