// Bounds a sum of logarithms of throughputs from above by a linear program:
// each logarithm is below all of its tangents. Called by nash_product.cc where
// its own solver does not prove enough. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_LOG_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_LP_LOG_PROGRAM_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// max sum_m log(T_m(X) / scale_m) over the jobs that count.
class LogProgram {
 public:
  // `scale`: [k], > 0; 0 for jobs that do not count. `problem` outlives it.
  LogProgram(const ShareProblem& problem, std::vector<double> scale);

  // Adds the tangents of log(T_m(X) / scale_m) where these ratios are: [k],
  // > 0 for the jobs that count.
  void AddTangents(std::span<const double> ratios);

  struct Answer {
    std::vector<double> shares;  // feasible; empty when the solver has none
    double bound = 0;            // no X has a larger sum
  };
  Answer Solve() const;

 private:
  const ShareProblem& problem_;
  std::vector<double> scale_;
  std::vector<std::vector<double>> points_;  // [k] where there are tangents
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_LOG_PROGRAM_H_
