// Applies the price method (price_levels.h) to a ShareProblem. The policies
// call it in place of a linear program. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_PRICE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_PRICE_PROGRAM_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"
#include "coordinator/policy/price_water.h"
#include "coordinator/policy/share_problem.h"

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

// The index of the entry of ShareProblem::limits that holds for the cell: the
// limit of its placement, or that of its type if it has none.
inline size_t LimitOf(const ShareCell& cell) {
  return cell.placement == kNoPlacement ? cell.type : cell.placement;
}

class PriceProgram {
 public:
  // Whether the problem has the shape that prices solve: jobs that run alone,
  // and at most kPriceTypesMax limits. If placement matters and gangs fill the
  // servers, each job uses the faster of the two columns of a type.
  static bool Serves(const ShareProblem& problem);

  // `problem` must outlive this object, have at least one job and satisfy
  // Serves.
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

  // Finds the highest level t at which each job has its demand d_m(t). `demand`
  // is a PriceDemand without padding; `level_max` is HighestLevel's.
  Answer Highest(PriceDemand demand, double level_max,
                 double gap_max = kPriceGap);

  // Water filling: T_m(X) rises with the level as min(t rates[m], caps[m]).
  // Each cap is at most the job's largest throughput. The answer's bound is the
  // bound on the first level.
  Answer FillWater(std::span<const double> rates, std::span<const double> caps);
  // The same with factor[m] T_m(X) rising by `demands`, which are at their
  // start.
  Answer FillWater(std::span<const double> factor, Demands demands);

  // Maximises `objective` over all X in which T_m(X) >= floors[m]. The shares
  // `known` must meet the floors, to rounding. The answer's bound is a bound on
  // the objective. `gap_max` is relative to the larger of the bound and the
  // objective before rent.
  Answer MostGain(std::span<const double> floors, const SumObjective& objective,
                  std::span<const double> known, double gap_max = kPriceGap);

  // Returns shares that give no job less than `answer` does and that maximise
  // sum_m gain[m] T_m(X). `answer` comes from Highest at the demands `wanted`
  // ([k] steps/s). Jobs that can use accelerators that are not scarce share
  // what the other jobs leave of those. A job that divides its time between
  // scarce accelerators and several others on which it is equally fast may move
  // its time among these others.
  std::vector<double> SpendTheRest(const Answer& answer,
                                   std::span<const double> wanted,
                                   std::span<const double> gain);

 private:
  Answer AnswerOf(const PriceWater& water) const;
  // Converts shares by (job, column of the jobs' table) to one per cell, and
  // back.
  std::vector<double> CellsOf(std::span<const double> rows) const;
  std::vector<double> RowsOf(std::span<const double> shares) const;

  const ShareProblem& problem_;
  // The column of the jobs' table for the limit that holds for the cell.
  size_t ColumnOf(const ShareCell& cell) const {
    return position_[LimitOf(cell)];
  }
  std::vector<double> ByLimit(std::span<const double> values) const;

  std::vector<size_t> limit_;     // [columns of jobs_] in [0, limits)
  std::vector<size_t> position_;  // [limits] the reverse
  PriceJobs jobs_;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PRICE_PROGRAM_H_
