// What the readers of this folder share: a whole file in memory, or an error
// that names it.
#ifndef GAVEL_MODELS_DATA_FILE_H_
#define GAVEL_MODELS_DATA_FILE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gavel::models {

inline constexpr size_t kFileBytesMax = size_t{4} << 30;

// The bytes of a regular file of at most kFileBytesMax. NOT_FOUND as "PATH: no
// such file; REMEDY", FAILED_PRECONDITION when it cannot be read.
absl::StatusOr<std::string> ReadDataFile(const std::string& path,
                                         std::string_view remedy);

// The bytes, copied into a one-dimensional uint8 tensor.
at::Tensor BytesTensor(std::string_view bytes);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_DATA_FILE_H_
