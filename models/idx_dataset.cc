#include "models/idx_dataset.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "models/data_file.h"

namespace gavel::models {
namespace {

constexpr int64_t kDigits = 10;
// Two zero bytes, 8 for unsigned bytes, then the number of dimensions.
constexpr uint32_t kMagicBase = 0x800;
constexpr size_t kWordBytes = 4;

constexpr std::string_view kIdxRemedy =
    "give the folder with the four files of MNIST, unpacked (gunzip), or run "
    "./gavel-dev setup for the digits";

uint32_t WordAt(std::string_view bytes, size_t index) {
  uint32_t word = 0;
  for (const char byte : bytes.substr(index * kWordBytes, kWordBytes)) {
    word = word << 8 | static_cast<uint8_t>(byte);
  }
  return word;
}

// Reads an IDX file of bytes into a tensor of `dimensions` dimensions.
absl::StatusOr<at::Tensor> ReadIdxFile(const std::string& path,
                                       size_t dimensions) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, kIdxRemedy));
  const size_t header_bytes = kWordBytes * (1 + dimensions);
  if (bytes.size() < header_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: cut off in its header; fetch it again", path));
  }
  const auto magic = static_cast<uint32_t>(kMagicBase + dimensions);
  if (WordAt(bytes, 0) != magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: starts with 0x%08x and not with 0x%08x: not an IDX file of bytes "
        "in %d dimensions; is it still packed (gunzip)?",
        path, WordAt(bytes, 0), magic, dimensions));
  }
  std::vector<int64_t> sizes;
  uint64_t data_bytes = 1;
  for (size_t index = 1; index <= dimensions; ++index) {
    sizes.push_back(WordAt(bytes, index));
    // Both factors are at most 2^32, the second below it: no overflow.
    data_bytes =
        std::min<uint64_t>(data_bytes * WordAt(bytes, index), kFileBytesMax);
  }
  if (data_bytes == 0 || bytes.size() - header_bytes != data_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: has %d bytes of data and its header says %d; fetch it again", path,
        bytes.size() - header_bytes, data_bytes));
  }
  return BytesTensor(std::string_view(bytes).substr(header_bytes)).view(sizes);
}

// The first of the usual prefixes of which there is a file.
std::string PathPrefix(const std::string& folder, Split split) {
  if (split == Split::kTrain) return folder + "/train-";
  const std::string mnist = folder + "/t10k-";
  std::error_code error;
  const bool exists =
      std::filesystem::exists(mnist + "images-idx3-ubyte", error);
  return exists ? mnist : folder + "/test-";
}

}  // namespace

absl::StatusOr<ImageDataset> ReadIdxDataset(const std::string& folder,
                                            Split split) {
  const std::string prefix = PathPrefix(folder, split);
  const std::string labels_path = prefix + "labels-idx1-ubyte";
  GAVEL_ASSIGN_OR_RETURN(at::Tensor images,
                         ReadIdxFile(prefix + "images-idx3-ubyte", 3));
  GAVEL_ASSIGN_OR_RETURN(at::Tensor labels, ReadIdxFile(labels_path, 1));
  if (labels.size(0) != images.size(0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d labels for %d images; the two files must be of one set",
        labels_path, labels.size(0), images.size(0)));
  }
  labels = labels.to(at::kLong);
  if (labels.max().item<int64_t>() >= kDigits) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a label above %d; fetch it again", labels_path, kDigits - 1));
  }
  return ImageDataset(images.unsqueeze(1), std::move(labels), kDigits);
}

}  // namespace gavel::models
