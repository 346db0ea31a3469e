// A dataset that hands out the samples of its first batch over and over, read
// once: the time of a training step without that of its data. The synthetic
// data of Gavel's GavelIterator. As many steps and samples as the real one has.
//
// Read in order (no shuffling), each step gets the same batch. Thread-safe when
// the dataset's copy is.
#ifndef GAVEL_MODELS_FIRST_BATCH_H_
#define GAVEL_MODELS_FIRST_BATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace gavel::models {

template <class Dataset>
class FirstBatch {
  // A dataset may want the epoch, too (gavel/data_loader.h).
  static auto Read(const Dataset& dataset, size_t index,
                   [[maybe_unused]] int64_t epoch) {
    if constexpr (requires { dataset.get(index, epoch); }) {
      return dataset.get(index, epoch);
    } else {
      return dataset.get(index);
    }
  }

 public:
  using Sample =
      std::decay_t<decltype(Read(std::declval<const Dataset&>(), 0, 0))>;

  // `batch_size` of all workers together; 0: the dataset as it is.
  FirstBatch(Dataset dataset, int64_t batch_size)
      : dataset_(std::move(dataset)) {
    const size_t count =
        std::min(static_cast<size_t>(batch_size), dataset_.size());
    for (size_t i = 0; i < count; ++i) samples_.push_back(Read(dataset_, i, 0));
  }

  size_t size() const { return dataset_.size(); }
  Sample get(size_t index, int64_t epoch = 0) const {
    return samples_.empty() ? Read(dataset_, index, epoch)
                            : samples_[index % samples_.size()];
  }

 private:
  Dataset dataset_;
  std::vector<Sample> samples_;
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_FIRST_BATCH_H_
