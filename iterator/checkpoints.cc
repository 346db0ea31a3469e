#include "iterator/checkpoints.h"

#include <map>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel::internal {
namespace {

// What differs between the ranks of a gang (loop_position.cc has the names).
constexpr std::string_view kOwnEntries[] = {
    "gavel/random/", "gavel/loop/random", "gavel/loop/first"};

void NameOwnEntries(int rank, std::map<std::string, std::string>* bytes) {
  std::map<std::string, std::string> own;
  for (const auto& [name, value] : *bytes) {
    for (const std::string_view prefix : kOwnEntries) {
      if (std::string_view(name).starts_with(prefix)) {
        own[StrCat(RankEntryPrefix(rank), name)] = value;
      }
    }
  }
  bytes->merge(own);
}

// The inverse. A rank that the gang did not have begins with those of rank 0.
void TakeOwnEntries(int rank, std::map<std::string, std::string>* bytes) {
  std::map<std::string, std::string> taken;
  for (auto& [name, value] : *bytes) {
    const std::optional<int> owner = RankOfEntry(name);
    if (owner == rank) {
      taken[name.substr(RankEntryPrefix(rank).size())] = value;
    }
  }
  std::erase_if(*bytes, [](const auto& entry) {
    return RankOfEntry(entry.first).has_value();
  });
  for (auto& [name, value] : taken) (*bytes)[name] = std::move(value);
}

}  // namespace

absl::Status Checkpoints::Open(const std::string& directory,
                               GenerationStoreOptions options, int rank,
                               CheckpointWriter::Done done) {
  rank_ = rank;
  options.device_hash = [this](const std::vector<at::Tensor>& tensors) {
    return hasher_.Hash(tensors);
  };
  GAVEL_ASSIGN_OR_RETURN(GenerationStore store,
                         GenerationStore::Open(directory, options));
  writer_ = std::make_unique<CheckpointWriter>(
      std::move(store), [this, done = std::move(done)](
                            Generation generation, const absl::Status& status) {
        if (status.ok()) SetLatest(generation);
        done(generation, status);
      });
  absl::StatusOr<Restored> restored = writer_->Restore();
  if (absl::IsNotFound(restored.status())) return absl::OkStatus();
  if (!restored.ok()) return restored.status();
  SetLatest(restored->generation);
  notes_ = restored->notes;
  restored_ = *std::move(restored);
  TakeOwnEntries(rank_, &restored_->snapshot.bytes);
  return absl::OkStatus();
}

Generation Checkpoints::latest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return latest_.value_or(Generation());
}

void Checkpoints::SetLatest(Generation generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  latest_ = generation;
}

absl::Status Checkpoints::RemoveLeftovers(uint64_t epoch) {
  return enabled() ? writer_->RemoveLeftovers(epoch) : absl::OkStatus();
}

absl::Status Checkpoints::Begin(Generation generation, Snapshot snapshot,
                                CommitOptions options,
                                std::vector<HostCopy>* copies) {
  if (!enabled()) return absl::OkStatus();
  if (options.world_size > 1) NameOwnEntries(rank_, &snapshot.bytes);
  options.rank = rank_;
  return writer_->Begin(generation, snapshot, options, copies);
}

void Checkpoints::Prepare(const Snapshot& snapshot, int world_size) {
  if (!enabled()) return;
  CommitOptions options;
  options.rank = rank_;
  options.world_size = world_size;
  writer_->Prepare(snapshot, options);
}

absl::Status Checkpoints::Wait() {
  return enabled() ? writer_->Wait() : absl::OkStatus();
}

bool Checkpoints::IsSuperseded(Generation generation) const {
  if (!enabled()) return false;
  const absl::StatusOr<Generation> latest = writer_->LatestGeneration();
  return latest.ok() && latest->epoch > generation.epoch;
}

bool Checkpoints::IsCommitted(Generation generation) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return latest_ == generation;
}

}  // namespace gavel::internal
