#include "models/dataset.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel::models {

absl::StatusOr<std::string> ReadDataFile(const std::string& path,
                                         std::string_view remedy) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(StrCat(path, ": no such file; ", remedy));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kFileBytesMax) {
    return absl::FailedPreconditionError(
        StrCat(path, ": larger than ", kFileBytesMax,
               " bytes, the most that is read into memory; split it"));
  }
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return absl::FailedPreconditionError(
        StrCat(path, ": cannot be read; look at its permissions"));
  }
  return bytes;
}

at::Tensor BytesTensor(std::string_view bytes) {
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return tensor;
}

}  // namespace gavel::models
