#include "gavel/internal/sharded_order.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>

#include "gavel/internal/loader_position.h"

namespace gavel {
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
  // Of a step that has a sample for some workers only, the others would not
  // know. Later ones have one for each, see StepSize().
  const int64_t left = sample_count_ - next_index_;
  if (global == 0 && !options_.drop_last && left > 0 && left < world_size) {
    return false;
  }
  rank_ = rank;
  world_size_ = std::max(world_size, 1);
  return true;
}

size_t ShardedOrder::MicroBatch(size_t from, size_t sample_count) const {
  const size_t left = sample_count - from;
  if (options_.global_batch_size == 0) return left;
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
  const int64_t full = global > 0 ? global : options_.batch_size * world_size_;
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

int64_t ShardedOrder::StepsPerEpoch() const {
  int64_t steps = 0;
  int64_t from = 0;
  for (int64_t size = StepSize(0); size > 0; size = StepSize(from)) {
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
