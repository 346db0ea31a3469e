// Tensors of LibTorch in shards: which may be stored, and views of those in a
// shard that was read. A shard is a file in the safetensors layout
// (runtime/generation/shard_layout.h) and also stands alone, for Python's
// safetensors or any other reader. Called by shard_plan.cc and
// shard_reader.cc.
//
// Pure functions, thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
#define GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/generation/shard_layout.h"

namespace gavel {

// Of a dtype that CheckStorable accepts; nothing for any other.
std::optional<Dtype> DtypeOf(at::ScalarType dtype);

// OK when the layout has a place for `tensor`; else INVALID_ARGUMENT that names
// it and says what to do: undefined, sparse or quantized tensors, other dtypes
// (complex numbers of another size than 64 bits among them).
absl::Status CheckStorable(std::string_view name, const at::Tensor& tensor);

struct Shard {
  std::vector<NamedTensor> tensors;  // in host memory
  std::map<std::string, std::string> metadata;
  ShardSummary summary;  // of what was read; the caller compares it
};

// Reads the file of `size_bytes` that lies at `file`. The tensors look into
// that memory and keep `owner` alive. DATA_LOSS when it is not in the layout.
absl::StatusOr<Shard> DecodeShard(char* file, uint64_t size_bytes,
                                  std::shared_ptr<void> owner,
                                  ShardChecksum kind);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
