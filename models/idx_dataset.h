// Images and labels in the IDX form of MNIST, of any image size: a folder with
// {train,test}-images-idx3-ubyte and {train,test}-labels-idx1-ubyte, or t10k-*
// for the test images as MNIST itself names them.
// Format: Y. LeCun et al., http://yann.lecun.com/exdb/mnist/. Big endian.
#ifndef GAVEL_MODELS_IDX_DATASET_H_
#define GAVEL_MODELS_IDX_DATASET_H_

#include <string>

#include "absl/status/statusor.h"
#include "models/image_dataset.h"

namespace gavel::models {

// NOT_FOUND: a file is missing. INVALID_ARGUMENT: wrong magic number, cut off,
// too long, a label above 9, or not one label per image.
absl::StatusOr<ImageDataset> ReadIdxDataset(const std::string& folder,
                                            Split split);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_IDX_DATASET_H_
