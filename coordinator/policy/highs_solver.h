// HiGHS behind the linear program of ours, through its C API: one thread, no
// output, limits in iterations and never in time, so that the same program
// gives the same bits. Policies own one for the length of a Solve. Not
// thread-safe; several may run on several threads.
#ifndef GAVEL_COORDINATOR_POLICY_HIGHS_SOLVER_H_
#define GAVEL_COORDINATOR_POLICY_HIGHS_SOLVER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::policy {

// A linear program being built: maximise costs . x, subject to bounds on the
// columns x and on the rows A x. Policies build one, a solver takes it. A value
// without locks: not thread-safe.

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One non-zero of a row.
struct LpEntry {
  int column = 0;
  double value = 0;
};

struct LinearProgram {
  std::vector<double> column_cost;   // maximised
  std::vector<double> column_lower;  // -kInfinity: free below
  std::vector<double> column_upper;
  std::vector<double> row_lower;
  std::vector<double> row_upper;
  // The rows' non-zeros, row after row; row i starts at row_start[i].
  std::vector<int> row_start;
  std::vector<int> entry_column;
  std::vector<double> entry_value;

  int columns() const { return static_cast<int>(column_cost.size()); }
  int rows() const { return static_cast<int>(row_lower.size()); }

  // Both return the index of the new column or row.
  int AddColumn(double cost, double lower, double upper) {
    column_cost.push_back(cost);
    column_lower.push_back(lower);
    column_upper.push_back(upper);
    return columns() - 1;
  }

  // Columns in `entries` exist already, each at most once.
  int AddRow(double lower, double upper, std::span<const LpEntry> entries) {
    row_start.push_back(static_cast<int>(entry_column.size()));
    row_lower.push_back(lower);
    row_upper.push_back(upper);
    for (const LpEntry& entry : entries) {
      entry_column.push_back(entry.column);
      entry_value.push_back(entry.value);
    }
    return rows() - 1;
  }
};

// kAutomatic: simplex for small programs, interior point for large ones.
// kPresolvedDual: dual simplex after presolve, HiGHS' own default; for
// benchmarks only.
enum class LpMethod : uint8_t {
  kAutomatic,
  kSimplex,
  kInteriorPoint,
  kPresolvedDual
};

class PairColumns;  // share_program.h

// Where simplex ended, in HiGHS' numbers; empty: nowhere.
struct LpBasis {
  std::vector<int> columns;
  std::vector<int> rows;
};

struct LpOptions {
  LpMethod method = LpMethod::kAutomatic;
  // The limit of each run. A run that takes many times more than is usual for
  // the size of its program is tried in another way, whatever this limit is.
  int iterations_max = 1'000'000;
  double tolerance = 1e-9;  // primal and dual feasibility
  // HiGHS is given the program's variables times this, and so meets bounds to
  // the tolerance divided by it. A power of two: nothing is rounded.
  double magnification = 1;
  // For benchmarks only: what a policy gives must not depend on the machine.
  double seconds_max = kInfinity;
  // A solver starts from it where it has the program's sizes, and leaves there
  // where it ended. Borrowed; null: none.
  LpBasis* basis = nullptr;
  // The columns of the pairs that the problem has but does not list; solvers
  // give them the duals of time and accelerators. Borrowed; null: none.
  PairColumns* pairs = nullptr;
};

// `detail`: what HiGHS says of itself. `solver`: "highs-simplex" or
// "highs-ipx".
struct LpSolution : SolveReport {
  double objective = 0;
  // Empty when HiGHS has none. After kIterationLimit they may violate bounds.
  std::vector<double> column_values;
  // d objective / d row bound: >= 0 where an upper bound holds, <= 0 where a
  // lower one does.
  std::vector<double> row_duals;
};

// Which simplex runs: the primal one if the last solution (at first: the lower
// bounds of all columns) is still feasible, the dual one if it is still optimal
// except for the bounds that it violates (after changes of rows' bounds, or new
// rows).
enum class Restart : uint8_t { kPrimal, kDual };

class HighsSolver {
 public:
  explicit HighsSolver(const LinearProgram& program, LpOptions options = {});
  ~HighsSolver();
  HighsSolver(const HighsSolver&) = delete;
  HighsSolver& operator=(const HighsSolver&) = delete;

  // The first call starts from nothing; a later one, after changes, starts
  // from the last basis.
  LpSolution Solve(Restart restart = Restart::kPrimal);

  // `costs` by column, sizes as in the program.
  void ChangeCosts(const std::vector<double>& costs);
  void ChangeColumnBounds(int column, double lower, double upper);
  // Changes the rows from `first` on.
  void ChangeRowBounds(int first, std::span<const double> lower,
                       std::span<const double> upper);
  void ChangeValue(int row, int column, double value);
  // As LinearProgram::AddRow.
  void AddRow(double lower, double upper, std::span<const LpEntry> entries);

 private:
  LpMethod Method() const;
  bool TakeBasis();
  void LeaveBasis();
  std::vector<double> Magnified(std::span<const double> values) const;

  struct Destroy {
    void operator()(void* highs) const;
  };
  std::unique_ptr<void, Destroy> highs_;
  LpOptions options_;
  int columns_ = 0;
  int rows_ = 0;
  bool limited_ = false;  // to fewer iterations than are usual
  bool loaded_ = false;   // HiGHS took the program
  bool solved_ = false;   // there is a basis to start from
};

struct IntegerOptions {
  // Nodes of branch and bound, after which the best solution is returned.
  int nodes_max = 100'000;
  // For benchmarks only, as in LpOptions.
  double seconds_max = kInfinity;
};

// `solver`: "highs-mip"; `iterations`: those of simplex.
struct IntegerSolution : SolveReport {
  // Recomputed by the caller: HiGHS meets integrality to a tolerance.
  std::vector<double> column_values;  // empty when HiGHS has none
  double bound = kInfinity;           // no solution has a larger objective
};

// Maximises the program over integers, with no gap allowed at the end. All
// columns have finite bounds. Deterministic within `nodes_max`.
IntegerSolution SolveIntegers(const LinearProgram& program,
                              const IntegerOptions& options = {});

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_HIGHS_SOLVER_H_
