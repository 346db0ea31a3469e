#include "runtime/device/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/worker_thread.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gavel {
namespace {

constexpr uint64_t kPageBytes = 4096;
// A huge page of x86-64: fewer faults, and fewer misses in copies.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kTouchedSliceBytes = uint64_t{16} << 20;
constexpr int kTouchThreadsMax = 32;
// A block larger than this, and than twice the size needed, is given back.
constexpr uint64_t kKeptBytesMin = uint64_t{64} << 20;
// This part of the memory that the process may use is pinned at most.
constexpr uint64_t kPinnedFraction = 4;
constexpr uint64_t kUnknownMemoryBytes = uint64_t{4} << 30;
// A second block takes at most this part of the machine's free memory.
constexpr uint64_t kFreeFraction = 2;
constexpr std::string_view kTotal = "MemTotal:";
constexpr std::string_view kAvailable = "MemAvailable:";

using Block = std::shared_ptr<ArenaBlock>;

uint64_t RoundUp(uint64_t size_bytes) {
  const uint64_t unit =
      size_bytes < kHugePageBytes ? kPageBytes : kHugePageBytes;
  return (std::max<uint64_t>(size_bytes, 1) + unit - 1) / unit * unit;
}

bool IsFarTooLarge(const Block& block, uint64_t needed_bytes) {
  return block->size_bytes() >
         std::max(kKeptBytesMin, 2 * RoundUp(needed_bytes));
}

bool IsFree(const Block& block) { return block.use_count() == 1; }
bool IsInUse(const Block& block) { return !IsFree(block); }

// 0: none, as "max" is.
uint64_t ReadNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// In bytes; 0: not there.
uint64_t ReadEntry(std::string_view meminfo, std::string_view name) {
  const size_t begin = meminfo.find(name);
  if (begin == std::string_view::npos) return 0;
  return ReadNumber(meminfo.substr(begin + name.size())) << 10;
}

bool HasRoomFor(uint64_t size_bytes) {
  const uint64_t available_bytes =
      ReadEntry(ReadText("/proc/meminfo"), kAvailable);
  return available_bytes == 0 || size_bytes <= available_bytes / kFreeFraction;
}

// The lowest limit of the control groups that this process is in, by the
// unified hierarchy.
uint64_t HostMemory() {
  const std::string meminfo = ReadText("/proc/meminfo");
  std::string group = ReadText("/proc/self/cgroup");
  const size_t begin = group.find("0::");
  group = begin == std::string::npos ? "" : group.substr(begin + 3);
  group = group.substr(0, group.find('\n'));
  uint64_t lowest = ParseHostMemory(meminfo, "");
  while (true) {
    lowest = std::min(
        lowest,
        ParseHostMemory(
            meminfo, ReadText(StrCat("/sys/fs/cgroup", group, "/memory.max"))));
    if (group.empty()) return lowest > 0 ? lowest : kUnknownMemoryBytes;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

uint64_t ParseHostMemory(std::string_view meminfo, std::string_view limit) {
  const uint64_t total = ReadEntry(meminfo, kTotal);
  const uint64_t most = ReadNumber(limit);
  if (total == 0 || most == 0) return std::max(total, most);
  return std::min(total, most);
}

// ---- a block

ArenaBlock::ArenaBlock(char* data, uint64_t size_bytes,
                       std::shared_ptr<ArenaUse> use)
    : data_(data), size_bytes_(size_bytes), use_(std::move(use)) {
  use_->size_bytes += size_bytes_;
}

absl::StatusOr<Block> ArenaBlock::Allocate(uint64_t size_bytes,
                                           std::shared_ptr<ArenaUse> use) {
  const uint64_t size = RoundUp(size_bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("checkpoints and pauses need ", size, " bytes of host memory: ",
               std::strerror(errno), "; lower the memory use of this server"));
  }
  if (size >= kHugePageBytes) ::madvise(memory, size, MADV_HUGEPAGE);
  return Block(
      new ArenaBlock(static_cast<char*>(memory), size, std::move(use)));
}

void ArenaBlock::Pin(const std::shared_ptr<const Pinning>& pinning,
                     uint64_t pinned_bytes_max) {
  const std::lock_guard lock(mutex_);
  if (pinning == nullptr || is_pinned_) return;
  std::atomic<uint64_t>& pinned_bytes = use_->pinned_bytes;
  const bool is_allowed =
      pinned_bytes.fetch_add(size_bytes_) + size_bytes_ <= pinned_bytes_max;
  pinning_ = pinning;
  is_pinned_ = is_allowed && pinning_->pin(data_, size_bytes_);
  if (!is_pinned_) pinned_bytes -= size_bytes_;
}

void ArenaBlock::Touch() const {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  WorkerPool pool(std::clamp(cores, 1, kTouchThreadsMax));
  const size_t slices =
      (size_bytes_ + kTouchedSliceBytes - 1) / kTouchedSliceBytes;
  // A page that can't be touched now is touched by the copy.
  pool.Run(slices,
           [this](size_t slice) {
             const uint64_t begin = slice * kTouchedSliceBytes;
             const uint64_t end =
                 std::min(size_bytes_, begin + kTouchedSliceBytes);
             for (uint64_t i = begin; i < end; i += kPageBytes) {
               *static_cast<volatile char*>(data_ + i) = 0;
             }
             return absl::OkStatus();
           })
      .IgnoreError();
}

ArenaBlock::~ArenaBlock() {
  if (is_pinned_) {
    pinning_->unpin(data_);
    use_->pinned_bytes -= size_bytes_;
  }
  use_->size_bytes -= size_bytes_;
  ::munmap(data_, size_bytes_);
}

// ---- those that are kept

Arena::Arena(uint64_t pinned_bytes_max)
    : pinned_bytes_max_(pinned_bytes_max > 0 ? pinned_bytes_max
                                             : HostMemory() / kPinnedFraction) {
}

void Arena::AllowPinned(Pinning pinning) {
  const std::lock_guard lock(mutex_);
  if (pinning_ == nullptr) {
    pinning_ = std::make_shared<const Pinning>(std::move(pinning));
  }
}

void Arena::ExpectMove(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  move_bytes_ = size_bytes;
}

Block Arena::FindKept(uint64_t size_bytes,
                      const std::function<bool(const Block&)>& may) const {
  Block best;
  for (const Block& block : blocks_) {
    if (block->size_bytes() < size_bytes || !may(block)) continue;
    // Without an accelerator nobody wants the rest of it.
    if (pinning_ == nullptr && IsFarTooLarge(block, size_bytes)) continue;
    const auto rank = [](const Block& one) {
      return std::pair(!one->is_pinned(), one->size_bytes());
    };
    if (best == nullptr || rank(block) < rank(best)) best = block;
  }
  return best;
}

bool Arena::MayKeep(uint64_t size_bytes) const {
  if (blocks_.empty()) return true;
  if (pinning_ == nullptr || blocks_.size() > 1) return false;
  return blocks_[0]->size_bytes() + size_bytes <= pinned_bytes_max_;
}

absl::StatusOr<Block> Arena::Make(uint64_t size_bytes) {
  std::erase_if(blocks_, IsFree);  // first, so that both need not fit
  absl::StatusOr<Block> block = ArenaBlock::Allocate(size_bytes, use_);
  if (!block.ok()) return block;
  // The others are in use. On an accelerator they come back, and are pinned.
  if (pinning_ == nullptr) blocks_.clear();
  if (MayKeep((*block)->size_bytes())) blocks_.push_back(*block);
  return block;
}

absl::StatusOr<Block> Arena::Take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  Block kept = FindKept(size_bytes, IsFree);
  if (kept != nullptr) return kept;
  return Make(size_bytes);
}

absl::StatusOr<Block> Arena::FaultOne(uint64_t size_bytes,
                                      const ArenaBlock* beside) {
  absl::StatusOr<Block> made;
  {
    const std::lock_guard lock(mutex_);
    Block kept = FindKept(size_bytes, [beside](const Block& block) {
      return block.get() != beside;
    });
    if (kept != nullptr) return kept;
    const bool is_full = std::ranges::count_if(blocks_, IsInUse) > 1;
    if (is_full) return nullptr;
    if (beside != nullptr &&
        (beside->size_bytes() + RoundUp(size_bytes) > pinned_bytes_max_ ||
         !HasRoomFor(RoundUp(size_bytes)))) {
      refused_bytes_ = RoundUp(size_bytes);
      return nullptr;
    }
    made = Make(size_bytes);
    const bool is_kept =
        made.ok() && !blocks_.empty() && blocks_.back() == *made;
    if (made.ok() && !is_kept) return nullptr;
  }
  if (made.ok()) (*made)->Touch();
  return made;
}

absl::Status Arena::Fault(uint64_t size_bytes) {
  uint64_t move_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (pinning_ != nullptr) move_bytes = move_bytes_;
    std::erase_if(blocks_, [&](const Block& block) {
      return IsFree(block) &&
             IsFarTooLarge(block, std::max(size_bytes, move_bytes));
    });
  }
  GAVEL_ASSIGN_OR_RETURN(const Block first, FaultOne(size_bytes, nullptr));
  // A pause can do without the second one.
  if (first != nullptr && move_bytes > 0) {
    FaultOne(move_bytes, first.get()).status().IgnoreError();
  }
  Pin();
  return absl::OkStatus();
}

void Arena::Pin() {
  Blocks blocks;
  std::shared_ptr<const Pinning> pinning;
  {
    const std::lock_guard lock(mutex_);
    blocks = blocks_;
    pinning = pinning_;
  }
  for (const Block& block : blocks) {
    block->Pin(pinning, pinned_bytes_max_);
    if (pinning != nullptr && !block->is_pinned()) {
      refused_bytes_ = block->size_bytes();
    }
  }
}

Block Arena::pieces() {
  std::shared_ptr<const Pinning> pinning;
  {
    const std::lock_guard lock(mutex_);
    if (pinning_ == nullptr || has_no_pieces_ || pieces_ != nullptr) {
      return pieces_;
    }
    pinning = pinning_;
  }
  absl::StatusOr<Block> made =
      ArenaBlock::Allocate(kPieces * kPieceBytes, pieces_use_);
  if (made.ok()) {
    (*made)->Touch();
    (*made)->Pin(pinning, ~uint64_t{0});
  }
  const std::lock_guard lock(mutex_);
  has_no_pieces_ = !made.ok() || !(*made)->is_pinned();
  if (!has_no_pieces_) pieces_ = *made;
  return pieces_;
}

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
