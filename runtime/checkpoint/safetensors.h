// Writes and reads shards: files in the safetensors layout, with XXH3-64
// checksums of the file and of every tensor. Called by GenerationStore; a
// shard also stands alone, for Python's safetensors or any other reader.
//
// Thread-safety: functions, safe on different paths.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
#define GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/safetensors_header.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel {

struct TensorChecksum {
  std::string name;
  // XXH3-64 of dtype, shape and data: equal tensors, equal checksums.
  uint64_t checksum = 0;
  friend bool operator==(const TensorChecksum&,
                         const TensorChecksum&) = default;
};

struct ShardSummary {
  uint64_t size_bytes = 0;
  // XXH3-64 of all bytes of the file.
  uint64_t checksum = 0;
  std::vector<TensorChecksum> tensors;  // sorted by name
  friend bool operator==(const ShardSummary&, const ShardSummary&) = default;
};

// Creates the file, writes it, syncs and closes it; the file's name in its
// directory is not synced. Tensors of any device and any strides; each is
// brought to contiguous host memory when its turn comes, so the extra memory
// is that of the largest one. They are stored in the order of falling element
// size, so that each is aligned, and by name.
// INVALID_ARGUMENT as CheckStorable; else the FileSystem's errors, and then
// the file may be there in part: the caller removes it.
absl::StatusOr<ShardSummary> WriteShard(
    FileSystem& file_system, const std::string& path,
    std::span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata);

struct Shard {
  std::vector<NamedTensor> tensors;  // in host memory
  std::map<std::string, std::string> metadata;
  ShardSummary summary;  // of what was read; the caller compares it
};

// DATA_LOSS when the file is not in the layout.
absl::StatusOr<Shard> ReadShard(FileSystem& file_system,
                                const std::string& path);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
