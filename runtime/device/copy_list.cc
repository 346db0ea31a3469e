#include "runtime/device/copy_list.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/device/torch_errors.h"
#include "runtime/files/signals_blocked.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gavel {

WorkerPool::~WorkerPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

absl::Status WorkerPool::Run(size_t count, const Task& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = &task;
  count_ = count;
  next_ = 0;
  error_ = absl::OkStatus();
  if (count > 1) {
    if (workers_.empty()) Start();
    changed_.notify_all();
  }
  TakeTasks(lock);
  changed_.wait(lock, [this] { return running_ == 0; });
  task_ = nullptr;
  return error_;
}

void WorkerPool::Start() {
  const internal::SignalsBlocked blocked;
  // With fewer threads than wished for it only takes longer.
  internal::CatchAsStatus("starting threads", [this] {
    for (int i = 1; i < threads_; ++i) {
      workers_.emplace_back([this] { Work(); });
    }
    return absl::OkStatus();
  }).IgnoreError();
}

void WorkerPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    TakeTasks(lock);
    changed_.wait(lock, [this] {
      return stopping_ || (task_ != nullptr && next_ < count_);
    });
  }
}

void WorkerPool::TakeTasks(std::unique_lock<std::mutex>& lock) {
  while (task_ != nullptr && next_ < count_) {
    const size_t index = next_++;
    const Task& task = *task_;
    ++running_;
    lock.unlock();
    absl::Status status =
        internal::CatchAsStatus("checkpoint", [&] { return task(index); });
    lock.lock();
    --running_;
    if (!status.ok()) {
      if (error_.ok() || index < error_index_) {
        error_ = std::move(status);
        error_index_ = index;
      }
      next_ = count_;
    }
  }
  if (running_ == 0) changed_.notify_all();
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
