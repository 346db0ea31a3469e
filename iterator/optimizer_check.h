// Finds an optimizer that the user forgot to track. LibTorch tells nobody which
// optimizers there are; but a tracked parameter that changes from
// step to step, is trained (has a gradient) and belongs to no tracked optimizer
// gives it away. Looks at the first steps only, at a bounded number of bytes.
// Training thread only.
#ifndef GAVEL_ITERATOR_OPTIMIZER_CHECK_H_
#define GAVEL_ITERATOR_OPTIMIZER_CHECK_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

class OptimizerCheck {
 public:
  // Boundaries after which it is no longer asked.
  static constexpr int kStepsMax = 3;

  // Before the first step: remembers the values of such parameters.
  absl::Status Begin(const TrackedState& tracked);
  // After a step. FAILED_PRECONDITION: the message names the parameter and the
  // remedy.
  absl::Status Check();
  bool done() const { return watched_.empty() || checks_ >= kStepsMax; }

 private:
  struct Watched {
    std::string name;
    at::Tensor parameter;
    at::Tensor before;
  };
  std::vector<Watched> watched_;
  bool has_optimizer_ = false;
  int checks_ = 0;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPTIMIZER_CHECK_H_
