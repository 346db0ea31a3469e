// Reads the batches of a dataset, those of an order's next steps ahead, on
// threads of its own. Part of gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_READ_AHEAD_H_
#define GAVEL_INTERNAL_READ_AHEAD_H_

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gavel/internal/batch_being_read.h"
#include "gavel/internal/batch_copier.h"
#include "gavel/internal/reading_threads.h"
#include "gavel/internal/sharded_order.h"

namespace gavel::internal {

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

  // With threads: batches are collated in pinned memory, and copied to `device`
  // one ahead. What is on another device leaves it.
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
      // Those before it are of a step that was left by `break`.
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
