// The content of a generation: the state of a job, and the states of random
// generators in it.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_
#define GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/generation/safetensors_files.h"

namespace at {
struct Generator;
}

namespace gavel {

// The state of a job at a boundary, as names and values: what a generation
// holds. The iterator fills one and gives it to GenerationStore::Commit, and
// reads one back from Restore.
//
// A value; tensors are shared handles as everywhere in LibTorch, so a Snapshot
// of live parameters changes with them: commit it before the next step, or
// clone first.

// Tensors that are larger than one rank's part of them: how they are cut over
// the ranks of a gang, the names of the parts in a generation, and which
// elements a rank of another gang reads from them.
//
// A part is stored as a tensor of its own, whose name tells where it lies:
//
//   gavel.part/DIM/BEGIN/SIZE/NAME
//
// holds the elements from BEGIN on along dimension DIM of the tensor NAME,
// which has SIZE elements there. The parts of a tensor cover it. With one rank
// a tensor is stored whole, under its own name.
//
// Called by ShardPlan, and by the iterator when it restores. Values and pure
// functions, thread-safe.

inline constexpr std::string_view kPartPrefix = "gavel.part/";

// Cut along `dim`, where the whole has `size` elements: into parts of equal
// size, but that the last ones are smaller or empty (as torch.chunk).
struct Partition {
  int64_t dim = 0;
  int64_t size = 0;
  friend bool operator==(const Partition&, const Partition&) = default;
};

// [begin, end) along Partition::dim.
struct PartRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
PartRange RangeOfRank(const Partition& partition, int rank, int world_size);

// One rank's part of a tensor.
struct OwnPart {
  Partition partition;
  int rank = 0;
  int world_size = 1;
  PartRange range() const { return RangeOfRank(partition, rank, world_size); }
};

// A part as it is in a generation.
struct StoredPart {
  Partition partition;
  int64_t begin = 0;
  at::Tensor tensor;
};

std::string PartEntryName(std::string_view name, const Partition& partition,
                          int64_t begin);
struct PartEntry {
  std::string name;  // of the whole
  Partition partition;
  int64_t begin = 0;
};
// The inverse; nullopt: no such name.
std::optional<PartEntry> ParsePartEntryName(std::string_view entry_name);

// Finds `wanted` elements of the tensor `name` (null: all) in a generation,
// which has the whole tensor (or null) or its parts by place (or none). Returns
// a view if one of them holds the elements, else a copy; undefined when the
// generation has neither. FAILED_PRECONDITION: the whole has another size than
// the wanted one's. DATA_LOSS: a part is missing.
absl::StatusOr<at::Tensor> TakePart(std::string_view name,
                                    const at::Tensor* whole,
                                    const std::vector<StoredPart>* parts,
                                    const OwnPart* wanted);

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
  // In a snapshot that is to be committed: those of `tensors` that are this
  // rank's part of a larger one. The other ranks have the same names here.
  std::map<std::string, Partition> partitions = {};
  // In a restored snapshot: the tensors that are stored in parts, by place, and
  // not in `tensors`.
  std::map<std::string, std::vector<StoredPart>> parts = {};
};

// Null when there is none of that name. The result is borrowed from `snapshot`.
const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name);

// As TakePart, of a restored one.
absl::StatusOr<at::Tensor> FindPart(const Snapshot& snapshot,
                                    const std::string& name,
                                    const OwnPart* wanted);

// All ranks of a gang have the same tensors (except for `partitions`) and
// entries of bytes, except those under this prefix, which are that rank's own:
// "gavel/rank/3/".
std::string RankEntryPrefix(int rank);
// The rank that a bytes entry belongs to by its name; nullopt: to all.
std::optional<int> RankOfEntry(std::string_view name);

// Makes a snapshot from the tensors of all shards of a generation: bytes
// entries are the rows of U8 under kBytesPrefix, parts have the names of
// PartEntryName. Sorts by name and place. DATA_LOSS: one is no such row, or no
// part.
absl::StatusOr<Snapshot> FromTensors(std::vector<NamedTensor> tensors);

// The states of LibTorch's default random generators as bytes, which the
// iterator stores in a Snapshot. The generator of the CPU, and that of the
// accelerator in use: its entry carries no index, so that a job which moves
// from cuda:0 to cuda:1 goes on with the same random numbers.
//
//   PREFIX/cpu, PREFIX/cuda
//
// Thread-safety: as LibTorch's generators; each is locked while it is read.

// INVALID_ARGUMENT: `generator` is not one, or `state` not that of its kind.
absl::StatusOr<std::string> GetGeneratorState(at::Generator generator);
absl::Status SetGeneratorState(at::Generator generator, std::string_view state);

// UNIMPLEMENTED: neither CPU nor CUDA. FAILED_PRECONDITION: no such GPU here.
absl::StatusOr<std::string> GetRngState(c10::Device device);

// Also INVALID_ARGUMENT: `state` is not that of a generator of this kind.
absl::Status SetRngState(c10::Device device, std::string_view state);

// The CPU's state and, if `device` is a GPU, that of its generator.
absl::Status CollectRngState(c10::Device device, std::string_view prefix,
                             Snapshot* snapshot);

// Sets the generators of the CPU and of `device` that the snapshot has a state
// for; a job that comes from a device of another type keeps the seed there.
// NOT_FOUND: the snapshot has no random states under `prefix`.
absl::Status RestoreRngState(const Snapshot& snapshot, c10::Device device,
                             std::string_view prefix);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_H_
