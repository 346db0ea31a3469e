// The copy of a job's state from which a checkpoint is written: the exact bytes
// of the shards' files, in the arena. Training waits for this copy only. Called
// by GenerationStore.
//
// Not thread-safe. The result of shards() is valid until the next Copy or
// Release.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_
#define GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/device_move.h"
#include "runtime/device/host_memory.h"

namespace gavel {

// How the state of a job is cut into shards: a function of the names, dtypes
// and shapes of its tensors, how those that are one rank's part are cut, and
// the set of those that no longer change; nothing else, so that each shard of a
// generation can be compared with the one of the generation before, and every
// rank of a gang cuts alike. Called by SnapshotStage, which keeps a plan while
// it fits.
//
// A value, thread-safe.
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
  // Plans the tensors of `unchanged` first, and the others in shards of their
  // own, both in the order of the snapshot, with the tensors that all ranks
  // have before each rank's parts. A new shard begins when the tensors of one
  // reach `shard_size_bytes_max`, and a larger tensor has a shard of its own.
  // `snapshot` is that of `rank`; the plan covers all ranks. INVALID_ARGUMENT:
  // an empty, repeated or reserved name, a tensor that cannot be stored (see
  // CheckStorable), or one that is not this rank's part.
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

// A shard whose file lies at `data`, followed by zeros up to a multiple of
// kDirectAlignmentBytes.
struct StagedShard {
  size_t index = 0;  // in the generation, of all ranks' shards
  const ShardLayout* layout = nullptr;
  uint64_t arena_offset = 0;
  char* data = nullptr;
};

// Hashes of tensors computed where they are, for which that costs less than the
// copy; nullopt: not this one.
using DeviceHash = std::function<std::vector<std::optional<uint64_t>>(
    const std::vector<at::Tensor>&)>;

class SnapshotStage {
 public:
  // Borrows `pool` and `arena`. `device_hash` may be empty.
  SnapshotStage(uint64_t shard_size_bytes_max, WorkerPool& pool, Arena& arena,
                DeviceHash device_hash = nullptr)
      : shard_size_bytes_max_(shard_size_bytes_max),
        pool_(pool),
        arena_(arena),
        device_hash_(std::move(device_hash)) {}

  // Copies what this rank stores of `snapshot`, which may change afterwards:
  // every world_size-th shard of tensors that all have, its own parts of
  // others, and a shard of bytes entries. Tensors
  // of any device and strides; one whose bytes lie there from the last Copy, as
  // its hash tells, is not copied again. INVALID_ARGUMENT as ShardPlan::Make,
  // RESOURCE_EXHAUSTED without memory, FAILED_PRECONDITION for a tensor that
  // has none (see the iterator's DividedTensors).
  absl::Status Copy(const Snapshot& snapshot, int rank, int world_size);

  // Returns the tensors of `snapshot`, which was copied last, that are in the
  // arena, and which rank has copied each of the others that all ranks have.
  // Copies nothing. Their memory is not used for another Copy while one of them
  // is alive.
  std::vector<HostCopy> Copies(const Snapshot& snapshot) const;

  // The memory that Copy will take. Nothing is staged afterwards.
  absl::StatusOr<uint64_t> SizeOf(const Snapshot& snapshot, int rank,
                                  int world_size);

  // The tensors that the next Copy gives shards of their own; the same on all
  // ranks of a gang.
  void GroupUnchanged(std::set<std::string> names) {
    unchanged_ = std::move(names);
  }

  // Nothing is staged afterwards, and the arena may give the memory again.
  void Release();

  const std::vector<StagedShard>& shards() const { return shards_; }
  // After a Copy: the shards of tensors of all ranks.
  const ShardPlan& plan() const { return *plan_; }

  // The memory that the last Copy took.
  uint64_t size_bytes() const { return arena_size_bytes_; }
  // Bytes of tensors that the last Copy found in their places.
  uint64_t skipped_bytes() const { return skipped_bytes_; }

 private:
  absl::Status Plan(const Snapshot& snapshot, int rank, int world_size);
  int WriterOf(size_t shard) const;
  void AddShard(size_t index, const ShardLayout& layout);
  absl::Status CopyAll(const Snapshot& snapshot);
  absl::Status CopyShard(const StagedShard& shard, const Snapshot& snapshot);
  void HashTensors(const Snapshot& snapshot);
  // `to`: where in the arena's block.
  bool IsThere(size_t tensor, char* to) const;
  absl::Status CopyTensor(char* to, const at::Tensor& tensor);
  void WaitForDevices(const Snapshot& snapshot);

  const uint64_t shard_size_bytes_max_;
  WorkerPool& pool_;
  Arena& arena_;
  const DeviceHash device_hash_;
  std::set<std::string> unchanged_;
  std::set<std::string> planned_unchanged_;  // of plan_
  std::pair<int, int> planned_gang_;         // rank, world size
  std::optional<ShardPlan> plan_;
  std::map<std::string, std::string> bytes_;  // entries of this rank
  ShardLayout bytes_layout_;
  std::vector<StagedShard> shards_;
  uint64_t arena_size_bytes_ = 0;
  std::shared_ptr<ArenaBlock> block_;
  // The hashes of tensors that lie in `there_block_` since the last Copy, by
  // their places there. A plan cut anew puts other tensors into them.
  std::weak_ptr<ArenaBlock> there_block_;
  std::map<const char*, uint64_t> there_;
  uint64_t skipped_bytes_ = 0;
  // The fields below belong to the present Copy.
  std::vector<std::optional<uint64_t>> hashes_;  // of the snapshot's tensors
  std::map<const char*, uint64_t> copied_;       // what will be there
  CopyList list_;
  std::vector<DeviceCopies> devices_;  // of the snapshot, but the CPU
  uint64_t made_plain_bytes_ = 0;      // since the last DeviceCopies::Run
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_
