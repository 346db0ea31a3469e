#include "runtime/checkpoint/shard_plan.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// What Python's readers look for. Nothing that changes from one generation to
// the next, or no shard would ever be unchanged.
const std::map<std::string, std::string>& Metadata() {
  static const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  return metadata;
}

absl::Status CheckNames(const std::vector<NamedTensor>& tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    GAVEL_RETURN_IF_ERROR(CheckStorable(name, tensor));
    if (name.starts_with(kBytesPrefix)) {
      return absl::InvalidArgumentError(
          StrCat("tensor '", name, "' has a name with the reserved prefix ",
                 kBytesPrefix, "; give it another"));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          StrCat("two tensors are named '", name, "'; names must be unique"));
    }
  }
  return absl::OkStatus();
}

// Of tensors[i] for each i of `chosen`.
absl::StatusOr<PlannedShard> PlanShard(const std::vector<TensorEntry>& tensors,
                                       const std::vector<size_t>& chosen) {
  std::unordered_map<std::string_view, size_t> places;
  std::vector<TensorEntry> entries;
  for (const size_t i : chosen) {
    places.emplace(tensors[i].name, i);
    entries.push_back(tensors[i]);
  }
  PlannedShard shard;
  GAVEL_ASSIGN_OR_RETURN(shard.layout,
                         LayOutShard(std::move(entries), Metadata()));
  for (const TensorEntry& entry : shard.layout.header.tensors) {
    shard.sources.push_back(places.at(entry.name));
  }
  return shard;
}

bool IsOf(const TensorEntry& entry, const NamedTensor& named) {
  const at::Tensor& tensor = named.second;
  return entry.name == named.first && CheckStorable(named.first, tensor).ok() &&
         entry.dtype == DtypeOf(tensor.scalar_type()) &&
         tensor.sizes().equals(entry.shape);
}

}  // namespace

absl::StatusOr<ShardPlan> ShardPlan::Make(
    const Snapshot& snapshot, uint64_t shard_size_bytes_max,
    const std::set<std::string>& unchanged) {
  GAVEL_RETURN_IF_ERROR(CheckNames(snapshot.tensors));
  ShardPlan plan;
  std::vector<size_t> first, others;
  for (const auto& [name, tensor] : snapshot.tensors) {
    (unchanged.contains(name) ? first : others).push_back(plan.tensors_.size());
    plan.tensors_.push_back(
        {name, *DtypeOf(tensor.scalar_type()), tensor.sizes().vec(), 0, 0});
  }
  GAVEL_RETURN_IF_ERROR(plan.Cut(first, snapshot, shard_size_bytes_max));
  plan.unchanged_shards_ = plan.shards_.size();
  GAVEL_RETURN_IF_ERROR(plan.Cut(others, snapshot, shard_size_bytes_max));
  return plan;
}

uint64_t ShardPlan::checksum() const {
  uint64_t checksum = shards_.size();
  for (const PlannedShard& shard : shards_) {
    const std::string& header = shard.layout.encoded_header;
    checksum = XXH3_64bits_withSeed(header.data(), header.size(), checksum);
  }
  return checksum;
}

absl::Status ShardPlan::Cut(const std::vector<size_t>& tensors,
                            const Snapshot& snapshot,
                            uint64_t shard_size_bytes_max) {
  std::vector<size_t> chosen;
  uint64_t size_bytes = 0;
  const auto end_shard = [&]() -> absl::Status {
    if (chosen.empty()) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(PlannedShard shard, PlanShard(tensors_, chosen));
    shards_.push_back(std::move(shard));
    chosen.clear();
    size_bytes = 0;
    return absl::OkStatus();
  };
  for (const size_t i : tensors) {
    // nbytes() of an expanded tensor is that of its elements, as stored.
    const uint64_t tensor_size = snapshot.tensors[i].second.nbytes();
    if (size_bytes + tensor_size > shard_size_bytes_max) {
      GAVEL_RETURN_IF_ERROR(end_shard());
    }
    chosen.push_back(i);
    size_bytes += tensor_size;
  }
  return end_shard();
}

bool ShardPlan::Fits(const Snapshot& snapshot) const {
  return std::equal(tensors_.begin(), tensors_.end(), snapshot.tensors.begin(),
                    snapshot.tensors.end(), IsOf);
}

absl::StatusOr<ShardLayout> LayOutBytes(
    const std::map<std::string, std::string>& bytes) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, text] : bytes) {
    entries.push_back({StrCat(kBytesPrefix, name),
                       Dtype::kU8,
                       {static_cast<int64_t>(text.size())},
                       0,
                       0});
  }
  return LayOutShard(std::move(entries), Metadata());
}

}  // namespace gavel
