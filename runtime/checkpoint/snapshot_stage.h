// The copy of a job's state that a checkpoint is written from: the very bytes
// of the shards' files, in the arena. Copying is all that training waits for.
// Called by GenerationStore.
//
// Not thread-safe. What shards() gives lives until the next Copy or Release.
#ifndef GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_
#define GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/arena.h"
#include "runtime/checkpoint/shard_plan.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/worker_pool.h"

namespace gavel {

// A shard whose file lies at `data`, followed by zeros up to a multiple of
// kDirectAlignmentBytes.
struct StagedShard {
  size_t index = 0;  // in the generation, of all ranks' shards
  const ShardLayout* layout = nullptr;
  uint64_t arena_offset = 0;
  char* data = nullptr;
};

class SnapshotStage {
 public:
  // Borrows `pool` and `arena`.
  SnapshotStage(uint64_t shard_size_bytes_max, WorkerPool& pool, Arena& arena)
      : shard_size_bytes_max_(shard_size_bytes_max),
        pool_(pool),
        arena_(arena) {}

  // Copies what this rank stores of `snapshot`, which may change afterwards:
  // every world_size-th shard of tensors, and a shard of bytes entries. Tensors
  // of any device and strides. INVALID_ARGUMENT as ShardPlan::Make,
  // RESOURCE_EXHAUSTED without memory.
  absl::Status Copy(const Snapshot& snapshot, int rank, int world_size);

  // Of the tensors of `snapshot`, which was copied last, those that this rank
  // stores, in the arena: nothing is copied. Their memory is not used for
  // another Copy while one of them is there.
  std::vector<HostCopy> Copies(const Snapshot& snapshot) const;

  // The memory that Copy will take. Nothing is staged afterwards.
  absl::StatusOr<uint64_t> SizeOf(const Snapshot& snapshot, int rank,
                                  int world_size);

  // The tensors that the next Copy gives shards of their own. A gang cuts
  // without it: its ranks know only what they themselves store.
  void GroupUnchanged(std::set<std::string> names) {
    unchanged_ = std::move(names);
  }

  // Nothing is staged afterwards, and the arena may give the memory again.
  void Release();

  const std::vector<StagedShard>& shards() const { return shards_; }

 private:
  struct Piece {
    char* to;
    const char* from;
    size_t size;
  };

  absl::Status Plan(const Snapshot& snapshot, int rank, int world_size);
  void AddShard(size_t index, const ShardLayout& layout);
  absl::Status CopyShard(const StagedShard& shard, const Snapshot& snapshot);
  void CopyTensor(char* to, const at::Tensor& tensor);
  void AddPiece(char* to, const char* from, size_t size);
  absl::Status CopyPieces();
  void WaitForDevices(const Snapshot& snapshot);
  void WaitForStreams();

  const uint64_t shard_size_bytes_max_;
  WorkerPool& pool_;
  Arena& arena_;
  std::set<std::string> unchanged_;
  std::set<std::string> planned_unchanged_;
  std::optional<ShardPlan> plan_;
  std::map<std::string, std::string> bytes_;  // entries of this rank
  ShardLayout bytes_layout_;
  std::vector<StagedShard> shards_;
  uint64_t arena_size_bytes_ = 0;
  std::shared_ptr<ArenaBlock> block_;
  // Of the present Copy.
  std::vector<Piece> pieces_;
  std::vector<at::Device> devices_;  // of the snapshot, but the CPU
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_SNAPSHOT_STAGE_H_
