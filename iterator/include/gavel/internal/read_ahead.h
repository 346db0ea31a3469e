// Reads the batches of a dataset, those of an order's next steps ahead, on
// threads of its own: samples are collated into a batch, which is copied to the
// device that trains. Part of gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_READ_AHEAD_H_
#define GAVEL_INTERNAL_READ_AHEAD_H_

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/placement.h"
#include "gavel/internal/sharded_order.h"
#include "gavel/status.h"

namespace gavel::internal {

// Threads that make the calls that they are given, in the order given.
class GAVEL_EXPORT ReadingThreads {
 public:
  explicit ReadingThreads(int count);
  // Drops the calls that did not begin, and waits for the others.
  ~ReadingThreads();
  ReadingThreads(const ReadingThreads&) = delete;
  ReadingThreads& operator=(const ReadingThreads&) = delete;

  // call(0), call(1) to call(times - 1), by any of the threads.
  void Call(size_t times, std::function<void(size_t)> call);
  void Drop();  // those that did not begin

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `pinned`: in memory that a device reads by itself, where there is such.
GAVEL_EXPORT at::Tensor StackTensors(const std::vector<at::Tensor>& parts,
                                     bool pinned);

inline int64_t SampleCountOf(size_t size) { return static_cast<int64_t>(size); }
// std::optional, c10::optional: as torch::data datasets have.
template <class Optional>
int64_t SampleCountOf(const Optional& size) {
  return size.has_value() ? static_cast<int64_t>(*size) : 0;
}

template <class Sample>
auto Collate(std::vector<Sample> samples, bool pinned = false) {
  if constexpr (std::is_base_of_v<at::Tensor, Sample>) {
    return StackTensors(samples, pinned);
  } else if constexpr (HoldsTensors<Sample>() && HasData<Sample>::value) {
    Sample batch;
    std::vector<at::Tensor> parts;
    for (Sample& sample : samples) parts.push_back(std::move(sample.data));
    batch.data = StackTensors(parts, pinned);
    if constexpr (HasTarget<Sample>::value) {
      parts.clear();
      for (Sample& sample : samples) parts.push_back(std::move(sample.target));
      batch.target = StackTensors(parts, pinned);
    }
    return batch;
  } else {
    if (pinned) VisitTensors(samples, PinTensor);
    return samples;
  }
}

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

// One thread. Batches without tensors, or that can't be copied, stay.
template <class Batch>
class BatchCopier {
 public:
  void SetDevice(at::Device device) { device_ = device; }
  at::Device device() const { return device_; }
  bool copies() const { return kCanCopy && !device_.is_cpu(); }

  // Begins the copy.
  Batch Copy(const Batch& batch) {
    if (!copies_ || copies_->device() != device_) {
      copies_ = std::make_unique<CopyStream>(device_);
    }
    Batch copy = batch;
    VisitTensors(copy, [this](at::Tensor& part) { copies_->Copy(part); });
    return copy;
  }
  // Before the device is given work on it.
  void Use(Batch& copy) {
    VisitTensors(copy, [this](at::Tensor& part) { copies_->Use(part); });
  }

  static constexpr bool kCanCopy =
      HoldsTensors<Batch>() && std::is_copy_constructible_v<Batch>;

 private:
  at::Device device_{at::kCPU};
  std::unique_ptr<CopyStream> copies_;
};

// One thread calls it.
template <class Dataset>
class ReadAhead {
 public:
  using Sample = std::decay_t<decltype(ReadSample(std::declval<Dataset&>(),
                                                  size_t{}, int64_t{}))>;
  using Batch = decltype(Collate(std::vector<Sample>()));

  // `thread_count` 0: Take() reads.
  ReadAhead(Dataset dataset, int thread_count)
      : dataset_(std::make_shared<Dataset>(std::move(dataset))),
        thread_count_(thread_count) {}

  int64_t sample_count() const { return SampleCountOf(dataset_->size()); }

  // With threads, batches are collated in pinned memory, and copied to `device`
  // one ahead. Batches on another device leave it.
  void SetDevice(at::Device device) {
    if (device == copier_.device()) return;
    copier_.SetDevice(device);
    for (Asked& asked : asked_) asked.on_device.reset();
  }

  // Has the next steps of `order` read, which continues by Next() from now on
  // until Forget() is called.
  void Ask(const ShardedOrder& order) {
    if (thread_count_ <= 0) return;
    if (!threads_) threads_ = std::make_unique<ReadingThreads>(thread_count_);
    if (asked_.empty() || !ahead_) ahead_ = order;
    std::vector<size_t> step;
    int epochs_ended = 0;  // two at once: an epoch has no step
    while (steps_asked() < kStepsAhead && epochs_ended < 2) {
      epochs_ended = ahead_->Next(&step) ? 0 : epochs_ended + 1;
      ++last_step_;
      AskForStep(step);
    }
  }

  // The batch, asked for or not. Throws what the dataset throws.
  Batch Take(const BatchIndices& indices) {
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!(asked_[i].indices == indices)) continue;
      Asked asked = std::move(asked_[i]);
      // The ones before it belong to a step that was left by `break`.
      asked_.erase(asked_.begin(),
                   asked_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      Place(asked);
      Batch batch =
          std::move(asked.on_device ? *asked.on_device : asked.reading->Get());
      if (asked.on_device) copier_.Use(batch);
      PlaceNext();
      return batch;
    }
    Forget();  // the reader is elsewhere
    std::vector<Sample> samples;
    samples.reserve(indices.samples.size());
    for (const size_t index : indices.samples) {
      samples.push_back(ReadSample(*dataset_, index, indices.epoch));
    }
    return Collate(std::move(samples));
  }

  void Forget() {
    if (threads_) threads_->Drop();
    asked_.clear();
    ahead_.reset();
  }

 private:
  using Reading = BatchBeingRead<Sample, Batch>;
  // The step that is about to begin, and two more.
  static constexpr int64_t kStepsAhead = 3;
  struct Asked {
    BatchIndices indices;
    int64_t step = 0;  // counts on
    std::shared_ptr<Reading> reading;
    std::optional<Batch> on_device;
  };

  int64_t steps_asked() const {
    return asked_.empty() ? 0 : last_step_ - asked_.front().step + 1;
  }
  void AskForStep(const std::vector<size_t>& step) {
    for (size_t from = 0; from < step.size();) {
      const size_t to = from + ahead_->MicroBatch(from, step.size());
      AskFor({{step.begin() + static_cast<std::ptrdiff_t>(from),
               step.begin() + static_cast<std::ptrdiff_t>(to)},
              ahead_->epoch()});
      from = to;
    }
  }
  void AskFor(BatchIndices indices) {
    const auto reading = std::make_shared<Reading>(indices.samples.size());
    const bool pinned = copier_.copies();
    threads_->Call(indices.samples.size(), [dataset = dataset_, reading, pinned,
                                            indices](size_t i) {
      reading->ReadOne(i, pinned, [&] {
        return ReadSample(*dataset, indices.samples[i], indices.epoch);
      });
    });
    asked_.push_back({std::move(indices), last_step_, reading, std::nullopt});
  }
  // If it was read by now: the copy runs beside the step of the one before.
  void PlaceNext() {
    if (asked_.empty() || !asked_[0].reading->has_batch()) return;
    try {
      Place(asked_[0]);
    } catch (const std::exception&) {
      // No memory for two, or what Take() of it will meet, too.
    }
  }
  // Begins its copy to the device. Waits until it is read.
  void Place([[maybe_unused]] Asked& asked) {
    if constexpr (BatchCopier<Batch>::kCanCopy) {
      if (!copier_.copies() || asked.on_device) return;
      asked.on_device.emplace(copier_.Copy(asked.reading->Get()));
    }
  }

  std::shared_ptr<Dataset> dataset_;
  int thread_count_;
  std::optional<ShardedOrder> ahead_;  // has handed out what is asked for
  int64_t last_step_ = 0;
  std::deque<Asked> asked_;
  BatchCopier<Batch> copier_;
  std::unique_ptr<ReadingThreads> threads_;
};

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_READ_AHEAD_H_
