// Tensors that are larger than one rank's part of them: how they are cut over
// the ranks of a gang, the names of the parts in a generation, and what a rank
// of another gang takes out of them.
//
// A part is stored as a tensor of its own, whose name tells where it lies:
//
//   gavel.part/DIM/BEGIN/SIZE/NAME
//
// holds the elements from BEGIN on along dimension DIM of the tensor NAME,
// which has SIZE elements there. The parts of a tensor cover it. With one rank
// a tensor is stored whole, under its own name.
//
// Called by ShardPlan, and by the iterator for what it restores. Values and
// pure functions, thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_PARTITION_H_
#define GAVEL_RUNTIME_CHECKPOINT_PARTITION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel {

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

// What one rank has of a tensor.
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

// What a generation has of the tensor `name`: it whole (or null), or its parts
// by place (or none). Gives what is `wanted` of it, null: all; a view where one
// holds it, else a copy; undefined when the generation has neither.
// FAILED_PRECONDITION: the whole has another size than the wanted one's.
// DATA_LOSS: a part is missing.
absl::StatusOr<at::Tensor> TakePart(std::string_view name,
                                    const at::Tensor* whole,
                                    const std::vector<StoredPart>* parts,
                                    const OwnPart* wanted);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_PARTITION_H_
