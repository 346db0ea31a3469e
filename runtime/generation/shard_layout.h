// How a shard lies in memory and on disk, the safetensors layout, and its
// XXH3-64 checksums: of the whole and of every tensor. Needs no LibTorch, so
// that an agent can verify what it was sent.
//
// Called by the checkpoint folder and by agents that stream generations. Pure
// functions, thread-safe.
#ifndef GAVEL_RUNTIME_GENERATION_SHARD_LAYOUT_H_
#define GAVEL_RUNTIME_GENERATION_SHARD_LAYOUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/generation/safetensors_header.h"

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

// Of the file of `size_bytes` that lies at `file`. DATA_LOSS when it is not in
// the layout.
absl::StatusOr<ShardLayout> DecodeShardLayout(const char* file,
                                              uint64_t size_bytes);

// As SummarizeFile, of a file that comes piece by piece: no more of it is kept
// than its header. Not thread-safe.
class ShardSummer {
 public:
  ShardSummer(uint64_t size_bytes, ShardChecksum kind);
  ~ShardSummer();
  // The next bytes. DATA_LOSS: not in the layout, or more than `size_bytes`.
  absl::Status Add(std::string_view data);
  // After all of them.
  absl::StatusOr<ShardSummary> Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same summary as the one that is written, of whatever lies at `file`; the
// caller compares the two. DATA_LOSS when it is not in the layout.
absl::StatusOr<ShardSummary> SummarizeFile(const char* file,
                                           uint64_t size_bytes,
                                           ShardChecksum kind);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_SHARD_LAYOUT_H_
