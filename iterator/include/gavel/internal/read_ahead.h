// Reads a dataset, the next steps of an order on threads of its own. Part of
// gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_READ_AHEAD_H_
#define GAVEL_INTERNAL_READ_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/collate.h"
#include "gavel/internal/sharded_order.h"
#include "gavel/status.h"

namespace gavel::internal {

// Threads that call what they are given, in the order given. Started at once.
class GAVEL_EXPORT ReadingThreads {
 public:
  explicit ReadingThreads(int count);
  // Drops the calls that did not begin, and waits for the others.
  ~ReadingThreads();
  ReadingThreads(const ReadingThreads&) = delete;
  ReadingThreads& operator=(const ReadingThreads&) = delete;

  void Call(std::function<void()> call);
  void Drop();  // those that did not begin

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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

// One thread calls it.
template <class Dataset>
class ReadAhead {
 public:
  using Sample = std::decay_t<decltype(ReadSample(std::declval<Dataset&>(),
                                                  size_t{}, int64_t{}))>;

  // `thread_count` 0: Take() reads.
  ReadAhead(Dataset dataset, int thread_count)
      : dataset_(std::make_shared<Dataset>(std::move(dataset))),
        thread_count_(thread_count) {}

  int64_t sample_count() const { return SampleCountOf(dataset_->size()); }

  // Has the next steps of `order` read, which goes on by Next() from now on
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
      for (const size_t index : step) AskFor(index, ahead_->epoch());
    }
  }

  // The sample, asked for or not. Throws what the dataset throws.
  Sample Take(size_t index, int64_t epoch) {
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_[i].index != index || asked_[i].epoch != epoch) continue;
      std::future<Sample> sample = std::move(asked_[i].sample);
      // Those before it are of a step that was left by `break`.
      asked_.erase(asked_.begin(),
                   asked_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return sample.get();
    }
    Forget();  // the reader is elsewhere
    return ReadSample(*dataset_, index, epoch);
  }

  void Forget() {
    if (threads_) threads_->Drop();
    asked_.clear();
    ahead_.reset();
  }

 private:
  // The one that is about to begin, and two more.
  static constexpr int64_t kStepsAhead = 3;
  struct Asked {
    size_t index;
    int64_t epoch;
    int64_t step;  // counts on
    std::future<Sample> sample;
  };

  int64_t steps_asked() const {
    return asked_.empty() ? 0 : last_step_ - asked_.front().step + 1;
  }
  void AskFor(size_t index, int64_t epoch) {
    auto read = std::make_shared<std::packaged_task<Sample()>>(
        [dataset = dataset_, index, epoch] {
          return ReadSample(*dataset, index, epoch);
        });
    asked_.push_back({index, epoch, last_step_, read->get_future()});
    threads_->Call([read] { (*read)(); });
  }

  std::shared_ptr<Dataset> dataset_;
  int thread_count_;
  std::optional<ShardedOrder> ahead_;  // has handed out what is asked for
  int64_t last_step_ = 0;
  std::deque<Asked> asked_;
  std::unique_ptr<ReadingThreads> threads_;
};

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_READ_AHEAD_H_
