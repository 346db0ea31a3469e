// How the state of a job is cut into shards: a function of the names, dtypes
// and shapes of its tensors, how those that are one rank's part are cut, and
// the set of those that no longer change; nothing else, so that each shard of a
// generation can be compared with the one of the generation before, and every
// rank of a gang cuts alike. Called by SnapshotStage, which keeps a plan while
// it fits.
//
// A value, thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SHARD_PLAN_H_
#define GAVEL_RUNTIME_CHECKPOINT_SHARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel {

struct PlannedShard {
  ShardLayout layout;
  // layout.header.tensors[i] is Snapshot::tensors[sources[i]]. Not meant for
  // a shard of another rank.
  std::vector<size_t> sources;
  // The rank that alone has these tensors; nullopt: all have them.
  std::optional<int> owner = std::nullopt;
};

class ShardPlan {
 public:
  // Those of `unchanged` first, the others in shards of their own, both in the
  // order of the snapshot, what all ranks have before each rank's parts; a new
  // shard is begun when the tensors of one reach `shard_size_bytes_max`, and a
  // larger tensor has one of its own. `snapshot` is that of `rank`, the plan of
  // all. INVALID_ARGUMENT: an empty, repeated or reserved name, a tensor that
  // cannot be stored (see CheckStorable), or one that is not this rank's part.
  static absl::StatusOr<ShardPlan> Make(
      const Snapshot& snapshot, uint64_t shard_size_bytes_max,
      const std::set<std::string>& unchanged = {}, int rank = 0,
      int world_size = 1);

  // Whether Make would give the same plan for `snapshot`, and all else the
  // same.
  bool Fits(const Snapshot& snapshot) const;

  const std::vector<PlannedShard>& shards() const { return shards_; }
  // How many of them, the first, are of `unchanged` tensors alone.
  size_t unchanged_shards() const { return unchanged_shards_; }
  // XXH3-64 of all layouts: equal plans, equal checksums.
  uint64_t checksum() const;

 private:
  // One that is to be stored.
  struct Entry {
    TensorEntry tensor;
    size_t source = 0;  // in the snapshot
    std::optional<int> owner = std::nullopt;
  };
  absl::Status AddEntries(const Snapshot& snapshot, size_t source, int rank,
                          int world_size);
  static absl::StatusOr<PlannedShard> PlanShard(
      const std::vector<const Entry*>& chosen);
  absl::Status Cut(const std::set<std::string>& unchanged, bool of_unchanged,
                   std::optional<int> owner, uint64_t shard_size_bytes_max);

  std::vector<TensorEntry> tensors_;  // in the order of the snapshot
  std::map<std::string, Partition> partitions_;
  std::vector<Entry> entries_;
  std::vector<PlannedShard> shards_;
  size_t unchanged_shards_ = 0;
};

// The shard of bytes entries, each a row of U8 under kBytesPrefix.
// INVALID_ARGUMENT: a name that is not UTF-8.
absl::StatusOr<ShardLayout> LayOutBytes(
    const std::map<std::string, std::string>& bytes);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SHARD_PLAN_H_
