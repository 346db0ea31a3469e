// Everything that the user tracks, under unique names. Training thread only.
#ifndef GAVEL_ITERATOR_TRACKED_STATE_H_
#define GAVEL_ITERATOR_TRACKED_STATE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "iterator/tracked_item.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

class TrackedState {
 public:
  // Adds, and restores from `restored` unless that is null. INVALID_ARGUMENT:
  // not a name ([A-Za-z0-9_.-]{1,64}, not "gavel"); ALREADY_EXISTS: twice;
  // NOT_FOUND: `restored` has no such entry; FAILED_PRECONDITION: it has one
  // of another kind or shape. Then it is not tracked.
  absl::Status Add(std::unique_ptr<TrackedItem> item, const Snapshot* restored);

  absl::Status Collect(Snapshot* snapshot);
  // All tensors together, so that those which share memory go on to do so. All
  // or nothing for the tensors.
  absl::Status MoveTo(at::Device device);
  // Of all tensors that move; what shares memory counts once.
  uint64_t SizeBytes() const;
  // What is in `restored` and not tracked: state that the program forgot.
  std::vector<std::string> Untracked(const Snapshot& restored) const;

  const std::vector<std::unique_ptr<TrackedItem>>& items() const {
    return items_;
  }

 private:
  std::vector<std::unique_ptr<TrackedItem>> items_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_STATE_H_
