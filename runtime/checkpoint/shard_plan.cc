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
    for (const std::string_view reserved : {kBytesPrefix, kPartPrefix}) {
      if (!name.starts_with(reserved)) continue;
      return absl::InvalidArgumentError(
          StrCat("tensor '", name, "' has a name with the reserved prefix ",
                 reserved, "; give it another"));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          StrCat("two tensors are named '", name, "'; names must be unique"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPart(std::string_view name, const at::Tensor& tensor,
                       const OwnPart& own) {
  const int64_t dim = own.partition.dim;
  const bool has_dim = dim >= 0 && dim < tensor.dim();
  if (has_dim && tensor.size(dim) == own.range().size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("tensor '", name, "' has ", has_dim ? tensor.size(dim) : 0,
             " elements in dimension ", dim, " on rank ", own.rank, " of ",
             own.world_size, ", whose part of ", own.partition.size, " has ",
             own.range().size(), "; keep its shape after it is tracked"));
}

uint64_t SizeOf(const TensorEntry& tensor) {
  uint64_t size_bytes = SizeOfDtype(tensor.dtype);
  for (const int64_t size : tensor.shape) {
    size_bytes *= static_cast<uint64_t>(size);
  }
  return size_bytes;
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
    const std::set<std::string>& unchanged, int rank, int world_size) {
  GAVEL_RETURN_IF_ERROR(CheckNames(snapshot.tensors));
  ShardPlan plan;
  plan.partitions_ = snapshot.partitions;
  for (size_t i = 0; i < snapshot.tensors.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(plan.AddEntries(snapshot, i, rank, world_size));
  }
  for (const bool of_unchanged : {true, false}) {
    GAVEL_RETURN_IF_ERROR(
        plan.Cut(unchanged, of_unchanged, std::nullopt, shard_size_bytes_max));
    for (int owner = 0; owner < world_size; ++owner) {
      GAVEL_RETURN_IF_ERROR(
          plan.Cut(unchanged, of_unchanged, owner, shard_size_bytes_max));
    }
    if (of_unchanged) plan.unchanged_shards_ = plan.shards_.size();
  }
  return plan;
}

// One whole, or the parts of all ranks.
absl::Status ShardPlan::AddEntries(const Snapshot& snapshot, size_t source,
                                   int rank, int world_size) {
  const auto& [name, tensor] = snapshot.tensors[source];
  TensorEntry entry{name, *DtypeOf(tensor.scalar_type()), tensor.sizes().vec(),
                    0, 0};
  tensors_.push_back(entry);
  const auto found = snapshot.partitions.find(name);
  if (found == snapshot.partitions.end() || world_size == 1) {
    entries_.push_back({std::move(entry), source});
    return absl::OkStatus();
  }
  const Partition& partition = found->second;
  GAVEL_RETURN_IF_ERROR(CheckPart(name, tensor, {partition, rank, world_size}));
  for (int owner = 0; owner < world_size; ++owner) {
    const PartRange range = RangeOfRank(partition, owner, world_size);
    if (range.size() == 0) continue;
    entry.name = PartEntryName(name, partition, range.begin);
    entry.shape[static_cast<size_t>(partition.dim)] = range.size();
    entries_.push_back({entry, source, owner});
  }
  return absl::OkStatus();
}

absl::StatusOr<PlannedShard> ShardPlan::PlanShard(
    const std::vector<const Entry*>& chosen) {
  std::unordered_map<std::string_view, size_t> sources;
  std::vector<TensorEntry> tensors;
  for (const Entry* const entry : chosen) {
    sources.emplace(entry->tensor.name, entry->source);
    tensors.push_back(entry->tensor);
  }
  PlannedShard shard;
  GAVEL_ASSIGN_OR_RETURN(shard.layout,
                         LayOutShard(std::move(tensors), Metadata()));
  for (const TensorEntry& tensor : shard.layout.header.tensors) {
    shard.sources.push_back(sources.at(tensor.name));
  }
  shard.owner = chosen.front()->owner;
  return shard;
}

uint64_t ShardPlan::checksum() const {
  uint64_t checksum = shards_.size();
  for (const PlannedShard& shard : shards_) {
    const std::string& header = shard.layout.encoded_header;
    checksum = XXH3_64bits_withSeed(header.data(), header.size(), checksum);
  }
  return checksum;
}

absl::Status ShardPlan::Cut(const std::set<std::string>& unchanged,
                            bool of_unchanged, std::optional<int> owner,
                            uint64_t shard_size_bytes_max) {
  std::vector<const Entry*> chosen;
  uint64_t size_bytes = 0;
  const auto end_shard = [&]() -> absl::Status {
    if (chosen.empty()) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(PlannedShard shard, PlanShard(chosen));
    shards_.push_back(std::move(shard));
    chosen.clear();
    size_bytes = 0;
    return absl::OkStatus();
  };
  for (const Entry& entry : entries_) {
    if (entry.owner != owner ||
        unchanged.contains(entry.tensor.name) != of_unchanged) {
      continue;
    }
    const uint64_t tensor_size = SizeOf(entry.tensor);
    if (size_bytes + tensor_size > shard_size_bytes_max) {
      GAVEL_RETURN_IF_ERROR(end_shard());
    }
    chosen.push_back(&entry);
    size_bytes += tensor_size;
  }
  return end_shard();
}

bool ShardPlan::Fits(const Snapshot& snapshot) const {
  return partitions_ == snapshot.partitions &&
         std::equal(tensors_.begin(), tensors_.end(), snapshot.tensors.begin(),
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
