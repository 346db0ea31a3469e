#include "runtime/checkpoint/snapshot_stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/torch_errors.h"
#include "runtime/generation/file_system.h"

namespace gavel {
namespace {

// The metadata that Python's readers look for. It must not change from one
// generation to the next, or no shard would ever be unchanged.
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

namespace {

// On a device, beside the state, while that is copied.
constexpr uint64_t kMadePlainBytesMax = uint64_t{64} << 20;

}  // namespace

absl::Status SnapshotStage::Plan(const Snapshot& snapshot, int rank,
                                 int world_size) {
  if (!plan_ || planned_unchanged_ != unchanged_ ||
      planned_gang_ != std::pair(rank, world_size) || !plan_->Fits(snapshot)) {
    GAVEL_ASSIGN_OR_RETURN(
        plan_, ShardPlan::Make(snapshot, shard_size_bytes_max_, unchanged_,
                               rank, world_size));
    planned_unchanged_ = unchanged_;
    planned_gang_ = {rank, world_size};
    there_.clear();
  }
  bytes_.clear();
  for (const auto& [name, text] : snapshot.bytes) {
    if (RankOfEntry(name).value_or(0) == rank) bytes_.emplace(name, text);
  }
  GAVEL_ASSIGN_OR_RETURN(bytes_layout_, LayOutBytes(bytes_));
  shards_.clear();
  arena_size_bytes_ = 0;
  const size_t count = plan_->shards().size();
  for (size_t i = 0; i < count; ++i) {
    if (WriterOf(i) == rank) AddShard(i, plan_->shards()[i].layout);
  }
  AddShard(count + static_cast<size_t>(rank), bytes_layout_);
  return absl::OkStatus();
}

int SnapshotStage::WriterOf(size_t shard) const {
  const auto world_size = static_cast<size_t>(planned_gang_.second);
  return plan_->shards()[shard].owner.value_or(
      static_cast<int>(shard % world_size));
}

void SnapshotStage::AddShard(size_t index, const ShardLayout& layout) {
  shards_.push_back({index, &layout, arena_size_bytes_, nullptr});
  arena_size_bytes_ += AlignUp(layout.size_bytes);
}

absl::StatusOr<uint64_t> SnapshotStage::SizeOf(const Snapshot& snapshot,
                                               int rank, int world_size) {
  GAVEL_RETURN_IF_ERROR(Plan(snapshot, rank, world_size));
  Release();
  return arena_size_bytes_;
}

void SnapshotStage::Release() {
  shards_.clear();
  block_.reset();
  there_.clear();
}

absl::Status SnapshotStage::Copy(const Snapshot& snapshot, int rank,
                                 int world_size) {
  block_.reset();  // or the arena could not give it again
  GAVEL_RETURN_IF_ERROR(Plan(snapshot, rank, world_size));
  GAVEL_ASSIGN_OR_RETURN(block_, arena_.Take(arena_size_bytes_));
  list_ = {};
  if (there_block_.lock() != block_) there_.clear();
  there_block_ = block_;
  skipped_bytes_ = 0;
  copied_.clear();
  absl::Status status = CopyAll(snapshot);
  devices_.clear();
  // After a failure the contents of the copies are unknown.
  if (!status.ok()) copied_.clear();
  there_.swap(copied_);
  return status;
}

absl::Status SnapshotStage::CopyAll(const Snapshot& snapshot) {
  return internal::CatchAsStatus("copying the state for a checkpoint", [&] {
    const at::NoGradGuard no_grad;
    WaitForDevices(snapshot);
    HashTensors(snapshot);
    for (StagedShard& shard : shards_) {
      shard.data = block_->data() + shard.arena_offset;
      GAVEL_RETURN_IF_ERROR(CopyShard(shard, snapshot));
    }
    GAVEL_RETURN_IF_ERROR(list_.Run(pool_));
    for (DeviceCopies& copies : devices_) copies.Run();
    return absl::OkStatus();
  });
}

void SnapshotStage::HashTensors(const Snapshot& snapshot) {
  hashes_.assign(snapshot.tensors.size(), std::nullopt);
  if (!device_hash_) return;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : snapshot.tensors) tensors.push_back(tensor);
  std::vector<std::optional<uint64_t>> hashes = device_hash_(tensors);
  if (hashes.size() == tensors.size()) hashes_ = std::move(hashes);
}

bool SnapshotStage::IsThere(size_t tensor, char* to) const {
  const auto there = there_.find(to);
  return hashes_[tensor] && there != there_.end() &&
         there->second == *hashes_[tensor];
}

std::vector<HostCopy> SnapshotStage::Copies(const Snapshot& snapshot) const {
  std::vector<HostCopy> copies;
  for (const StagedShard& shard : shards_) {
    if (shard.layout == &bytes_layout_) continue;
    const PlannedShard& planned = plan_->shards()[shard.index];
    for (size_t i = 0; i < planned.sources.size(); ++i) {
      const at::Tensor& source = snapshot.tensors[planned.sources[i]].second;
      at::Tensor copy = at::from_blob(
          shard.data + shard.layout->TensorOffset(i), source.sizes(),
          [block = block_](void*) {},
          at::device(at::kCPU).dtype(source.scalar_type()));
      copies.push_back({source, std::move(copy), !planned.owner.has_value(),
                        planned_gang_.first});
    }
  }
  for (size_t i = 0; i < plan_->shards().size(); ++i) {
    const PlannedShard& planned = plan_->shards()[i];
    const int writer = WriterOf(i);
    if (planned.owner || writer == planned_gang_.first) continue;
    for (const size_t source : planned.sources) {
      copies.push_back({snapshot.tensors[source].second, {}, true, writer});
    }
  }
  return copies;
}

absl::Status SnapshotStage::CopyShard(const StagedShard& shard,
                                      const Snapshot& snapshot) {
  const ShardLayout& layout = *shard.layout;
  char* const end = shard.data + layout.size_bytes;
  std::memcpy(shard.data, layout.encoded_header.data(),
              layout.encoded_header.size());
  std::memset(end, 0, AlignUp(layout.size_bytes) - layout.size_bytes);
  const bool is_bytes = &layout == &bytes_layout_;
  for (size_t i = 0; i < layout.header.tensors.size(); ++i) {
    char* const to = shard.data + layout.TensorOffset(i);
    if (is_bytes) {
      const std::string& name = layout.header.tensors[i].name;
      const std::string& text = bytes_.at(name.substr(kBytesPrefix.size()));
      std::memcpy(to, text.data(), text.size());
    } else {
      const size_t source = plan_->shards()[shard.index].sources[i];
      const at::Tensor& tensor = snapshot.tensors[source].second;
      if (IsThere(source, to)) {
        skipped_bytes_ += tensor.nbytes();
      } else {
        GAVEL_RETURN_IF_ERROR(CopyTensor(to, tensor));
      }
      if (hashes_[source]) copied_[to] = *hashes_[source];
    }
  }
  return absl::OkStatus();
}

absl::Status SnapshotStage::CopyTensor(char* to, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return absl::OkStatus();
  if (tensor.has_storage() && tensor.storage().data() == nullptr) {
    return absl::FailedPreconditionError(
        "a tensor's values are on another rank of the gang");
  }
  const bool is_plain =
      tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
  if (tensor.is_cpu() && is_plain) {
    list_.Add(to, static_cast<const char*>(tensor.const_data_ptr()),
              tensor.nbytes());
    return absl::OkStatus();
  }
  for (DeviceCopies& copies : devices_) {
    if (copies.device() != tensor.device()) continue;
    // Plain copies are made on the device, within bounds.
    copies.Add(tensor.detach().resolve_conj().resolve_neg().contiguous(), to);
    if (!is_plain) made_plain_bytes_ += tensor.nbytes();
    if (made_plain_bytes_ > kMadePlainBytesMax) {
      copies.Run();
      made_plain_bytes_ = 0;
    }
    return absl::OkStatus();
  }
  at::Tensor view = at::from_blob(to, tensor.sizes(),
                                  at::device(at::kCPU).dtype(tensor.dtype()));
  view.copy_(tensor.detach());
  return absl::OkStatus();
}

// For the work of all their streams: a program may have several.
void SnapshotStage::WaitForDevices(const Snapshot& snapshot) {
  devices_.clear();
  made_plain_bytes_ = 0;
  for (const auto& [name, tensor] : snapshot.tensors) {
    const at::Device device = tensor.device();
    if (tensor.is_cpu() ||
        std::ranges::any_of(devices_, [device](const DeviceCopies& copies) {
          return copies.device() == device;
        })) {
      continue;
    }
    devices_.emplace_back(device, DeviceCopies::Direction::kToHost, &arena_);
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
  }
}

}  // namespace gavel
