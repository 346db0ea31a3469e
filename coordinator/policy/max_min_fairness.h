// Max-min fairness, Gavel section 4.1: the least normalised throughput of all
// jobs is made as large as it can be. MakePolicy makes them; tests and
// researchers make them with options of the solver. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_MAX_MIN_FAIRNESS_H_
#define GAVEL_COORDINATOR_POLICY_MAX_MIN_FAIRNESS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/policy.h"

namespace gavel {

// kAgnostic: all accelerator types that a job can use count alike (least
// attained service). kAware: by the job's throughput on each.
enum class Heterogeneity : uint8_t { kAgnostic, kAware };

class MaxMinFairness : public Policy {
 public:
  explicit MaxMinFairness(Heterogeneity heterogeneity, LpOptions options = {})
      : heterogeneity_(heterogeneity), options_(options) {}

  std::string_view name() const override;
  // The objective is min over jobs of
  //   s_m / (w_m prop_m) * sum_j T[m][j] X[m][j],
  // prop_m = sum_j T[m][j] N_j / sum_j N_j, with T = 0 where the job cannot
  // run. What then is left over goes to whoever makes most of it, no one below
  // the optimum: the total of s_m / prop_m * sum_j T[m][j] X[m][j] is made as
  // large as it can be.
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override;

 private:
  Heterogeneity heterogeneity_;
  LpOptions options_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_MAX_MIN_FAIRNESS_H_
