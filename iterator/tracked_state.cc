#include "iterator/tracked_state.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr std::string_view kKindPrefix = "gavel/tracked/";
constexpr std::string_view kGradientPrefix = "gavel/gradient/";
constexpr size_t kNameLengthMax = 64;

bool IsName(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kNameLengthMax && name != "gavel" &&
         std::all_of(name.begin(), name.end(), is_letter);
}

absl::Status CheckKind(const TrackedItem& item, const Snapshot& restored) {
  const auto kind = restored.bytes.find(StrCat(kKindPrefix, item.name()));
  if (kind == restored.bytes.end()) {
    return absl::NotFoundError(
        StrCat("the checkpoint has no '", item.name(),
               "'; track what the program that wrote it did, or start in an "
               "empty checkpoint directory"));
  }
  if (kind->second != item.kind()) {
    return absl::FailedPreconditionError(StrCat(
        "'", item.name(), "' is a ", item.kind(), " here and a ", kind->second,
        " in the checkpoint; give it another name, or "
        "start in an empty checkpoint directory"));
  }
  return absl::OkStatus();
}

// For messages.
std::string NameIn(TrackedItem& item, const at::Tensor& tensor) {
  for (const auto& [name, parameter] : item.Parameters()) {
    if (parameter.is_same(tensor)) return name;
  }
  return item.name();
}

absl::Status RestoreGradients(TrackedItem& item, const Snapshot& restored) {
  return CatchAsStatus(
      StrCat("restoring gradients of '", item.name(), "'"),
      [&]() -> absl::Status {
        for (auto& [name, parameter] : item.Parameters()) {
          const std::optional<OwnPart> part = item.PartOf(parameter);
          GAVEL_ASSIGN_OR_RETURN(
              const at::Tensor gradient,
              FindPart(restored, StrCat(kGradientPrefix, name),
                       part ? &*part : nullptr));
          if (!gradient.defined()) continue;
          parameter.mutable_grad() = gradient.to(
              parameter.options(), /*non_blocking=*/false, /*copy=*/true);
        }
        return absl::OkStatus();
      });
}

}  // namespace

absl::Status TrackedState::Shard(TrackedItem& item, const Sharded& sharded) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, item.Tensors());
  std::set<const c10::TensorImpl*> tracked;
  for (const auto& other : items_) {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> others,
                           other->Tensors());
    for (const at::Tensor& one : others) {
      tracked.insert(one.unsafeGetTensorImpl());
    }
  }
  bool marked = false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tracked.contains(tensor.unsafeGetTensorImpl())) {
      return absl::FailedPreconditionError(
          StrCat("'", item.name(),
                 "' has a tensor that is tracked already, also by an "
                 "optimizer; say what is sharded before that"));
    }
    GAVEL_RETURN_IF_ERROR(
        partitions_.Mark(NameIn(item, tensor), tensor, sharded));
    marked = marked || partitions_.Of(tensor, sharded).has_value();
  }
  if (marked && sharded.size >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("'", item.name(), "' has no tensor with a dimension ", sharded.dim,
             " to be sharded along; give one that it has, and a "
             "size of 0 or more"));
}

absl::Status TrackedState::Add(std::unique_ptr<TrackedItem> item,
                               const Snapshot* restored,
                               std::optional<Sharded> sharded) {
  if (!IsName(item->name())) {
    return absl::InvalidArgumentError(
        StrCat("'", item->name(),
               "' can't be tracked under this name; use 1 to 64 of "
               "A-Z a-z 0-9 _ - . (and not \"gavel\")"));
  }
  for (const auto& other : items_) {
    if (other->name() == item->name()) {
      return absl::AlreadyExistsError(StrCat(
          "'", item->name(), "' is tracked already; give each its own name"));
    }
    if (item->object() != nullptr && other->object() == item->object()) {
      return absl::AlreadyExistsError(StrCat(
          "'", item->name(), "' is the ", item->kind(), " that is tracked as '",
          other->name(), "' already; track it once"));
    }
  }
  if (sharded) {
    GAVEL_RETURN_IF_ERROR(Shard(*item, *sharded));
  }
  item->SetPartitions(partitions_, sharded);
  if (restored != nullptr) {
    GAVEL_RETURN_IF_ERROR(CheckKind(*item, *restored));
    GAVEL_RETURN_IF_ERROR(item->Restore(*restored));
    GAVEL_RETURN_IF_ERROR(RestoreGradients(*item, *restored));
  }
  items_.push_back(std::move(item));
  return absl::OkStatus();
}

absl::Status TrackedState::Collect(Snapshot* snapshot) {
  for (const auto& item : items_) {
    GAVEL_RETURN_IF_ERROR(item->Collect(snapshot));
    snapshot->bytes[StrCat(kKindPrefix, item->name())] = item->kind();
  }
  return absl::OkStatus();
}

void TrackedState::CollectGradients(Snapshot* snapshot) const {
  for (const auto& item : items_) {
    for (const auto& [name, parameter] : item->Parameters()) {
      if (!parameter.is_leaf() || !parameter.grad().defined()) continue;
      const std::string entry = StrCat(kGradientPrefix, name);
      snapshot->tensors.emplace_back(entry, parameter.grad());
      if (const auto part = item->PartOf(parameter)) {
        snapshot->partitions[entry] = part->partition;
      }
    }
  }
}

bool TrackedState::HasGradients(const Snapshot& snapshot) {
  const auto is_gradient = [](const auto& entry) {
    return std::string_view(entry.first).starts_with(kGradientPrefix);
  };
  return std::ranges::any_of(snapshot.tensors, is_gradient) ||
         std::ranges::any_of(snapshot.parts, is_gradient);
}

absl::StatusOr<std::vector<at::Tensor>> TrackedState::Movable() const {
  std::vector<at::Tensor> all;
  for (const auto& item : items_) {
    GAVEL_ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors, item->Tensors());
    for (at::Tensor& tensor : tensors) {
      const bool is_csr = tensor.defined() && tensor.layout() == at::kSparseCsr;
      if (!is_csr) all.push_back(std::move(tensor));
    }
  }
  return all;
}

absl::Status TrackedState::Park(const std::vector<HostCopy>& copies) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Movable());
  GAVEL_ASSIGN_OR_RETURN(const std::vector<TensorWithCopy> matches,
                         MatchCopies(tensors, copies));
  return parked_.Park(matches);
}

absl::Status TrackedState::Divide(const std::vector<HostCopy>& copies,
                                  const std::vector<at::Tensor>& gradients) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Movable());
  GAVEL_ASSIGN_OR_RETURN(const std::vector<TensorWithCopy> matches,
                         MatchCopies(tensors, copies));
  std::vector<OwnedTensor> owned;
  for (const auto& [tensor, copy] : matches) {
    if (copy.is_shared) owned.push_back({tensor, copy.owner});
  }
  if (owned.empty()) return absl::OkStatus();
  ShareOut(gradients, partitions_.world_size(), &owned);
  divided_.Divide(std::move(owned), partitions_.rank());
  return absl::OkStatus();
}

absl::Status TrackedState::MoveToHost() {
  GAVEL_RETURN_IF_ERROR(divided_.Leave());
  return MoveUnparked(at::Device(at::kCPU), MoveCopy::kIfNeeded);
}

absl::Status TrackedState::MoveTo(at::Device device, MoveCopy copy) {
  GAVEL_RETURN_IF_ERROR(divided_.Return(device));
  GAVEL_RETURN_IF_ERROR(parked_.Return(device));
  return MoveUnparked(device, copy);
}

absl::Status TrackedState::MoveUnparked(at::Device device, MoveCopy copy) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Movable());
  GAVEL_RETURN_IF_ERROR(MoveTensors(tensors, device, copy));
  for (const auto& item : items_) GAVEL_RETURN_IF_ERROR(item->Moved(device));
  return absl::OkStatus();
}

uint64_t TrackedState::SizeBytes() const {
  std::set<const void*> storages;
  uint64_t size_bytes = 0;
  for (const auto& item : items_) {
    const absl::StatusOr<std::vector<at::Tensor>> tensors = item->Tensors();
    if (!tensors.ok()) continue;  // said when it is moved
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined() || !tensor.has_storage()) continue;
      const at::Storage& storage = tensor.storage();
      if (!storages.insert(storage.unsafeGetStorageImpl()).second) continue;
      size_bytes += storage.nbytes();
    }
  }
  return size_bytes + divided_.missing_bytes();
}

std::vector<std::string> TrackedState::Untracked(
    const Snapshot& restored) const {
  std::vector<std::string> names;
  for (const auto& [key, kind] : restored.bytes) {
    if (!std::string_view(key).starts_with(kKindPrefix)) continue;
    const std::string name = key.substr(kKindPrefix.size());
    const bool tracked =
        std::any_of(items_.begin(), items_.end(),
                    [&](const auto& item) { return item->name() == name; });
    if (!tracked) names.push_back(name);
  }
  return names;
}

}  // namespace gavel::internal
