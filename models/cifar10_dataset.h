// CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin for
// training and test_batch.bin, each a row of 3,073-byte records (a label, then
// the red, green and blue planes of a 32 x 32 image).
// Format and data: https://www.cs.toronto.edu/~kriz/cifar.html
#ifndef GAVEL_MODELS_CIFAR10_DATASET_H_
#define GAVEL_MODELS_CIFAR10_DATASET_H_

#include <string>

#include "absl/status/statusor.h"
#include "models/image_dataset.h"

namespace gavel::models {

// True when the folder holds any file of CIFAR-10.
bool IsCifar10Folder(const std::string& folder);

// NOT_FOUND: a file is missing. INVALID_ARGUMENT: not whole records, none, or a
// label above 9.
absl::StatusOr<ImageDataset> ReadCifar10Dataset(const std::string& folder,
                                                Split split);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_CIFAR10_DATASET_H_
