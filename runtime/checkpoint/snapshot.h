// The state of a job at a boundary, as names and values: what a generation
// holds. The iterator fills one and gives it to GenerationStore::Commit, and
// reads one back from Restore.
//
// A value; tensors are shared handles as everywhere in LibTorch, so a Snapshot
// of live parameters changes with them: commit it before the next step, or
// clone first.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_
#define GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel {

using NamedTensor = std::pair<std::string, at::Tensor>;

struct Snapshot {
  // E.g. "model/conv1.weight". Names are unique and not empty; they never
  // become paths. Restored ones are in host memory, sorted by name.
  std::vector<NamedTensor> tensors;
  // RNG states, the position in the data, hyper-parameters, user state.
  std::map<std::string, std::string> bytes;
};

// Bytes entries are stored as one-dimensional U8 tensors under this prefix, so
// that any reader of safetensors can see them.
inline constexpr std::string_view kBytesPrefix = "gavel.bytes/";

// Null when there is none of that name. The result is borrowed from `snapshot`.
const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name);

// All entries as tensors. The tensors of bytes entries borrow from `snapshot`.
// INVALID_ARGUMENT: an empty, repeated or reserved name, or a tensor that
// cannot be stored (see CheckStorable).
absl::StatusOr<std::vector<NamedTensor>> ToTensors(const Snapshot& snapshot);

// The inverse; sorts by name.
absl::StatusOr<Snapshot> FromTensors(std::vector<NamedTensor> tensors);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_
