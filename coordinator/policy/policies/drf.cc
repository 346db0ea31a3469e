// Dominant resource fairness (Ghodsi et al., NSDI 2011): the resource is
// accelerators of any type that a job can use, and its dominant share is the
// part of all accelerators that it holds over time. The least of
//   s_m sum_c X[m][c] / (w_m sum_j N_j)
// is made as large as it can be, then the second least, and so on: progressive
// filling, whatever the throughputs.
#include <vector>

#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"
#include "coordinator/policy/share/water_filling.h"

namespace gavel::policy {

PolicyResult SolveDrf(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem, {.agnostic = true});
  // With T = 1 the throughput is the time that the job runs.
  std::vector<double> factor = shares.scale_factor;
  for (double& value : factor) value /= shares.accelerators();
  return SolveFlatWaterFilling(shares, factor, problem.solver);
}

}  // namespace gavel::policy
