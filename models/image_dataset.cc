#include "models/image_dataset.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "core/text.h"
#include "models/cifar10_dataset.h"
#include "models/idx_dataset.h"

namespace gavel::models {
namespace {

// Grey levels 0..255 to -1..1.
at::Tensor Normalized(const at::Tensor& images) {
  return images.to(at::kFloat).div_(127.5).sub_(1);
}

}  // namespace

ImageDataset::ImageDataset(at::Tensor images, at::Tensor labels,
                           int64_t classes)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      classes_(classes) {}

Example ImageDataset::get(size_t index) const {
  const auto row = static_cast<int64_t>(index);
  return {Normalized(images_[row]), labels_[row]};
}

Example ImageDataset::all() const { return {Normalized(images_), labels_}; }

absl::StatusOr<ImageDataset> ReadImageDataset(const std::string& folder,
                                              Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(
        StrCat(folder,
               ": no such folder; give the one that holds the IDX or "
               "CIFAR-10 binary files"));
  }
  return IsCifar10Folder(folder) ? ReadCifar10Dataset(folder, split)
                                 : ReadIdxDataset(folder, split);
}

}  // namespace gavel::models
