// A linear program being built: maximise costs . x, subject to bounds on the
// columns x and on the rows A x. Policies build one, a solver takes it. A value
// without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_LINEAR_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_LP_LINEAR_PROGRAM_H_

#include <limits>
#include <span>
#include <vector>

namespace gavel::policy {

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

  // Both return the index of what they added.
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

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_LINEAR_PROGRAM_H_
