#include "runtime/checkpoint/arena.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.h"
#include "runtime/generation/file_system.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

// A huge page of x86-64: fewer faults, and fewer misses in copies.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kFaultSliceBytes = uint64_t{16} << 20;

uint64_t RoundUp(uint64_t size_bytes) {
  const uint64_t unit =
      size_bytes < kHugePageBytes ? kDirectAlignmentBytes : kHugePageBytes;
  return (std::max<uint64_t>(size_bytes, 1) + unit - 1) / unit * unit;
}

}  // namespace

at::Tensor AllocatePinned(uint64_t size_bytes) {
  at::Tensor memory;
  // Without pinned memory copies are slower, and all else is as it was.
  internal::CatchAsStatus("pinned memory", [&] {
    if (at::hasCUDA()) {
      memory =
          at::empty({static_cast<int64_t>(size_bytes)},
                    at::device(at::kCPU).dtype(at::kByte).pinned_memory(true));
    }
    return absl::OkStatus();
  }).IgnoreError();
  return memory;
}

absl::StatusOr<std::shared_ptr<ArenaBlock>> ArenaBlock::Allocate(
    uint64_t size_bytes, at::Tensor pinned) {
  const uint64_t size = RoundUp(size_bytes);
  if (pinned.defined()) {
    const uint64_t begin =
        reinterpret_cast<uintptr_t>(pinned.mutable_data_ptr());
    return std::shared_ptr<ArenaBlock>(new ArenaBlock(
        std::move(pinned), reinterpret_cast<char*>(AlignUp(begin)), size));
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("checkpoints need ", size, " bytes of host memory: ",
               std::strerror(errno), "; lower the memory use of this server"));
  }
  if (size >= kHugePageBytes) ::madvise(memory, size, MADV_HUGEPAGE);
  return std::shared_ptr<ArenaBlock>(
      new ArenaBlock(at::Tensor(), static_cast<char*>(memory), size));
}

ArenaBlock::~ArenaBlock() {
  if (!pinned_.defined()) ::munmap(data_, size_bytes_);
}

absl::StatusOr<std::shared_ptr<ArenaBlock>> Arena::Take(uint64_t size_bytes) {
  const bool pins = may_pin_ && !cannot_pin_;
  if (block_ != nullptr && block_.use_count() == 1 &&
      block_->size_bytes() >= size_bytes && (block_->pinned() || !pins)) {
    return block_;
  }
  block_.reset();  // first, so that both need not fit
  at::Tensor pinned;
  if (pins) {
    pinned = allocate_pinned_(RoundUp(size_bytes) + kDirectAlignmentBytes);
    cannot_pin_ = !pinned.defined();
  }
  absl::StatusOr<std::shared_ptr<ArenaBlock>> block =
      ArenaBlock::Allocate(size_bytes, std::move(pinned));
  if (block.ok()) block_ = *block;
  return block;
}

absl::Status Arena::Fault(uint64_t size_bytes, WorkerPool& pool) {
  absl::StatusOr<std::shared_ptr<ArenaBlock>> block = Take(size_bytes);
  if (!block.ok()) return block.status();
  const uint64_t size = (*block)->size_bytes();
  char* const data = (*block)->data();
  const size_t slices = (size + kFaultSliceBytes - 1) / kFaultSliceBytes;
  return pool.Run(slices, [data, size](size_t slice) {
    const uint64_t begin = slice * kFaultSliceBytes;
    const uint64_t end = std::min(size, begin + kFaultSliceBytes);
    // Writing what is there faults a page in, and changes nothing.
    for (uint64_t i = begin; i < end; i += kDirectAlignmentBytes) {
      volatile char* page = data + i;
      *page = *page;
    }
    return absl::OkStatus();
  });
}

}  // namespace gavel
