// The state at the last step boundary, kept while code outside of a step runs
// (an evaluation at the end of an epoch), so that it can be checkpointed from
// there: numbers and bytes as copies, tensors as they are, for as long as
// nobody has written to them. That is known from where they are and LibTorch's
// version counters: writes through Tensor::data() or a raw pointer are not
// seen.
// Training thread only.
#ifndef GAVEL_ITERATOR_STEP_MARK_H_
#define GAVEL_ITERATOR_STEP_MARK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

class StepMark {
 public:
  // `snapshot`: of `tracked`, at this boundary.
  absl::Status Set(uint64_t steps_done, const Snapshot& snapshot,
                   const TrackedState& tracked);
  // The runtime itself moved the tensors of a mark that held.
  absl::Status Rebase(const TrackedState& tracked) {
    return ReadVersions(tracked, &versions_);
  }

  // The tensors are what they were, and no step was done since.
  bool Holds(uint64_t steps_done, const TrackedState& tracked) const;
  // Of a snapshot as of now makes the one of the boundary. Only while it holds.
  void Restore(Snapshot* snapshot) const;

 private:
  struct Version {
    const void* tensor = nullptr;  // c10::TensorImpl, for comparison
    const void* memory = nullptr;
    int64_t version = 0;
    bool operator==(const Version&) const = default;
  };
  static absl::Status ReadVersions(const TrackedState& tracked,
                                   std::vector<Version>* versions);

  bool is_set_ = false;
  uint64_t steps_done_ = 0;
  std::map<std::string, std::string> bytes_;
  std::vector<Version> versions_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_STEP_MARK_H_
