// The parts of gavel/data_loader.h and gavel/iterator.h that are no templates:
// the order of samples, the threads that read them, and where batches are.
#include "gavel/data_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gavel/internal/placement.h"
#include "gavel/internal/range_position.h"
#include "gavel/internal/read_ahead.h"
#include "gavel/internal/sharded_order.h"
#include "runtime/device/tensor_hash.h"

namespace gavel {

// ---- The order of samples.

namespace {

// std::uniform_int_distribution differs from library to library; this does not.
// Rejects the few values that would make small results likelier.
uint64_t DrawBelow(uint64_t bound, std::mt19937_64& generator) {
  const uint64_t limit = bound * (UINT64_MAX / bound);
  uint64_t value = generator();
  while (value >= limit) value = generator();
  return value % bound;
}

}  // namespace

ShardedOrder::ShardedOrder(int64_t sample_count, DataLoaderOptions options)
    : sample_count_(std::max<int64_t>(sample_count, 0)), options_(options) {
  options_.batch_size = std::max<int64_t>(options_.batch_size, 1);
  options_.global_batch_size = std::max<int64_t>(options_.global_batch_size, 0);
}

bool ShardedOrder::SetShard(int rank, int world_size) {
  const int64_t global = options_.global_batch_size;
  if (global > 0 && sample_count_ > 0) {
    const int64_t smallest_step =
        options_.drop_last ? global : std::min((global + 1) / 2, sample_count_);
    if (world_size > smallest_step) return false;
  }
  // A worker without a sample would not know of a step that only some workers
  // have one for. Later steps have one for each, see StepSize().
  const int64_t left = sample_count_ - next_index_;
  if (global == 0 && !options_.drop_last && left > 0 && left < world_size) {
    return false;
  }
  rank_ = rank;
  world_size_ = std::max(world_size, 1);
  return true;
}

bool ShardedOrder::SetAccumulation(int64_t batches) {
  if (options_.global_batch_size > 0) return batches == 1;
  accumulation_ = std::max<int64_t>(batches, 1);
  return true;
}

size_t ShardedOrder::MicroBatch(size_t from, size_t sample_count) const {
  const size_t left = sample_count - from;
  if (options_.global_batch_size == 0 && accumulation_ == 1) return left;
  return std::min(left, static_cast<size_t>(options_.batch_size));
}

double ShardedOrder::LossScale(size_t sample_count) const {
  return static_cast<double>(sample_count) * world_size_ /
         static_cast<double>(step_size_);
}

// Samples that all workers together read in the step that begins at `from`; 0
// at the epoch's end.
int64_t ShardedOrder::StepSize(int64_t from) const {
  const int64_t left = sample_count_ - from;
  const int64_t global = options_.global_batch_size;
  const int64_t full =
      global > 0 ? global : options_.batch_size * world_size_ * accumulation_;
  if (options_.drop_last) return left < full ? 0 : full;
  // Independent of the number of workers, and enough for each.
  if (global > 0) return 2 * (left - full) < full ? left : full;
  // Fewer than one each can't be a step: they join this one.
  return left - full < world_size_ ? left : full;
}

bool ShardedOrder::Next(std::vector<size_t>* samples) {
  samples->clear();
  const int64_t size = StepSize(next_index_);
  if (size <= 0) {
    ++epoch_;
    next_index_ = 0;
    return false;
  }
  Permute();
  // Consecutive parts whose sizes differ by at most one.
  const int64_t begin = next_index_ + size * rank_ / world_size_;
  const int64_t end = next_index_ + size * (rank_ + 1) / world_size_;
  samples->assign(permutation_.begin() + begin, permutation_.begin() + end);
  next_index_ += size;
  step_size_ = size;
  return true;
}

int64_t ShardedOrder::StepsFrom(int64_t from) const {
  int64_t steps = 0;
  for (int64_t size = StepSize(from); size > 0; size = StepSize(from)) {
    from += size;
    ++steps;
  }
  return steps;
}

// Fisher and Yates, from (seed, epoch) alone.
void ShardedOrder::Permute() {
  if (permuted_epoch_ == epoch_) return;
  permutation_.resize(static_cast<size_t>(sample_count_));
  std::iota(permutation_.begin(), permutation_.end(), size_t{0});
  permuted_epoch_ = epoch_;
  if (!options_.shuffle) return;
  const uint64_t epoch = static_cast<uint64_t>(epoch_);
  std::seed_seq seeds{static_cast<uint32_t>(options_.seed),
                      static_cast<uint32_t>(options_.seed >> 32),
                      static_cast<uint32_t>(epoch),
                      static_cast<uint32_t>(epoch >> 32)};
  std::mt19937_64 generator(seeds);
  for (size_t i = permutation_.size(); i > 1; --i) {
    std::swap(permutation_[i - 1], permutation_[DrawBelow(i, generator)]);
  }
}

std::string ShardedOrder::SavePosition() const {
  return "epoch " + std::to_string(epoch_) + " next " +
         std::to_string(next_index_) + " samples " +
         std::to_string(sample_count_) + " seed " +
         std::to_string(options_.seed) + " shuffle " +
         std::to_string(options_.shuffle);
}

bool ShardedOrder::LoadPosition(const std::string& position) {
  long long epoch = 0;
  long long next = 0;
  if (std::sscanf(position.c_str(), "epoch %lld next %lld", &epoch, &next) !=
          2 ||
      epoch < 0 || next < 0 || next > sample_count_) {
    return false;
  }
  ShardedOrder loaded = *this;
  loaded.epoch_ = epoch;
  loaded.next_index_ = next;
  if (loaded.SavePosition() != position) return false;
  epoch_ = epoch;
  next_index_ = next;
  return true;
}

void ShardedOrder::RestartEpoch(const std::string& position) {
  long long epoch = 0;
  if (std::sscanf(position.c_str(), "epoch %lld", &epoch) == 1 && epoch >= 0) {
    epoch_ = epoch;
    next_index_ = 0;
  }
}

namespace internal {

// The loaders that one thread has made and that live. A loader may be destroyed
// by another thread.
struct LoaderBook {
  std::mutex mutex;
  std::map<int, LoaderPosition*> loaders;
  std::map<int, std::string> restored;  // which no loader has taken yet
};

namespace {

std::shared_ptr<LoaderBook>& BookOfThread() {
  thread_local auto book = std::make_shared<LoaderBook>();
  return book;
}

}  // namespace

LoaderPosition::LoaderPosition() : book_(BookOfThread()) {
  const std::lock_guard lock(book_->mutex);
  while (book_->loaders.contains(number_)) ++number_;
  book_->loaders[number_] = this;
}

LoaderPosition::LoaderPosition(LoaderPosition&& other) noexcept
    : book_(std::move(other.book_)), number_(other.number_) {
  const std::lock_guard lock(book_->mutex);
  book_->loaders[number_] = this;
}

LoaderPosition::~LoaderPosition() {
  if (book_ == nullptr) return;
  const std::lock_guard lock(book_->mutex);
  book_->loaders.erase(number_);
}

void LoaderPosition::TakeRestored() {
  const std::lock_guard lock(book_->mutex);
  const auto found = book_->restored.find(number_);
  if (found == book_->restored.end()) return;
  if (LoadPosition(found->second)) book_->restored.erase(found);
}

std::map<int, std::string> PositionsOfLoaders() {
  LoaderBook& book = *BookOfThread();
  const std::lock_guard lock(book.mutex);
  std::map<int, std::string> positions;
  for (const auto& [number, loader] : book.loaders) {
    positions[number] = loader->SavePosition();
  }
  return positions;
}

void RestoreLoaders(std::map<int, std::string> positions) {
  LoaderBook& book = *BookOfThread();
  const std::lock_guard lock(book.mutex);
  book.restored = std::move(positions);
  for (const auto& [number, loader] : book.loaders) {
    const auto found = book.restored.find(number);
    if (found == book.restored.end()) continue;
    if (loader->LoadPosition(found->second)) book.restored.erase(found);
  }
}

}  // namespace internal

}  // namespace gavel

namespace gavel::internal {

// ---- The threads that read.

struct ReadingThreads::State {
  struct Calls {
    std::shared_ptr<const std::function<void(size_t)>> call;
    size_t times = 0;
    size_t begun = 0;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Calls> calls;
  bool ended = false;
  std::vector<std::thread> threads;

  ~State() { End(); }
  void End() {
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
  void Run() {
    // With this policy a thread that wakes up does not preempt the training
    // thread, which wakes it.
    const sched_param none = {};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !calls.empty(); });
      if (ended) return;
      const auto call = calls.front().call;
      const size_t i = calls.front().begun++;
      if (i + 1 == calls.front().times) calls.pop_front();
      lock.unlock();
      (*call)(i);
      lock.lock();
    }
  }
};

ReadingThreads::ReadingThreads(int count) : state_(std::make_unique<State>()) {
  state_->threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    try {
      state_->threads.emplace_back([state = state_.get()] { state->Run(); });
    } catch (const std::system_error& error) {
      if (i > 0) return;  // fewer will do
      throw std::runtime_error(
          std::string("can't make a thread that reads ahead: ") + error.what() +
          "; raise the limit of threads, or set reading_threads "
          "to 0");
    }
  }
}

ReadingThreads::~ReadingThreads() = default;

void ReadingThreads::Call(size_t times, std::function<void(size_t)> call) {
  if (times == 0) return;
  auto shared =
      std::make_shared<const std::function<void(size_t)>>(std::move(call));
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back({std::move(shared), times});
  }
  state_->changed.notify_all();
}

void ReadingThreads::Drop() {
  std::deque<State::Calls> dropped;  // destroyed without the lock
  const std::lock_guard lock(state_->mutex);
  dropped.swap(state_->calls);
}

// ---- Batches on devices.

RangePosition::~RangePosition() = default;
BatchOwner::~BatchOwner() = default;

namespace {

// Pinned memory, which the allocator keeps until it was copied: the caller
// continues at once, while from other memory the copy would wait until the
// device has done all steps before. Undefined where there can't be any.
at::Tensor PinnedCopy(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return {};
  try {
    return tensor.pin_memory();
  } catch (const c10::Error&) {
    return {};
  }
}

bool IsDenseOnHost(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided;
}

// The hash covers this much of each tensor, so that large ones take no time.
constexpr uint64_t kHashedBytesMax = uint64_t{1} << 20;

bool AreAlike(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return IsDenseOnHost(tensor) &&
           tensor.scalar_type() == tensors[0].scalar_type();
  });
}

// Undefined: no such memory, or not tensors that it can be for.
at::Tensor StackPinned(const std::vector<at::Tensor>& parts) {
  if (parts.empty() || !AreAlike(parts)) return {};
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  at::Tensor stacked;
  try {
    stacked = at::empty(sizes, parts[0].options().pinned_memory(true));
  } catch (const c10::Error&) {
    return {};
  }
  return at::stack_out(stacked, parts);
}

}  // namespace

uint64_t HashText(const char* data, size_t size_bytes) {
  return HashBytes(data, size_bytes) | 1;  // 0: there is none
}

uint64_t HashTensor(uint64_t before, const at::Tensor& tensor) {
  if (!IsDenseOnHost(tensor)) return before;
  const at::Tensor bytes = tensor.contiguous();
  const uint64_t both[] = {
      before, HashBytes(bytes.data_ptr(),
                        std::min<uint64_t>(bytes.nbytes(), kHashedBytesMax))};
  return HashText(reinterpret_cast<const char*>(both), sizeof(both));
}

void PlaceTensor(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  // One that is pinned already may soon be written to by its owner.
  const bool is_pageable = IsDenseOnHost(tensor) && !tensor.is_pinned();
  const at::Tensor pinned = is_pageable ? PinnedCopy(tensor) : at::Tensor();
  tensor = pinned.defined() ? pinned.to(device, /*non_blocking=*/true)
                            : tensor.to(device);
}

void PinTensor(at::Tensor& tensor) {
  if (!IsDenseOnHost(tensor)) return;
  if (at::Tensor pinned = PinnedCopy(tensor); pinned.defined()) {
    tensor = std::move(pinned);
  }
}

struct CopyStream::State {
  c10::Stream stream;
  c10::Event copied;
};

CopyStream::CopyStream(at::Device device)
    : state_(new State{c10::impl::VirtualGuardImpl(device.type())
                           .getStreamFromGlobalPool(device),
                       c10::Event(device.type())}) {}
CopyStream::~CopyStream() = default;

at::Device CopyStream::device() const { return state_->stream.device(); }

void CopyStream::Copy(at::Tensor& tensor) const {
  if (!IsDenseOnHost(tensor)) return PlaceTensor(tensor, device());
  PinTensor(tensor);
  const c10::StreamGuard guard(state_->stream);
  tensor = tensor.to(device(), /*non_blocking=*/true);
}

void CopyStream::Use(const at::Tensor& copy) {
  if (!copy.defined() || copy.layout() != at::kStrided) return;
  const c10::Stream current =
      c10::impl::VirtualGuardImpl(device().type()).getStream(device());
  state_->copied.record(state_->stream);
  state_->copied.block(current);
  // The memory belongs to the stream of the copies, which must not reuse it
  // before the steps are done with it.
  copy.record_stream(current);
}

at::Tensor StackTensors(const std::vector<at::Tensor>& parts, bool pinned) {
  if (pinned) {
    if (at::Tensor stacked = StackPinned(parts); stacked.defined()) {
      return stacked;
    }
  }
  return at::stack(parts);
}

}  // namespace gavel::internal
