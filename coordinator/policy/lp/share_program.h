// The linear program that all policies over shares have in common: one column
// per cell of a ShareProblem, and the rows that make X feasible. Policies add
// their own columns, rows and costs, solve it, and take back shares that are
// feasible whatever the solver did. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_SHARE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_LP_SHARE_PROGRAM_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/linear_program.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// Policies scale rows down to this largest value, above which the solver's
// absolute tolerance is below rounding.
inline constexpr double kRowValueMax = 1e6;

class ShareProgram {
 public:
  // Columns [0, cells) are the shares, in [0, 1], at cost 0. Rows are first the
  // limits, divided by what they allow (unscaled rows put the bound below the
  // objective), then the jobs' time. `problem` outlives the program.
  explicit ShareProgram(const ShareProblem& problem);

  LinearProgram lp;  // to be added to; what is there stays first

  // A row with factor T_m(X) in it.
  struct ThroughputRow {
    size_t job = 0;  // m
    double factor = 0;
    size_t row = 0;
  };

  // Adds the row lower <= factor T_m(X) + extra <= upper and returns its index.
  // Factors and bounds near 1 keep the solver's absolute tolerances meaningful.
  int AddThroughputRow(size_t m, double factor, std::span<const LpEntry> extra,
                       double lower, double upper);
  // Adds factor T_m(X) to `costs`, by column (lp.column_cost, or a copy of it
  // for HighsSolver::ChangeCosts).
  void AddThroughputCost(size_t m, double factor,
                         std::span<double> costs) const;

  const ShareProblem& problem() const { return problem_; }
  std::span<const ThroughputRow> throughput_rows() const {
    return throughput_rows_;
  }

  // The solution's shares, repaired; empty when it has none.
  std::vector<double> Shares(const LpSolution& solution) const;

 private:
  const ShareProblem& problem_;
  std::vector<ThroughputRow> throughput_rows_;
  std::vector<LpEntry> row_;  // reused
};

// What no feasible point of the program exceeds, whatever the duals: weak
// duality, evaluated from the program itself. Duals of the wrong sign for the
// row's bounds count as 0; a column's reduced cost counts at the column's
// bounds, so give all columns finite ones (a reduced cost of rounding size on
// an infinite one makes the bound infinite). `row_duals` as in LpSolution, one
// per row, or empty: all 0.
double DualBound(const LinearProgram& program,
                 std::span<const double> row_duals);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_SHARE_PROGRAM_H_
