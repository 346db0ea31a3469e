// What accelerators cost, for the policies that look at it. Pure function,
// thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_COSTS_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_COSTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace gavel::policy {

// [J] per accelerator and hour; 1 each where the problem has none. Its owner
// divides by them: INVALID_ARGUMENT names a type that costs nothing.
inline absl::StatusOr<std::vector<double>> Costs(const PolicyProblem& problem) {
  std::vector<double> cost = problem.cost;
  if (cost.empty()) cost.assign(problem.types.size(), 1.0);
  for (size_t j = 0; j < cost.size(); ++j) {
    if (cost[j] > 0) continue;
    return absl::InvalidArgumentError(
        StrCat("type ", problem.types[j],
               ": cost 0; give one above 0, or another policy"));
  }
  return cost;
}

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_COSTS_H_
