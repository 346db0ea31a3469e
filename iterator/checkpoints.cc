#include "iterator/checkpoints.h"

#include <utility>

#include "core/status.h"

namespace gavel::internal {

absl::Status Checkpoints::Open(const std::string& directory, int kept) {
  GenerationStoreOptions options;
  options.keep_last = kept;
  GAVEL_ASSIGN_OR_RETURN(GenerationStore store,
                         GenerationStore::Open(directory, options));
  absl::StatusOr<Restored> restored = store.Restore();
  store_.emplace(std::move(store));
  if (absl::IsNotFound(restored.status())) return absl::OkStatus();
  if (!restored.ok()) return restored.status();
  latest_ = restored->generation;
  has_latest_ = true;
  notes_ = restored->notes;
  restored_ = *std::move(restored);
  return absl::OkStatus();
}

absl::Status Checkpoints::Commit(
    Generation generation, const Snapshot& snapshot, int world_size,
    const std::function<absl::Status()>& before_commit) {
  if (!enabled() || IsCommitted(generation)) return absl::OkStatus();
  CommitOptions options;
  options.world_size = world_size;
  options.before_commit = before_commit;
  GAVEL_RETURN_IF_ERROR(store_->Commit(generation, snapshot, options));
  latest_ = generation;
  has_latest_ = true;
  return absl::OkStatus();
}

bool Checkpoints::IsSuperseded(Generation generation) const {
  if (!enabled()) return false;
  const absl::StatusOr<Generation> latest = store_->LatestGeneration();
  return latest.ok() && latest->epoch > generation.epoch;
}

}  // namespace gavel::internal
