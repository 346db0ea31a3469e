// The header of a file in the safetensors layout, without I/O:
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]},
//             "__metadata__": {string: string}}, padded with spaces
//   data      the tensors, row-major, little-endian, without gaps
//
// Called by safetensors.cc; pure functions, thread-safe.
// Source: https://github.com/huggingface/safetensors, "Format".
#ifndef GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_HEADER_H_
#define GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// The limit of the reference implementation.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr uint64_t kSafetensorsLengthBytes = 8;

struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<int64_t> shape;
  // [begin, end) in the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by `begin`
  std::map<std::string, std::string> metadata;
};

// OK when the layout has a place for `tensor`; else INVALID_ARGUMENT that names
// it and says what to do: undefined, sparse or quantized tensors, complex
// numbers, other dtypes.
absl::Status CheckStorable(std::string_view name, const at::Tensor& tensor);

// Length and JSON, padded so that the data starts at a multiple of 64, as
// LibTorch aligns memory.
// INVALID_ARGUMENT: over kSafetensorsHeaderBytesMax.
absl::StatusOr<std::string> EncodeSafetensorsHeader(
    const SafetensorsHeader& header);

// The length in the first kSafetensorsLengthBytes of a file of
// `file_size_bytes`. DATA_LOSS when it is over the limit or the file.
absl::StatusOr<uint64_t> DecodeSafetensorsHeaderLength(
    std::string_view bytes, uint64_t file_size_bytes);

// `json` is the header without its length. Checks all that the layout demands:
// known dtypes, sizes equal to dtype times shape, and data_offsets that cover
// `data_size_bytes` without gap or overlap. DATA_LOSS says what is wrong.
absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(
    std::string_view json, uint64_t data_size_bytes);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_HEADER_H_
