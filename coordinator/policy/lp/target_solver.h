// Max-min over shares with a target for each job, max over X of min_m T_m(X) /
// target_m, and what it leaves to the jobs that gain most: by prices where the
// problem has their shape, by HiGHS where it has not, where prices did not
// prove enough, or where the problem says so. Called by the max-min and
// makespan policies. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_
#define GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// Relative: prices that prove less than this leave the problem to HiGHS.
inline constexpr double kPriceGapMax = 1e-8;
inline constexpr std::string_view kPricesSolver = "prices";
// Of HiGHS where prices were tried first.
inline constexpr std::string_view kAfterPrices = " after prices";

// The answer of prices() where they serve and prove it, or are chosen, else
// that of highs(). Answers are SolveReports.
template <class Prices, class Highs>
auto ByPricesOrHighs(SolverChoice choice, bool serves, Prices prices,
                     Highs highs) {
  const bool tried = serves && choice != SolverChoice::kHighs;
  if (tried) {
    auto answer = prices();
    if (answer.outcome == SolveOutcome::kOptimal ||
        choice == SolverChoice::kPrices) {
      return answer;
    }
  }
  auto answer = highs();
  if (tried) answer.solver += kAfterPrices;
  return answer;
}

// Demands that rise with a level, the highest of which is asked for.
struct LevelQuestion {
  PriceDemand demand;
  double level_max = 0;  // see HighestLevel
  std::function<double(std::span<const double> shares)> level_of;
  // [k] steps/s that a level takes.
  std::function<std::vector<double>(double level)> rates;
};

// By prices alone, which serve the problem; what the level leaves goes by
// `gain`. No `slope`.
TargetAnswer LevelByPrices(const ShareProblem& problem, LevelQuestion question,
                           std::span<const double> gain);

// `targets` [k] steps/s, > 0; `gain` [k] of a step/s of what is left over.
// `problem` has at least one job.
TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_TARGET_SOLVER_H_
