// Host memory for the state of a job: the arena that it passes through, and
// copies of large blocks by several threads.
#ifndef GAVEL_RUNTIME_DEVICE_HOST_MEMORY_H_
#define GAVEL_RUNTIME_DEVICE_HOST_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// The host memory through which the state of a job passes to a checkpoint, and
// to and from an accelerator. The arena keeps its blocks, so that their pages
// exist already: copying into fresh pages takes many times as long. Blocks are
// pinned once this process has been on an accelerator, so that copies run at
// full speed. They are not pinned earlier, because pinning needs a context,
// which takes memory of a device that may be another job's.
//
// On a CPU the arena keeps one block. With an accelerator it keeps two, because
// a pause may come while a checkpoint is written from the first. The limit is
// on pinned memory. A block beyond the limit is not pinned. A second block is
// not kept if both together exceed the limit, and not made by Fault() if it
// exceeds half of the machine's free memory. Copies from and to pageable memory
// go through pieces() (see DeviceCopies).
//
// Fault() and Pin() take long; Take() waits for neither. Called by
// GenerationStore, DeviceCopies and the code that moves tensors.
//
// Thread-safe, except that only one thread at a time may use pieces().

// Pins host memory, so that copies between it and accelerators run at full
// speed and in parallel with the host. Callable from any thread.
struct Pinning {
  // Returns false if the memory cannot be pinned.
  std::function<bool(void* data, uint64_t size_bytes)> pin;
  std::function<void(void* data)> unpin;
};

// Counts the bytes of all blocks that exist.
struct ArenaUse {
  std::atomic<uint64_t> size_bytes{0};
  std::atomic<uint64_t> pinned_bytes{0};
};

// Page-aligned memory. It is pinned as a whole or not at all, because CUDA may
// refuse a copy that spans two pinned pieces, or pinned and pageable memory.
class ArenaBlock {
 public:
  // RESOURCE_EXHAUSTED: the system does not have enough memory.
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
  // Does nothing if the block is pinned already, or if the limit forbids it.
  void Pin(const std::shared_ptr<const Pinning>& pinning,
           uint64_t pinned_bytes_max);
  // Faults in the pages, with a thread for each core, up to a limit. The caller
  // must be the only holder of the block.
  void Touch() const;

  char* data_;
  uint64_t size_bytes_;
  std::shared_ptr<ArenaUse> use_;
  std::mutex mutex_;                        // guards pinning
  std::shared_ptr<const Pinning> pinning_;  // under mutex_
  std::atomic<bool> is_pinned_{false};
};

class Arena {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
  static constexpr size_t kPieces = 2;

  // `pinned_bytes_max` limits the pinned bytes of the blocks; pieces() do not
  // count. 0: a quarter of the host memory that this process may use.
  explicit Arena(uint64_t pinned_bytes_max = 0);

  // Allows pinning, once this process holds an accelerator. Only the first call
  // has an effect.
  void AllowPinned(Pinning pinning);

  // Returns a block of at least `size_bytes` with any content: one that the
  // arena keeps and nothing else holds, or else a new one. A block that a
  // restored tensor still uses is left to that tensor.
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Take(uint64_t size_bytes);

  // Sets the size that the second block has from the next Fault() on: the host
  // memory that a move of all the state takes.
  void ExpectMove(uint64_t size_bytes);

  // Makes a block of that size, and the second one if it is wanted and the
  // limit allows it. Faults in their pages, then calls Pin().
  absl::Status Fault(uint64_t size_bytes);
  // Pins the blocks that are kept, if pinning is allowed.
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
  // The size of the last block that was refused pinning or keeping; 0: none.
  uint64_t refused_bytes() const { return refused_bytes_; }

 private:
  using Blocks = std::vector<std::shared_ptr<ArenaBlock>>;

  // These need mutex_. FindKept returns the smallest of the pinned blocks that
  // fit, or else the smallest of all that fit.
  std::shared_ptr<ArenaBlock> FindKept(
      uint64_t size_bytes,
      const std::function<bool(const std::shared_ptr<ArenaBlock>&)>& may) const;
  bool MayKeep(uint64_t size_bytes) const;
  absl::StatusOr<std::shared_ptr<ArenaBlock>> Make(uint64_t size_bytes);

  // Returns a block with its pages faulted in, or null if the arena may not
  // keep another one. `beside` is null for the first block. For the second it
  // is the first one, and the result is another block.
  absl::StatusOr<std::shared_ptr<ArenaBlock>> FaultOne(
      uint64_t size_bytes, const ArenaBlock* beside);

  const uint64_t pinned_bytes_max_;
  const std::shared_ptr<ArenaUse> use_ = std::make_shared<ArenaUse>();
  const std::shared_ptr<ArenaUse> pieces_use_ = std::make_shared<ArenaUse>();
  std::atomic<uint64_t> refused_bytes_{0};
  std::mutex mutex_;
  std::shared_ptr<const Pinning> pinning_;  // null: pinning is not allowed
  Blocks blocks_;                           // at most two
  uint64_t move_bytes_ = 0;
  std::shared_ptr<ArenaBlock> pieces_;
  bool has_no_pieces_ = false;
};

// The host memory that this process may use: the machine's, or less if its
// control group has a limit. `meminfo` and `limit` are the texts of
// /proc/meminfo and the group's memory.max. 0: unknown.
uint64_t ParseHostMemory(std::string_view meminfo, std::string_view limit);

// Copies of large blocks within host memory, by the threads of a WorkerPool and
// past the caches.

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

#endif  // GAVEL_RUNTIME_DEVICE_HOST_MEMORY_H_
