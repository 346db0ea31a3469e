#include "runtime/checkpoint/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/file_system.h"

namespace gavel {
namespace {

// A huge page of x86-64: fewer faults, and fewer misses in copies.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kFaultSliceBytes = uint64_t{16} << 20;
// A block that is larger than twice what is needed, and than this, is given
// back.
constexpr uint64_t kKeptBytesMin = uint64_t{64} << 20;

uint64_t RoundUp(uint64_t size_bytes) {
  const uint64_t unit =
      size_bytes < kHugePageBytes ? kDirectAlignmentBytes : kHugePageBytes;
  return (std::max<uint64_t>(size_bytes, 1) + unit - 1) / unit * unit;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ArenaBlock>> ArenaBlock::Allocate(
    uint64_t size_bytes) {
  const uint64_t size = RoundUp(size_bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("checkpoints need ", size, " bytes of host memory: ",
               std::strerror(errno), "; lower the memory use of this server"));
  }
  if (size >= kHugePageBytes) ::madvise(memory, size, MADV_HUGEPAGE);
  return std::shared_ptr<ArenaBlock>(
      new ArenaBlock(static_cast<char*>(memory), size));
}

void ArenaBlock::Pin(const std::shared_ptr<const Pinning>& pinning) {
  if (pinning == nullptr || is_pinned_) return;
  pinning_ = pinning;
  is_pinned_ = pinning_->pin(data_, size_bytes_);
}

ArenaBlock::~ArenaBlock() {
  if (is_pinned_) pinning_->unpin(data_);
  ::munmap(data_, size_bytes_);
}

void Arena::AllowPinned(Pinning pinning) {
  const std::lock_guard lock(mutex_);
  if (pinning_ == nullptr) {
    pinning_ = std::make_shared<const Pinning>(std::move(pinning));
  }
}

void Arena::Pin() {
  std::shared_ptr<const Pinning> pinning;
  {
    const std::lock_guard lock(mutex_);
    pinning = pinning_;
  }
  if (block_) block_->Pin(pinning);
}

absl::StatusOr<std::shared_ptr<ArenaBlock>> Arena::Take(uint64_t size_bytes) {
  if (block_ != nullptr && block_.use_count() == 1 &&
      block_->size_bytes() >= size_bytes &&
      block_->size_bytes() <=
          std::max(kKeptBytesMin, 2 * RoundUp(size_bytes))) {
    return block_;
  }
  block_.reset();  // first, so that both need not fit
  absl::StatusOr<std::shared_ptr<ArenaBlock>> block =
      ArenaBlock::Allocate(size_bytes);
  if (block.ok()) block_ = *block;
  return block;
}

absl::Status Arena::Fault(uint64_t size_bytes, WorkerPool& pool) {
  absl::StatusOr<std::shared_ptr<ArenaBlock>> block = Take(size_bytes);
  if (!block.ok()) return block.status();
  const uint64_t size = (*block)->size_bytes();
  char* const data = (*block)->data();
  const size_t slices = (size + kFaultSliceBytes - 1) / kFaultSliceBytes;
  GAVEL_RETURN_IF_ERROR(pool.Run(slices, [data, size](size_t slice) {
    const uint64_t begin = slice * kFaultSliceBytes;
    const uint64_t end = std::min(size, begin + kFaultSliceBytes);
    // Writing what is there faults a page in, and changes nothing.
    for (uint64_t i = begin; i < end; i += kDirectAlignmentBytes) {
      volatile char* page = data + i;
      *page = *page;
    }
    return absl::OkStatus();
  }));
  Pin();
  return absl::OkStatus();
}

}  // namespace gavel
