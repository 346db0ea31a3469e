// Linear programs over shares in which some jobs have deadlines (Gavel section
// 4.2, service-level objectives): T_m(X) >= rem_m / deadline_m for each of
// them. Where no allocation gives all of them what they need it relaxes the
// least and says which jobs fall short. Called by policies that keep deadlines.
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_DEADLINE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_LP_DEADLINE_PROGRAM_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/price_program.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// What a job needs to meet its deadline.
struct DeadlineFloor {
  size_t job = 0;         // m, of the ShareProblem
  double needs = 0;       // rem_m / deadline_m, steps/s
  bool passed = false;    // then it needs what it can have
  double in_program = 0;  // the same; but not beyond what a solver can handle
};

// Of the jobs with a deadline and work left.
std::vector<DeadlineFloor> DeadlineFloors(const PolicyProblem& problem,
                                          const ShareProblem& shares);

class DeadlineProgram {
 public:
  // Both outlive it.
  DeadlineProgram(const PolicyProblem& problem, const ShareProblem& shares,
                  std::vector<DeadlineFloor> floors, LpOptions options = {});

  // Feasible, and what is known of it.
  // kInfeasible: some deadline can't be met (`detail` says whose); the shares,
  // the best of those with the least total shortfall, are there all the same.
  struct Answer : SolveReport {
    std::vector<double> shares;  // one per cell; empty: the solver has none
    // No X that falls short as little has more: by the duals.
    double bound = 0;
  };

  // The most of the objective; by prices where the problem has their shape, all
  // floors can be kept and they prove it, else by HiGHS (see
  // PolicyProblem::solver). Later calls start from where the last one ended.
  // `gap_max`: to which prices are to prove it, of the gain.
  Answer Maximize(const SumObjective& objective, double gap_max = kPriceGap);

 private:
  // Shares that keep all floors into known_, or the prices that prove that
  // there are none into proof_. False: neither.
  bool SettleFloors();
  bool KeepsFloors(std::span<const double> shares, double slack) const;
  std::string NameOf(size_t limit) const;
  std::string Proof(std::span<const double> prices, double level) const;
  // Empty shares: prices don't serve, or did not prove enough.
  Answer ByPrices(const SumObjective& objective, double gap_max);
  Answer ByHighs(const SumObjective& objective);
  LpSolution Relax();
  Answer AnswerOf(const LpSolution& solution, const SumObjective& objective,
                  double scale) const;
  // The bound of the program as it is, pairs that are not listed included.
  double BoundOf(const LpSolution& solution, const SumObjective* objective,
                 double scale) const;
  std::string WhoFallsShort(std::span<const double> shares) const;
  // What is optimal in a problem that is not feasible.
  void TellWhoFallsShort(Answer* answer) const;

  const PolicyProblem& problem_;
  const ShareProblem& shares_;
  std::vector<DeadlineFloor> floors_;
  LpOptions options_;
  ShareProgram program_;
  std::vector<double> needs_;  // [k] steps/s of floors_, 0: no deadline
  // Column: the total shortfall that is allowed, sum_m of 1 - T_m(X) / floor_m
  // where that is positive.
  int budget_;
  std::unique_ptr<PriceProgram> prices_;  // null: they don't serve
  std::vector<double> known_;             // keep all floors; by prices
  std::string proof_;                     // that they can't be kept
  std::unique_ptr<HighsSolver> solver_;   // null: not needed so far
  bool relaxed_;                          // the least budget is known
  bool infeasible_;  // it is not 0, or a deadline has passed
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_DEADLINE_PROGRAM_H_
