// Everything that the user tracks, under unique names. Training thread only.
#ifndef GAVEL_ITERATOR_TRACKED_STATE_H_
#define GAVEL_ITERATOR_TRACKED_STATE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
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
  // of another kind or shape. Then it is not tracked.
  // `sharded`: Shard() before. Errors as of that, too.
  absl::Status Add(std::unique_ptr<TrackedItem> item, const Snapshot* restored,
                   std::optional<Sharded> sharded = std::nullopt);

  absl::Status Collect(Snapshot* snapshot);
  // The gradients of parameters, which Add() restores where there are any.
  void CollectGradients(Snapshot* snapshot) const;
  static bool HasGradients(const Snapshot& snapshot);
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
  // Of the state, what takes no host memory of its own.
  uint64_t parked_bytes() const {
    return parked_.size_bytes() + divided_.missing_bytes();
  }
  // Of all tensors that move; what shares memory counts once.
  uint64_t SizeBytes() const;
  // What is in `restored` and not tracked: state that the program forgot.
  std::vector<std::string> Untracked(const Snapshot& restored) const;

  const std::vector<std::unique_ptr<TrackedItem>>& items() const {
    return items_;
  }

 private:
  // Without those of CSR, which Moved() replaces.
  absl::StatusOr<std::vector<at::Tensor>> Movable() const;
  absl::Status MoveUnparked(at::Device device, MoveCopy copy);

  Partitions partitions_;
  std::vector<std::unique_ptr<TrackedItem>> items_;
  ParkedTensors parked_;
  DividedTensors divided_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_STATE_H_
