// The price method (price_levels.h) on a ShareProblem: what the
// policies call in place of a linear program. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_PROGRAM_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_pass.h"
#include "coordinator/policy/lp/price_water.h"
#include "coordinator/policy/share/demands.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// sum_m gain_m sum_j worth_j T[m][j] X[m][j] - sum_mj rent_j s_m X[m][j].
struct SumObjective {
  std::vector<double> gain;   // [k], >= 0
  std::vector<double> worth;  // [J], >= 0
  std::vector<double> rent;   // [J], >= 0
};

// [cells] the objective's coefficients.
std::vector<double> CellValues(const ShareProblem& problem,
                               const SumObjective& objective);

// Which of ShareProblem::limits holds for the cell alone, or with others of the
// same type and placement.
inline size_t LimitOf(const ShareCell& cell) {
  return cell.placement == kNoPlacement ? cell.type : cell.placement;
}

class PriceProgram {
 public:
  // The problem has the shape that prices solve: jobs that run alone, at most
  // kPriceTypesMax limits. Where placement matters and gangs fill the servers,
  // each uses the faster of the two columns of a type.
  static bool Serves(const ShareProblem& problem);

  // `problem` outlives it, has at least one job, and Serves it.
  explicit PriceProgram(const ShareProblem& problem);

  struct Answer {
    std::vector<double> shares;  // one per cell; feasible. Empty: none found
    double bound = 0;
    // [limits] that prove the bound; 0 if unusable.
    std::vector<double> prices;
    std::vector<double> scarcity;  // see PriceLevel
    int passes = 0;
    bool converged = false;
  };

  // The highest level t at which each job has d_m(t): see PriceDemand, not
  // padded, and `level_max` of HighestLevel.
  Answer Highest(PriceDemand demand, double level_max,
                 double gap_max = kPriceGap);

  // Water filling: T_m(X) rises with the level, min(t rates[m], caps[m]). The
  // bound is of the first level; caps are at most the jobs' fastest.
  Answer FillWater(std::span<const double> rates, std::span<const double> caps);
  // The same where factor[m] T_m(X) rises by demands that are at their start.
  Answer FillWater(std::span<const double> factor, Demands demands);

  // The most of `objective` of all X in which T_m(X) >= floors[m]. `known`
  // shares keep them (to rounding); `bound` is of the sum, and `gap_max`
  // relative to the sum without rent.
  Answer MostGain(std::span<const double> floors, const SumObjective& objective,
                  std::span<const double> known, double gap_max = kPriceGap);

  // Of all X in which no job has less than with `answer` (of Highest, at
  // demands `wanted`, [k] steps/s), one with the most sum_m gain[m] T_m(X): the
  // jobs that can do with accelerators that are not scarce share what the
  // others leave of those. Jobs that divide their time between scarce ones and
  // several equally fast others may spend it on any of those.
  std::vector<double> SpendTheRest(const Answer& answer,
                                   std::span<const double> wanted,
                                   std::span<const double> gain);

 private:
  Answer AnswerOf(const PriceWater& water) const;
  // Shares by (job, column of the jobs' table) as one per cell, and back.
  std::vector<double> CellsOf(std::span<const double> rows) const;
  std::vector<double> RowsOf(std::span<const double> shares) const;

  const ShareProblem& problem_;
  // Of a cell: its placement's limit, or that of its type.
  size_t ColumnOf(const ShareCell& cell) const {
    return position_[LimitOf(cell)];
  }
  std::vector<double> ByLimit(std::span<const double> values) const;

  std::vector<size_t> limit_;     // [columns of jobs_] in [0, limits)
  std::vector<size_t> position_;  // [limits] the reverse
  PriceJobs jobs_;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_PROGRAM_H_
