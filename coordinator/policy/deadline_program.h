// Linear programs over shares in which some jobs have deadlines (Gavel section
// 4.2, service-level objectives): T_m(X) >= rem_m / deadline_m for each of
// them. If no allocation meets all deadlines, the program allows the least
// total shortfall and names the jobs that fall short. Called by policies that
// keep deadlines. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_DEADLINE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_DEADLINE_PROGRAM_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"

namespace gavel::policy {

// The throughput that a job needs to meet its deadline.
struct DeadlineFloor {
  size_t job = 0;         // m, of the ShareProblem
  double needs = 0;       // rem_m / deadline_m, steps/s
  bool passed = false;    // then `needs` is the most it can have
  double in_program = 0;  // `needs`, limited to what a solver can handle
};

// Returns the floors of all jobs that have a deadline and work left.
std::vector<DeadlineFloor> DeadlineFloors(const PolicyProblem& problem,
                                          const ShareProblem& shares);

class DeadlineProgram {
 public:
  // `problem` and `shares` must outlive the program.
  DeadlineProgram(const PolicyProblem& problem, const ShareProblem& shares,
                  std::vector<DeadlineFloor> floors, LpOptions options = {});

  // Feasible shares, their report and their bound. kInfeasible: the deadlines
  // can't all be met, and `detail` names the jobs that fall short. `shares` is
  // set in this case, too: it has the least total shortfall, and the most of
  // the objective among all with that shortfall.
  struct Answer : SolveReport {
    std::vector<double> shares;  // one per cell; empty: the solver has none
    // Upper bound on the objective of every X whose total shortfall is no
    // larger, proved by the duals or prices.
    double bound = 0;
  };

  // Maximizes the objective. Uses prices if they serve the problem, all floors
  // can be kept, and the prices prove the answer optimal; otherwise HiGHS (see
  // PolicyProblem::solver). A later call starts from where the last one ended.
  // `gap_max` is the gap that prices have to reach, relative to the objective
  // without rent.
  Answer Maximize(const SumObjective& objective, double gap_max = kPriceGap);

 private:
  // Looks for shares that keep all floors and stores them in known_. Returns
  // false if it found none; if prices prove that there are none, the proof is
  // then in proof_.
  bool SettleFloors();
  bool KeepsFloors(std::span<const double> shares, double slack) const;
  std::string NameOf(size_t limit) const;
  std::string Proof(std::span<const double> prices, double level) const;
  // Returns empty shares if prices don't serve, or did not prove enough.
  Answer ByPrices(const SumObjective& objective, double gap_max);
  Answer ByHighs(const SumObjective& objective);
  LpSolution Relax();
  Answer AnswerOf(const LpSolution& solution, const SumObjective& objective,
                  double scale) const;
  // The bound of the program as it is now. It holds also for pairs that are not
  // listed yet.
  double BoundOf(const LpSolution& solution, const SumObjective* objective,
                 double scale) const;
  std::string WhoFallsShort(std::span<const double> shares) const;
  // Turns an optimal answer into kInfeasible, with the jobs that fall short in
  // `detail`, if the deadlines can't all be met.
  void TellWhoFallsShort(Answer* answer) const;

  const PolicyProblem& problem_;
  const ShareProblem& shares_;
  std::vector<DeadlineFloor> floors_;
  LpOptions options_;
  ShareProgram program_;
  std::vector<double> needs_;  // [k] steps/s from floors_; 0: no deadline
  // Column of the total shortfall that is allowed: the sum over m of max(0, 1 -
  // T_m(X) / floor_m).
  int budget_;
  std::unique_ptr<PriceProgram> prices_;  // null: they don't serve
  std::vector<double> known_;  // shares that keep all floors, by prices
  std::string proof_;          // text: the floors can't all be kept
  std::unique_ptr<HighsSolver> solver_;  // null: not needed so far
  bool relaxed_;                         // the least budget is known
  bool infeasible_;  // that budget is not 0, or a deadline has passed
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_DEADLINE_PROGRAM_H_
