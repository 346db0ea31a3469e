// A batch that is read, by one thread or by several. Part of
// gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_BATCH_BEING_READ_H_
#define GAVEL_INTERNAL_BATCH_BEING_READ_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/collate.h"

namespace gavel::internal {

template <class Dataset, class = void>
struct ReadsByEpoch : std::false_type {};
template <class Dataset>
struct ReadsByEpoch<Dataset, std::void_t<decltype(std::declval<Dataset&>().get(
                                 size_t{}, int64_t{}))>> : std::true_type {};

template <class Dataset>
auto ReadSample(Dataset& dataset, size_t index,
                [[maybe_unused]] int64_t epoch) {
  if constexpr (ReadsByEpoch<Dataset>::value) {
    return dataset.get(index, epoch);
  } else {
    return dataset.get(index);
  }
}

struct BatchIndices {
  std::vector<size_t> samples;
  int64_t epoch = 0;

  bool operator==(const BatchIndices& other) const {
    return samples == other.samples && epoch == other.epoch;
  }
};

// A batch whose samples are read by several threads; the last one to be done
// collates them.
template <class Sample, class Batch>
class BatchBeingRead {
 public:
  explicit BatchBeingRead(size_t sample_count)
      : samples_(sample_count), missing_(sample_count) {}

  // Any thread, once for each `i`.
  template <class Read>
  void ReadOne(size_t i, bool pinned, const Read& read) {
    Guarded([&] { samples_[i].emplace(read()); });
    if (IsLast()) Guarded([&] { CollateAll(pinned); });
    const std::lock_guard lock(mutex_);
    if (--missing_ == 0) changed_.notify_all();
  }
  bool has_batch() const {
    const std::lock_guard lock(mutex_);
    return missing_ == 0 && !error_;
  }
  // Waits until it is done. Throws what the first to fail has thrown.
  Batch& Get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return missing_ == 0; });
    if (error_) std::rethrow_exception(error_);
    return *batch_;
  }

 private:
  template <class Body>
  void Guarded(Body body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  bool IsLast() {
    const std::lock_guard lock(mutex_);
    return ++read_ == samples_.size() && !error_;
  }
  void CollateAll(bool pinned) {
    std::vector<Sample> all;
    all.reserve(samples_.size());
    for (std::optional<Sample>& sample : samples_) {
      all.push_back(std::move(*sample));
    }
    samples_.clear();
    batch_.emplace(Collate(std::move(all), pinned));
  }

  std::vector<std::optional<Sample>> samples_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t read_ = 0;     // or failed
  size_t missing_ = 0;  // calls that have not ended
  std::optional<Batch> batch_;
  std::exception_ptr error_;
};

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_BATCH_BEING_READ_H_
