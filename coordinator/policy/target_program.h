// Max-min over shares with a target for each job: max over X of min_m T_m(X) /
// target_m, the linear program of makespan and finish-time fairness (Gavel
// section 4.2). Called by those policies. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_TARGET_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_TARGET_PROGRAM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_pass.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"

namespace gavel::policy {

// The least T_m(X) / target_m.
double Level(const ShareProblem& problem, std::span<const double> targets,
             std::span<const double> shares);

struct TargetAnswer : SolveReport {
  std::vector<double> shares;  // feasible; EvenShares at least
  double level = 0;            // theirs
  double bound = 0;            // no X has a higher level; see bound.h
  // Set by linear programs: a linear inequality that all feasible X satisfy,
  // sum_m slope[m] T_m(X) <= slope_bound, with slope >= 0. It proves `bound`:
  // at targets * level it is tight. Empty: the solver has no duals.
  std::vector<double> slope;
  double slope_bound = 0;
};

class TargetProgram {
 public:
  // `targets`: [k] steps/s, > 0. `problem` has at least one job, and outlives
  // the program.
  TargetProgram(const ShareProblem& problem, std::vector<double> targets,
                LpOptions options = {});

  TargetAnswer Solve();

  // After Solve: of all X with T_m(X) >= level target_m, to 1e-9, one with the
  // most sum_m gain[m] T_m(X). Empty when the solver fails.
  std::vector<double> SpendTheRest(double level, std::span<const double> gain);
  // Its shares are discarded if they lost more than this part of the optimum.
  static constexpr double kLossMax = 1e-8;

 private:
  void AddTargets();
  TargetAnswer AnswerOf(const LpSolution& solution) const;
  void AddCertificate(const LpSolution& solution, TargetAnswer* answer) const;

  const ShareProblem& problem_;
  std::vector<double> targets_;
  LpOptions options_;
  double unit_ = 1;  // the level that counts as 1 in the program
  ShareProgram program_;
  size_t share_rows_ = 0;  // rows before those of the targets
  int level_column_ = 0;
  std::vector<double> row_factor_;  // [k] of T_m(X) in its row
  std::unique_ptr<HighsSolver> solver_;
};

// The functions below solve max-min over shares with a target for each job, max
// over X of min_m T_m(X) / target_m, and give the leftovers to the jobs that
// gain most. They use prices where the problem has their shape, and HiGHS where
// it has not, where prices did not prove enough, or where the problem asks for
// it. The max-min and makespan policies call them. Pure functions, thread-safe.

// Relative: prices that prove less than this leave the problem to HiGHS.
inline constexpr double kPriceGapMax = 1e-8;
inline constexpr std::string_view kPricesSolver = "prices";
// Appended to the name of HiGHS where prices were tried first.
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

// Solves by prices alone; the problem must have their shape. The leftovers of
// the level go to jobs by `gain`. Sets no `slope`.
TargetAnswer LevelByPrices(const ShareProblem& problem, LevelQuestion question,
                           std::span<const double> gain);

// `targets` [k] steps/s, > 0; `gain` [k] is the value of a step/s of the
// leftovers. `problem` has at least one job.
TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_TARGET_PROGRAM_H_
