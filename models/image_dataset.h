// Labelled images in memory, and how to read them from a folder of MNIST IDX or
// CIFAR-10 binary files. Examples and tests call it.
//
// A value: copies share the tensors, which nobody writes after construction, so
// that several threads may read.
#ifndef GAVEL_MODELS_IMAGE_DATASET_H_
#define GAVEL_MODELS_IMAGE_DATASET_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "models/example.h"

namespace gavel::models {

enum class Split { kTrain, kTest };

class ImageDataset {
 public:
  // `images`: [size, channels, height, width] bytes. `labels`: [size] int64,
  // each in [0, classes). size > 0.
  ImageDataset(at::Tensor images, at::Tensor labels, int64_t classes);

  size_t size() const { return static_cast<size_t>(images_.size(0)); }
  int64_t channels() const { return images_.size(1); }
  int64_t height() const { return images_.size(2); }
  int64_t width() const { return images_.size(3); }
  int64_t classes() const { return classes_; }

  // One image as floats in [-1, 1], [channels, height, width], and its label, a
  // scalar. index < size().
  Example get(size_t index) const;

  // All of them, with a first dimension of size().
  Example all() const;

 private:
  at::Tensor images_;
  at::Tensor labels_;
  int64_t classes_;
};

// Reads CIFAR-10 when the folder holds its binary files, IDX otherwise.
// NOT_FOUND or INVALID_ARGUMENT, naming the file and what to do.
absl::StatusOr<ImageDataset> ReadImageDataset(const std::string& folder,
                                              Split split);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_IMAGE_DATASET_H_
