#include "tests/checkpoint/shard_files.h"

#include <limits>
#include <memory>

#include "core/status.h"
#include "runtime/checkpoint/snapshot_stage.h"
#include "tests/checkpoint/snapshot_samples.h"

namespace gavel::testing {

absl::StatusOr<ShardSummary> WriteShard(
    const std::string& path, const std::vector<NamedTensor>& tensors) {
  WorkerPool pool(1);
  Arena arena;
  SnapshotStage stage(std::numeric_limits<uint64_t>::max(), pool, arena);
  GAVEL_RETURN_IF_ERROR(stage.Copy({tensors, {}}, 0, 1));
  const StagedShard& shard = stage.shards().front();
  WriteBytes(path, std::string(shard.data, shard.layout->size_bytes));
  return SummarizeShard(*shard.layout, shard.data);
}

absl::StatusOr<Shard> ReadShard(const std::string& path) {
  auto bytes = std::make_shared<std::string>(ReadBytes(path));
  return DecodeShard(bytes->data(), bytes->size(), bytes,
                     ShardChecksum::kHeaderAndTensors);
}

}  // namespace gavel::testing
