// Everything that the user tracks, under unique names. Training thread only.
#ifndef GAVEL_ITERATOR_TRACKED_STATE_H_
#define GAVEL_ITERATOR_TRACKED_STATE_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "iterator/divided_tensors.h"
#include "iterator/parked_tensors.h"
#include "iterator/partitions.h"
#include "iterator/tracked_item.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/device_move.h"

namespace gavel::internal {

class TrackedState {
 public:
  // First of all: parts are cut for this gang.
  void SetGang(int rank, int world_size) {
    partitions_.SetGang(rank, world_size);
  }
  // Borrowed: for what moves between accelerators and host memory.
  void SetArena(Arena* arena) { arena_ = arena; }
  void SetRules(const RestoreRules& rules) { rules_ = rules; }
  // The tensors of `item` that have the dimension are this rank's parts.
  // INVALID_ARGUMENT: none has it, or as of Partitions::Mark;
  // FAILED_PRECONDITION: one is tracked already.
  absl::Status Shard(TrackedItem& item, const Sharded& sharded);
  bool has_parts() const { return !partitions_.empty(); }
  bool IsPart(const at::Tensor& tensor) const {
    return partitions_.Find(tensor).has_value();
  }

  // Adds, and restores from `restored` unless that is null. INVALID_ARGUMENT:
  // not a name ([A-Za-z0-9_.-]{1,64}, not "gavel"); ALREADY_EXISTS: twice,
  // by name or by object;
  // NOT_FOUND: `restored` has no such entry; FAILED_PRECONDITION: it has one
  // of another kind or shape, or a tensor that `item` has no place for, or
  // lacks one. Then it is not tracked. INVALID_ARGUMENT also: it has a tensor
  // that can't be saved. `sharded`: Shard() before. Errors as of that, too.
  absl::Status Add(std::unique_ptr<TrackedItem> item, const Snapshot* restored,
                   std::optional<Sharded> sharded = std::nullopt);

  // Warnings of Add() and CheckRestorable(), a line each.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }
  // All is tracked. FAILED_PRECONDITION: an optimizer trains parameters that
  // nothing tracked has (where `parameters` is true), or a scheduler has an
  // optimizer that is not tracked; or `restored`, unless null, has tensors that
  // nothing took.
  absl::Status CheckWhole(const Snapshot* restored, bool parameters) const;

  absl::Status Collect(Snapshot* snapshot);
  // After a step: whether all can be saved, and then be restored by a program
  // that tracks what this one did. Names what can't.
  absl::Status CheckRestorable();
  // The gradients of parameters, which Add() restores where there are any.
  absl::Status CollectGradients(
      const std::function<bool(const at::Tensor& parameter)>& saves,
      Snapshot* snapshot) const;
  // All tensors together, so that those which share memory go on to do so. All
  // or nothing for the tensors.
  absl::Status MoveTo(at::Device device, MoveCopy copy = MoveCopy::kIfNeeded);
  // What has a copy in host memory looks into that, see ParkedTensors, until
  // MoveTo().
  absl::Status Park(const std::vector<HostCopy>& copies);
  // What all ranks of the gang have, `gradients` too, is kept by one of them
  // from the next MoveToHost() on, see DividedTensors, until FillDivided().
  // `copies`: all ranks'.
  absl::Status Divide(const std::vector<HostCopy>& copies,
                      const std::vector<at::Tensor>& gradients);
  // The gang has sent what was missing.
  void FillDivided() { divided_.Forget(); }
  const DividedTensors& divided() const { return divided_; }
  // The rest goes to host memory.
  absl::Status MoveToHost();
  // The bytes of all tensors that move; shared memory counts once.
  uint64_t SizeBytes() const { return Bytes(/*with_gradients=*/false); }
  // The arena's memory that MoveToHost() takes for the state and its gradients.
  uint64_t MoveBytes() const { return Bytes(/*with_gradients=*/true); }
  // What is in `restored` and not tracked: state that the program forgot.
  std::vector<std::string> Untracked(const Snapshot& restored) const;

  const std::vector<std::unique_ptr<TrackedItem>>& items() const {
    return items_;
  }

 private:
  // Without those of CSR, which Moved() replaces.
  absl::StatusOr<std::vector<at::Tensor>> Movable() const;
  absl::Status MoveUnparked(at::Device device, MoveCopy copy);
  uint64_t Bytes(bool with_gradients) const;

  // A tensor as it was when it was tracked; an undefined one becomes any.
  struct Place {
    bool defined = false;
    at::ScalarType dtype = at::ScalarType::Undefined;
    std::vector<int64_t> sizes;
  };
  using Places = std::optional<std::map<std::string, Place>>;
  static absl::StatusOr<Places> PlacesOf(TrackedItem& item);
  static absl::Status CheckPlaces(TrackedItem& item, const Places& before);
  absl::Status CheckTaken(TrackedItem& item, const Snapshot& restored);
  bool IsTracked(std::string_view name) const;

  Arena* arena_ = nullptr;
  Partitions partitions_;
  RestoreRules rules_;
  std::vector<std::string> notes_;
  std::vector<Places> places_;  // of items_
  std::vector<std::unique_ptr<TrackedItem>> items_;
  ParkedTensors parked_;
  DividedTensors divided_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_STATE_H_
