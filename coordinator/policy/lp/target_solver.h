// Max-min over shares with a target for each job, max over X of min_m T_m(X) /
// target_m, and what it leaves to whoever makes most of it: by prices where the
// problem has their shape, by HiGHS where it has not, where prices did not
// prove enough, or where the problem says so. Called by the max-min and
// makespan policies. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_
#define GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_

#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel {

// Relative: prices that prove less than this leave the problem to HiGHS.
inline constexpr double kPriceGapMax = 1e-8;
inline constexpr std::string_view kPricesSolver = "prices";
// Of HiGHS where prices were tried first.
inline constexpr std::string_view kAfterPrices = " after prices";

struct TargetAnswer {
  SolveOutcome outcome = SolveOutcome::kFailed;
  std::string detail;
  std::string solver;
  int iterations = 0;          // passes of prices, or of HiGHS' methods
  std::vector<double> shares;  // feasible; EvenShares at least
  double level = 0;            // theirs
  double bound = 0;            // no X has a higher level; see bound.h
};

// `targets` [k] steps/s, > 0; `gain` [k] of a step/s of what is left over.
// `problem` has at least one job.
TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options = {});

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_
