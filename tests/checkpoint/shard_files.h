// Single shards as files, as other programs write and read them.
#ifndef GAVEL_TESTS_CHECKPOINT_SHARD_FILES_H_
#define GAVEL_TESTS_CHECKPOINT_SHARD_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/checkpoint/safetensors.h"

namespace gavel::testing {

// All tensors in one shard, by way of a SnapshotStage.
absl::StatusOr<ShardSummary> WriteShard(
    const std::string& path, const std::vector<NamedTensor>& tensors);

absl::StatusOr<Shard> ReadShard(const std::string& path);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_CHECKPOINT_SHARD_FILES_H_
