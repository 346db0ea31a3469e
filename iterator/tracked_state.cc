#include "iterator/tracked_state.h"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr std::string_view kKindPrefix = "gavel/tracked/";
constexpr std::string_view kGradientPrefix = "gavel/gradient/";
constexpr size_t kNameLengthMax = 64;

constexpr char kPartialRemedy[] =
    "; restore with the program that wrote it, start in an empty checkpoint "
    "directory, or set SessionOptions::partial_restore "
    "(GAVEL_PARTIAL_RESTORE=1) to go on without it";

// The name that it was tracked under.
std::string_view ItemOf(std::string_view tensor) {
  return tensor.substr(0, tensor.find('/'));
}

std::string ShapeText(at::ScalarType dtype, at::IntArrayRef sizes) {
  return StrCat(c10::toString(dtype), c10::str(sizes));
}

std::set<std::string> TensorNames(const Snapshot& snapshot) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : snapshot.tensors) names.insert(name);
  for (const auto& [name, parts] : snapshot.parts) names.insert(name);
  return names;
}

absl::Status CheckStorableAll(const Snapshot& snapshot) {
  for (const auto& [name, tensor] : snapshot.tensors) {
    GAVEL_RETURN_IF_ERROR(CheckStorable(name, tensor));
  }
  return absl::OkStatus();
}

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

struct RestoredTensors {
  std::mutex mutex;
  std::set<const void*> tensors;
};

RestoredTensors& AllRestored() {
  static auto* const restored = new RestoredTensors;  // ends with the process
  return *restored;
}

absl::Status NoteRestored(TrackedItem& item) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, item.Tensors());
  RestoredTensors& restored = AllRestored();
  const std::lock_guard lock(restored.mutex);
  for (const at::Tensor& tensor : tensors) {
    restored.tensors.insert(tensor.unsafeGetTensorImpl());
  }
  return absl::OkStatus();
}

absl::Status RestoreGradients(TrackedItem& item, const Snapshot& restored) {
  return CatchAsStatus(
      StrCat("restoring gradients of '", item.name(), "'"),
      [&]() -> absl::Status {
        for (auto& [name, parameter] : item.Parameters()) {
          const std::string entry = StrCat(kGradientPrefix, name);
          if (!HasTensor(restored, entry)) continue;
          at::Tensor gradient;
          GAVEL_RETURN_IF_ERROR(
              RestoreTensor(restored, entry, item.PartOf(parameter), gradient));
          if (!gradient.defined()) continue;
          parameter.mutable_grad() = gradient.to(parameter.device());
        }
        return absl::OkStatus();
      });
}

}  // namespace

bool WasRestored(const at::Tensor& tensor) {
  RestoredTensors& restored = AllRestored();
  const std::lock_guard lock(restored.mutex);
  return restored.tensors.contains(tensor.unsafeGetTensorImpl());
}

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
  item->SetRules(rules_);
  GAVEL_ASSIGN_OR_RETURN(Places places, PlacesOf(*item));
  if (restored != nullptr) {
    const absl::Status kind = CheckKind(*item, *restored);
    if (kind.ok()) {
      GAVEL_RETURN_IF_ERROR(item->Restore(*restored));
      GAVEL_RETURN_IF_ERROR(RestoreGradients(*item, *restored));
      GAVEL_RETURN_IF_ERROR(CheckTaken(*item, *restored));
      GAVEL_RETURN_IF_ERROR(NoteRestored(*item));
      for (const auto& other : items_) {
        const auto* const optimizer = OptimizerOf(*other);
        if (optimizer != nullptr && IsSchedulerOf(*item, *optimizer)) {
          ApplySchedule(*item);
        }
      }
    } else if (rules_.partial && absl::IsNotFound(kind)) {
      notes_.push_back(StrCat("the checkpoint has no '", item->name(),
                              "', which begins as the program made it"));
    } else {
      return kind;
    }
  }
  for (std::string& note : item->TakeNotes()) notes_.push_back(std::move(note));
  places_.push_back(std::move(places));
  items_.push_back(std::move(item));
  return absl::OkStatus();
}

absl::StatusOr<TrackedState::Places> TrackedState::PlacesOf(TrackedItem& item) {
  GAVEL_ASSIGN_OR_RETURN(const auto tensors, item.Places());
  if (!tensors) return Places();
  std::map<std::string, Place> places;
  for (const auto& [name, tensor] : *tensors) {
    Place& place = places[name];
    if (!tensor.defined()) continue;
    place = {true, tensor.scalar_type(), tensor.sizes().vec()};
  }
  return Places(std::move(places));
}

// The restored item must have all tensors of the checkpoint, and no others.
absl::Status TrackedState::CheckTaken(TrackedItem& item,
                                      const Snapshot& restored) {
  if (!item.has_tensors()) return absl::OkStatus();
  Snapshot own;
  GAVEL_RETURN_IF_ERROR(item.Collect(&own));
  const std::set<std::string> has = TensorNames(own);
  const std::set<std::string> saved = TensorNames(restored);
  for (const std::string& name : saved) {
    if (ItemOf(name) != item.name() || has.contains(name)) continue;
    const std::string line =
        StrCat("the checkpoint has the tensor '", name, "', for which '",
               item.name(), "' has no place here");
    if (!rules_.partial) {
      return absl::FailedPreconditionError(
          StrCat(line,
                 "; if the first forward pass makes it, register it before, "
                 "undefined, and hold it by reference",
                 kPartialRemedy));
    }
    notes_.push_back(StrCat(line, ": it is left out"));
  }
  for (const std::string& name : has) {
    if (saved.contains(name) || rules_.partial) continue;
    return absl::FailedPreconditionError(
        StrCat("the checkpoint has no tensor '", name, "'", kPartialRemedy));
  }
  return absl::OkStatus();
}

bool TrackedState::IsTracked(std::string_view name) const {
  return std::ranges::any_of(
      items_, [name](const auto& item) { return item->name() == name; });
}

absl::Status TrackedState::CheckWhole(const Snapshot* restored,
                                      bool parameters) const {
  if (restored != nullptr && !rules_.partial) {
    for (const std::string& name : TensorNames(*restored)) {
      const std::string_view item = ItemOf(name);
      if (item == "gavel" || IsTracked(item)) continue;
      return absl::FailedPreconditionError(
          StrCat("the checkpoint has '", item, "' with the tensor '", name,
                 "', and this program does not track it", kPartialRemedy));
    }
  }
  std::set<const void*> tracked;
  for (const auto& item : items_) {
    for (const auto& [name, parameter] : item->Parameters()) {
      if (!parameter.defined()) continue;
      tracked.insert(parameter.unsafeGetTensorImpl());
      if (parameter.has_storage()) {
        tracked.insert(parameter.storage().unsafeGetStorageImpl());
      }
    }
  }
  std::vector<const torch::optim::Optimizer*> optimizers;
  for (const auto& item : items_) {
    const torch::optim::Optimizer* const optimizer = OptimizerOf(*item);
    if (optimizer == nullptr) continue;
    optimizers.push_back(optimizer);
    size_t lost = 0;
    size_t count = 0;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        ++count;
        const bool is_tracked =
            tracked.contains(parameter.unsafeGetTensorImpl()) ||
            (parameter.has_storage() &&
             tracked.contains(parameter.storage().unsafeGetStorageImpl()));
        if (!is_tracked && parameter.requires_grad()) ++lost;
      }
    }
    if (lost == 0 || !parameters) continue;
    return absl::FailedPreconditionError(StrCat(
        "optimizer '", item->name(), "' trains ", count,
        " parameters, of which ", lost,
        " belong to nothing that is tracked, and would be lost at a "
        "restart; call session->Track(\"model\", model) before the loop, or "
        "set SessionOptions::require_tracked_parameters to false if they are "
        "saved in another way"));
  }
  for (const auto& item : items_) {
    if (!IsScheduler(*item)) continue;
    if (std::ranges::any_of(optimizers, [&](const auto* optimizer) {
          return IsSchedulerOf(*item, *optimizer);
        })) {
      continue;
    }
    return absl::FailedPreconditionError(StrCat(
        "'", item->name(),
        "' is the schedule of an optimizer that is not "
        "tracked, so the learning rate that it has set would be lost at a "
        "restart; track its optimizer, too, before the loop"));
  }
  return absl::OkStatus();
}

absl::Status TrackedState::CheckPlaces(TrackedItem& item,
                                       const Places& before) {
  if (!before) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const auto tensors, item.Places());
  if (!tensors) return absl::OkStatus();
  for (const auto& [name, tensor] : *tensors) {
    if (!tensor.defined()) continue;
    const auto found = before->find(name);
    if (found == before->end()) {
      return absl::FailedPreconditionError(StrCat(
          "tensor '", name, "' was made after '", item.name(),
          "' was tracked, "
          "so that a restart would have no place for it; make it before Track "
          "(a buffer may be registered undefined and be held by reference, a "
          "list be empty)"));
    }
    const Place& place = found->second;
    if (!place.defined || (place.dtype == tensor.scalar_type() &&
                           tensor.sizes() == at::IntArrayRef(place.sizes))) {
      continue;
    }
    return absl::FailedPreconditionError(StrCat(
        "tensor '", name, "' was ", ShapeText(place.dtype, place.sizes),
        " when it was tracked and is ",
        ShapeText(tensor.scalar_type(), tensor.sizes()),
        " now, which a restart could not restore; make it what it will be "
        "before Track, or track it undefined"));
  }
  return absl::OkStatus();
}

absl::Status TrackedState::CheckRestorable() {
  Snapshot snapshot;
  GAVEL_RETURN_IF_ERROR(Collect(&snapshot));
  GAVEL_RETURN_IF_ERROR(CheckStorableAll(snapshot));
  for (size_t i = 0; i < items_.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(CheckPlaces(*items_[i], places_[i]));
    items_[i]->LookForLosses();
    for (std::string& note : items_[i]->TakeNotes()) {
      notes_.push_back(std::move(note));
    }
  }
  return absl::OkStatus();
}

absl::Status TrackedState::Collect(Snapshot* snapshot) {
  for (const auto& item : items_) {
    GAVEL_RETURN_IF_ERROR(item->Collect(snapshot));
    snapshot->bytes[StrCat(kKindPrefix, item->name())] = item->kind();
  }
  return absl::OkStatus();
}

absl::Status TrackedState::CollectGradients(
    const std::function<bool(const at::Tensor& parameter)>& saves,
    Snapshot* snapshot) const {
  for (const auto& item : items_) {
    for (const auto& [name, parameter] : item->Parameters()) {
      if (!parameter.defined() || !parameter.is_leaf()) continue;
      if (!parameter.grad().defined() || !saves(parameter)) continue;
      GAVEL_RETURN_IF_ERROR(CollectTensor(StrCat(kGradientPrefix, name),
                                          parameter.grad(),
                                          item->PartOf(parameter), snapshot));
    }
  }
  return absl::OkStatus();
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
  GAVEL_RETURN_IF_ERROR(parked_.Return(device, arena_));
  return MoveUnparked(device, copy);
}

absl::Status TrackedState::MoveUnparked(at::Device device, MoveCopy copy) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Movable());
  GAVEL_RETURN_IF_ERROR(MoveTensors(tensors, device, copy, arena_));
  for (const auto& item : items_) GAVEL_RETURN_IF_ERROR(item->Moved(device));
  return absl::OkStatus();
}

uint64_t TrackedState::Bytes(bool with_gradients) const {
  std::set<const void*> storages;
  uint64_t size_bytes = 0;
  const std::function<void(const at::Tensor&)> add =
      [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        if (with_gradients && tensor.layout() == at::kSparse) {
          add(tensor._indices());
          add(tensor._values());
        }
        if (!tensor.has_storage()) return;
        const at::Storage& storage = tensor.storage();
        if (!storages.insert(storage.unsafeGetStorageImpl()).second) return;
        size_bytes += storage.nbytes();
      };
  for (const auto& item : items_) {
    const absl::StatusOr<std::vector<at::Tensor>> tensors = item->Tensors();
    if (!tensors.ok()) continue;  // said when it is moved
    for (const at::Tensor& tensor : *tensors) {
      add(tensor);
      if (with_gradients && tensor.defined() && tensor.is_leaf()) {
        add(tensor.grad());
      }
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
    if (!IsTracked(name)) names.push_back(name);
  }
  return names;
}

std::optional<OwnPart> Partitions::Of(const at::Tensor& tensor,
                                      const Sharded& sharded) const {
  if (!tensor.defined() || sharded.dim < 0 || sharded.dim >= tensor.dim()) {
    return std::nullopt;
  }
  const int64_t size =
      sharded.size > 0 ? sharded.size : tensor.size(sharded.dim) * world_size_;
  return OwnPart{{sharded.dim, size}, rank_, world_size_};
}

absl::Status Partitions::Mark(const std::string& name, const at::Tensor& tensor,
                              const Sharded& sharded) {
  const std::optional<OwnPart> part = Of(tensor, sharded);
  if (!part) return absl::OkStatus();
  if (tensor.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        StrCat("tensor '", name,
               "' is sparse, and only dense tensors are cut over workers; "
               "track it without gavel::Sharded"));
  }
  const int64_t here = tensor.size(sharded.dim);
  const int64_t wanted = part->range().size();
  if (here != wanted) {
    return absl::InvalidArgumentError(
        StrCat("tensor '", name, "' has ", here, " elements in dimension ",
               sharded.dim, " on rank ", rank_, " of ", world_size_,
               ", whose part of ", part->partition.size, " has ", wanted,
               "; make it with as many, as torch.chunk cuts"));
  }
  marked_.emplace(tensor.unsafeGetTensorImpl(), std::pair(tensor, *part));
  return absl::OkStatus();
}

std::optional<OwnPart> Partitions::Find(const at::Tensor& tensor) const {
  const auto found = marked_.find(tensor.unsafeGetTensorImpl());
  if (found == marked_.end()) return std::nullopt;
  return found->second.second;
}

}  // namespace gavel::internal
