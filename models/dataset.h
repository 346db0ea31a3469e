// The datasets of this folder share the type of a sample, FirstBatch, which
// repeats the first batch of a dataset, and the reading of a data file. A
// dataset is any class with `size()` and `get(index)` or `get(index, epoch)`,
// as gavel::DataLoader takes.
#ifndef GAVEL_MODELS_DATASET_H_
#define GAVEL_MODELS_DATASET_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel::models {

// One sample of a dataset, or a batch of them: the input of a model and the
// expected output. A value; tensors are shared handles.
//
// The names are those of torch::data::Example, so that loaders stack them.
struct Example {
  at::Tensor data;
  at::Tensor target;
};

// A dataset that repeats the samples of its first batch, which it reads once,
// so that a training step can be timed without its data. This is the synthetic
// data of Gavel's GavelIterator. It has as many steps and samples as the real
// dataset.
//
// When it is read in order (no shuffling), each step gets the same batch.
// Thread-safe when the dataset's copy is.
template <class Dataset>
class FirstBatch {
  // A dataset may take the epoch, too (gavel/data_loader.h).
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

inline constexpr size_t kFileBytesMax = size_t{4} << 30;

// Reads a regular file of at most kFileBytesMax. NOT_FOUND as "PATH: no such
// file; REMEDY", FAILED_PRECONDITION when it cannot be read.
absl::StatusOr<std::string> ReadDataFile(const std::string& path,
                                         std::string_view remedy);

// Copies the bytes into a one-dimensional uint8 tensor.
at::Tensor BytesTensor(std::string_view bytes);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_DATASET_H_
