// Tensors in files of the safetensors layout, without LibTorch: those of a
// generation, and of any other file; and such files written, piece by piece.
// Called by the commands in this folder. Functions, safe on different files.
#ifndef GAVEL_COORDINATOR_CLI_STORED_TENSORS_H_
#define GAVEL_COORDINATOR_CLI_STORED_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/generation/manifest.h"
#include "runtime/generation/shard_layout.h"

namespace gavel {

// Where the bytes of a tensor lie.
struct StoredTensor {
  TensorEntry entry;
  std::string file;
  uint64_t offset = 0;

  uint64_t size_bytes() const { return entry.end - entry.begin; }
};
using StoredTensors = std::map<std::string, StoredTensor>;

// "F32 [2, 3]".
std::string KindOf(const TensorEntry& entry);

// Errors of the FileSystem; DATA_LOSS: not in the layout.
absl::StatusOr<StoredTensors> ReadTensorFile(const std::string& path);
// INVALID_ARGUMENT: more than `size_bytes_max`.
absl::StatusOr<std::string> ReadTensorBytes(const StoredTensor& tensor,
                                            uint64_t size_bytes_max);

struct StoredGeneration {
  std::string directory;  // of the job's checkpoints
  Attempt attempt;
  Manifest manifest;
  StoredTensors tensors;
  std::map<std::string, std::string> bytes;

  std::string folder() const;
  // Null: there is none.
  const std::string* FindBytes(const std::string& name) const;
};

// Verified by its own checksum only.
absl::StatusOr<Manifest> ReadManifestOf(const std::string& directory,
                                        const Attempt& attempt);

// `path`: a directory of checkpoints, whose newest is taken, or one generation
// in it. All shards are read and compared with the manifest. NOT_FOUND: no
// generation is there. DATA_LOSS: it is damaged.
absl::StatusOr<StoredGeneration> OpenGeneration(const std::string& path);

// A tensor to write: one that lies in a file, or these bytes.
struct TensorSource {
  TensorEntry entry;  // name, dtype and shape
  std::variant<StoredTensor, std::string> from;
};

// Writes a new file and syncs it. Returns its summary for a manifest.
absl::StatusOr<ShardSummary> WriteTensorFile(
    const std::string& path, const std::vector<TensorSource>& tensors);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_STORED_TENSORS_H_
