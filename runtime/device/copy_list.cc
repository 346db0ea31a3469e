#include "runtime/device/copy_list.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/device/torch_errors.h"
#include "runtime/files/signals_blocked.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gavel {
namespace {

// The tasks of one Run.
struct TaskList {
  const WorkerPool::Task& task;
  const size_t count;
  std::mutex mutex = {};  // guards all below
  size_t next = 0;
  size_t error_index = 0;
  absl::Status error = {};

  // Runs tasks until none is left to begin.
  void Take() {
    std::unique_lock<std::mutex> lock(mutex);
    while (next < count) {
      const size_t index = next++;
      lock.unlock();
      absl::Status status =
          internal::CatchAsStatus("checkpoint", [&] { return task(index); });
      lock.lock();
      if (status.ok()) continue;
      if (error.ok() || index < error_index) {
        error = std::move(status);
        error_index = index;
      }
      next = count;
    }
  }
};

}  // namespace

absl::Status WorkerPool::Run(size_t count, const Task& task) {
  TaskList tasks{task, count};
  if (count > 1) {
    if (helpers_.empty()) Start();
    for (TaskThread& helper : helpers_) helper.Post([&] { tasks.Take(); });
  }
  tasks.Take();
  // A helper that has not begun by now is not waited for.
  for (TaskThread& helper : helpers_) helper.Drop();
  for (TaskThread& helper : helpers_) helper.WaitUntilIdle();
  return tasks.error;
}

void WorkerPool::Start() {
  const internal::SignalsBlocked blocked;
  // With fewer threads than wished for it only takes longer.
  internal::CatchAsStatus("starting threads", [this] {
    for (int i = 1; i < threads_; ++i) helpers_.emplace_back();
    return absl::OkStatus();
  }).IgnoreError();
}

namespace {

#ifdef __SSE2__

constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;
// Pages that are copied side by side, a line of each in turn: more of them are
// under way at once than one page's prefetcher would ask for.
constexpr size_t kPages = 4;
constexpr size_t kBlockBytes = kPages * kPageBytes;
constexpr size_t kPrefetchBytes = 512;

// `to` is a multiple of 16.
void CopyLine(char* to, const char* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

void CopyBlock(char* to, const char* from) {
  for (size_t line = 0; line < kPageBytes; line += kLineBytes) {
    for (size_t page = 0; page < kBlockBytes; page += kPageBytes) {
      const size_t offset = page + line;
      // A hint only: it may point behind the block.
      _mm_prefetch(from + offset + kPrefetchBytes, _MM_HINT_T0);
      CopyLine(to + offset, from + offset);
    }
  }
}

#endif

}  // namespace

void StreamingCopy(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t head = std::min(size, (kLineBytes - misaligned) % kLineBytes);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; size - done >= kBlockBytes; done += kBlockBytes) {
    CopyBlock(to + done, from + done);
  }
  // Streaming stores are not ordered with others: another thread may read next.
  _mm_sfence();
  std::memcpy(to + done, from + done, size - done);
#else
  std::memcpy(to, from, size);
#endif
}

void CopyList::Add(char* to, const char* from, size_t size) {
  for (size_t begin = 0; begin < size; begin += kPieceBytesMax) {
    pieces_.push_back(
        {to + begin, from + begin, std::min(kPieceBytesMax, size - begin)});
  }
  size_bytes_ += size;
}

absl::Status CopyList::Run(WorkerPool& pool) {
  // Neighbours together up to kPieceBytesMax, so that small ones cost little.
  std::vector<size_t> groups = {0};
  size_t size = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (size > 0 && size + pieces_[i].size > kPieceBytesMax) {
      groups.push_back(i);
      size = 0;
    }
    size += pieces_[i].size;
  }
  groups.push_back(pieces_.size());
  absl::Status status = pool.Run(groups.size() - 1, [&](size_t group) {
    for (size_t i = groups[group]; i < groups[group + 1]; ++i) {
      StreamingCopy(pieces_[i].to, pieces_[i].from, pieces_[i].size);
    }
    return absl::OkStatus();
  });
  pieces_.clear();
  size_bytes_ = 0;
  return status;
}

}  // namespace gavel
