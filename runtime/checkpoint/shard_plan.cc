#include "runtime/checkpoint/shard_plan.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/checkpoint/safetensors_header.h"

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

absl::StatusOr<PlannedShard> PlanShard(const std::vector<TensorEntry>& tensors,
                                       size_t begin, size_t end) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = begin; i < end; ++i) places.emplace(tensors[i].name, i);
  PlannedShard shard;
  GAVEL_ASSIGN_OR_RETURN(
      shard.layout,
      LayOutShard({tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                   tensors.begin() + static_cast<std::ptrdiff_t>(end)},
                  Metadata()));
  for (const TensorEntry& entry : shard.layout.header.tensors) {
    shard.sources.push_back(places.at(entry.name));
  }
  return shard;
}

bool IsOf(const TensorEntry& entry, const NamedTensor& named) {
  const at::Tensor& tensor = named.second;
  return entry.name == named.first && CheckStorable(named.first, tensor).ok() &&
         entry.dtype == tensor.scalar_type() &&
         tensor.sizes().equals(entry.shape);
}

}  // namespace

absl::StatusOr<ShardPlan> ShardPlan::Make(const Snapshot& snapshot,
                                          uint64_t shard_size_bytes_max) {
  GAVEL_RETURN_IF_ERROR(CheckNames(snapshot.tensors));
  ShardPlan plan;
  for (const auto& [name, tensor] : snapshot.tensors) {
    plan.tensors_.push_back(
        {name, tensor.scalar_type(), tensor.sizes().vec(), 0, 0});
  }
  size_t begin = 0;
  uint64_t size_bytes = 0;
  for (size_t i = 0; i < plan.tensors_.size(); ++i) {
    // nbytes() of an expanded tensor is that of its elements, as stored.
    const uint64_t tensor_size = snapshot.tensors[i].second.nbytes();
    if (i > begin && size_bytes + tensor_size > shard_size_bytes_max) {
      GAVEL_ASSIGN_OR_RETURN(PlannedShard shard,
                             PlanShard(plan.tensors_, begin, i));
      plan.shards_.push_back(std::move(shard));
      begin = i;
      size_bytes = 0;
    }
    size_bytes += tensor_size;
  }
  if (begin < plan.tensors_.size()) {
    GAVEL_ASSIGN_OR_RETURN(PlannedShard shard, PlanShard(plan.tensors_, begin,
                                                         plan.tensors_.size()));
    plan.shards_.push_back(std::move(shard));
  }
  return plan;
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
                       at::kByte,
                       {static_cast<int64_t>(text.size())},
                       0,
                       0});
  }
  return LayOutShard(std::move(entries), Metadata());
}

}  // namespace gavel
