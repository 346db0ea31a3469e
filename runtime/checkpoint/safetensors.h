// A shard: a file in the safetensors layout, as it lies in memory, with XXH3-64
// checksums of the file and of every tensor. Called by shard_plan.cc and
// generation_store.cc, which copy tensors into such memory and write or read it
// as a whole; a shard also stands alone, for Python's safetensors or any other
// reader.
//
// Pure functions, thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
#define GAVEL_RUNTIME_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
  // See ShardChecksum.
  uint64_t checksum = 0;
  std::vector<TensorChecksum> tensors;  // sorted by name
  friend bool operator==(const ShardSummary&, const ShardSummary&) = default;
};

// What ShardSummary::checksum is, by the format version of the manifest.
enum class ShardChecksum {
  kAllBytes,          // version 1: XXH3-64 of the file
  kHeaderAndTensors,  // of its header and, in the order in which they are
                      // stored, the tensors' checksums: nothing is read twice
};

// Where everything lies in a shard's file.
struct ShardLayout {
  SafetensorsHeader header;  // tensors in the order in which they are stored
  std::string encoded_header;
  uint64_t size_bytes = 0;

  // Of header.tensors[i].
  uint64_t TensorOffset(size_t i) const {
    return encoded_header.size() + header.tensors[i].begin;
  }
};

// Stores tensors by falling element size, so that each is aligned, and by name.
// `tensors` have names, dtypes and shapes; their places are set here.
// INVALID_ARGUMENT as EncodeSafetensorsHeader.
absl::StatusOr<ShardLayout> LayOutShard(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata);

// Of the file that lies at `file`, kHeaderAndTensors.
ShardSummary SummarizeShard(const ShardLayout& layout, const char* file);

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
