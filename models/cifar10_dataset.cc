#include "models/cifar10_dataset.h"

#include <ATen/ops/cat.h>

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "models/data_file.h"

namespace gavel::models {
namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kRecordBytes = 1 + kChannels * kSide * kSide;
constexpr int kTrainFiles = 5;

constexpr std::string_view kCifarRemedy =
    "give the folder cifar-10-batches-bin of cifar-10-binary.tar.gz";

std::vector<std::string> Paths(const std::string& folder, Split split) {
  if (split == Split::kTest) return {folder + "/test_batch.bin"};
  std::vector<std::string> paths;
  for (int file = 1; file <= kTrainFiles; ++file) {
    paths.push_back(folder + "/data_batch_" + std::to_string(file) + ".bin");
  }
  return paths;
}

// Reads one file into [records, kRecordBytes] bytes.
absl::StatusOr<at::Tensor> ReadRecords(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, kCifarRemedy));
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d bytes are not whole records of %d bytes; fetch it again", path,
        bytes.size(), kRecordBytes));
  }
  at::Tensor records = BytesTensor(bytes).view({-1, kRecordBytes});
  const auto label_max = records.select(1, 0).max().item<int64_t>();
  if (label_max >= kClasses) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a label of %d, and CIFAR-10 has 0 to %d; is it CIFAR-100?", path,
        label_max, kClasses - 1));
  }
  return records;
}

}  // namespace

bool IsCifar10Folder(const std::string& folder) {
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (const std::string& path : Paths(folder, split)) {
      std::error_code error;
      if (std::filesystem::exists(path, error)) return true;
    }
  }
  return false;
}

absl::StatusOr<ImageDataset> ReadCifar10Dataset(const std::string& folder,
                                                Split split) {
  std::vector<at::Tensor> files;
  for (const std::string& path : Paths(folder, split)) {
    GAVEL_ASSIGN_OR_RETURN(at::Tensor records, ReadRecords(path));
    files.push_back(std::move(records));
  }
  const at::Tensor records = at::cat(files);
  const at::Tensor images = records.narrow(1, 1, kRecordBytes - 1)
                                .reshape({-1, kChannels, kSide, kSide});
  return ImageDataset(images.contiguous(), records.select(1, 0).to(at::kLong),
                      kClasses);
}

}  // namespace gavel::models
