// Tensors of LibTorch in shards: which may be stored, and views of those in a
// shard that was read. A shard is a file in the safetensors layout
// (runtime/generation/safetensors_files.h) and also stands alone, for Python's
// safetensors or any other reader. Called by ShardPlan.
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
#include "runtime/device/host_memory.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "runtime/generation/safetensors_files.h"

namespace gavel {

// The dtype of a type that CheckStorable accepts; nothing for any other.
std::optional<Dtype> DtypeOf(at::ScalarType dtype);
// The inverse, for every Dtype.
at::ScalarType TorchDtypeOf(Dtype dtype);

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

// Reads and verifies the shards of a generation by several threads: past the
// page cache, straight into the arena, where the tensors stay; or through it,
// for the ranks of a gang, which then have the state once on each machine.
// Called by GenerationStore.

// The tensors of all shards, which keep their memory alive. No more memory is
// taken than the files have bytes. DATA_LOSS: a shard is not what its manifest
// says; else the FileSystem's errors.
absl::StatusOr<std::vector<NamedTensor>> ReadShards(FileSystem& file_system,
                                                    const std::string& folder,
                                                    const Manifest& manifest,
                                                    WorkerPool& pool,
                                                    Arena& arena);

// The same; the tensors look into pages of the files that all processes of this
// machine share. Where the file system has none, as ReadShards().
absl::StatusOr<std::vector<NamedTensor>> MapShards(FileSystem& file_system,
                                                   const std::string& folder,
                                                   const Manifest& manifest,
                                                   WorkerPool& pool,
                                                   Arena& arena);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
