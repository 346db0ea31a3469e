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
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/partition.h"
#include "runtime/generation/safetensors_header.h"

namespace gavel {

using NamedTensor = std::pair<std::string, at::Tensor>;

// A tensor and its bytes in host memory, contiguous; `copy` keeps that memory.
struct HostCopy {
  at::Tensor source;
  at::Tensor copy;         // undefined: another rank of the gang has made it
  bool is_shared = false;  // all ranks have this tensor, `owner` its copy
  int owner = 0;
};

struct Snapshot {
  // E.g. "model/conv1.weight". Names are unique and not empty; they never
  // become paths. Restored ones are in host memory, sorted by name.
  std::vector<NamedTensor> tensors;
  // RNG states, the position in the data, hyper-parameters, user state.
  std::map<std::string, std::string> bytes;
  // Of a snapshot that is to be committed: those of `tensors` that are this
  // rank's part of a larger one. The other ranks have the same names here.
  std::map<std::string, Partition> partitions = {};
  // Of a restored one: what is there in parts, by place, and not in `tensors`.
  std::map<std::string, std::vector<StoredPart>> parts = {};
};

// Null when there is none of that name. The result is borrowed from `snapshot`.
const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name);

// As TakePart, of a restored one.
absl::StatusOr<at::Tensor> FindPart(const Snapshot& snapshot,
                                    const std::string& name,
                                    const OwnPart* wanted);

// Of a gang each rank has the same tensors (but for `partitions`) and entries
// of bytes, except those under this prefix, which are that rank's own:
// "gavel/rank/3/".
std::string RankEntryPrefix(int rank);
// The rank that a bytes entry belongs to by its name; nullopt: to all.
std::optional<int> RankOfEntry(std::string_view name);

// What the tensors of all shards of a generation make: bytes entries are the
// rows of U8 under kBytesPrefix, parts have names as of PartEntryName. Sorts by
// name and place. DATA_LOSS: one is no such row, or no part.
absl::StatusOr<Snapshot> FromTensors(std::vector<NamedTensor> tensors);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_
