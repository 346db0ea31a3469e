// What people read for the outcome of a solve. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_OUTCOME_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_OUTCOME_H_

#include <string_view>

#include "coordinator/policy/policy.h"

namespace gavel {

inline std::string_view OutcomeName(SolveOutcome outcome) {
  switch (outcome) {
    case SolveOutcome::kOptimal:
      return "optimal";
    case SolveOutcome::kIterationLimit:
      return "iteration_limit";
    case SolveOutcome::kInfeasible:
      return "infeasible";
    case SolveOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_OUTCOME_H_
