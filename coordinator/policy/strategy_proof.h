// The Nash product of jobs' throughputs (proportional fairness): max over X of
// sum over jobs of log(T_m(X) / largest_m), with largest_m the most that job m
// can have. Called by the strategy-proof policies, k + 1 times for k jobs, so
// it has a solver of its own: a primal-dual interior-point method whose Newton
// step costs one small block for each job and one system of as many rows as
// there are limits. Linear programs with tangents take hundreds of times as
// long. Pure.
#ifndef GAVEL_COORDINATOR_POLICY_STRATEGY_PROOF_H_
#define GAVEL_COORDINATOR_POLICY_STRATEGY_PROOF_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"

namespace gavel::policy {

// kOptimal: the bound proves the product to 1e-9 per job.
struct NashProduct : SolveReport {
  std::vector<double> shares;  // feasible
  double log_product = 0;      // of these shares
  // No X has a larger log_product. With prices p >= 0 of the limits, a = T(X)
  // at the shares and log t <= log a + t / a - 1:
  //   sum_m log a_m - k + sum_r p_r + sum_m max(0, max_c T_mc / a_m - p(c)).
  double bound = 0;  // to rounding
};

// Leaves out job `without`, which then has no time, and its logarithm. All
// units must be of one job only. If there is no job besides `without`, the
// product is empty: 0.
NashProduct MaximizeNashProduct(const ShareProblem& problem,
                                std::optional<size_t> without = std::nullopt);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_STRATEGY_PROOF_H_
