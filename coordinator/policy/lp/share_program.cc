#include "coordinator/policy/lp/share_program.h"

#include <cassert>
#include <cmath>

namespace gavel::policy {

ShareProgram::ShareProgram(const ShareProblem& problem) : problem_(problem) {
  const size_t limits = problem.limits.size();
  const size_t rows = limits + problem.size();
  lp.column_cost.assign(problem.cells.size(), 0.0);
  lp.column_lower.assign(problem.cells.size(), 0.0);
  lp.column_upper.assign(problem.cells.size(), 1.0);
  lp.row_lower.assign(rows, -kInfinity);
  lp.row_upper.assign(rows, 1.0);
  // How many entries each row has: they are filled in one pass over the cells.
  std::vector<int> count(limits, 0);
  for (const ShareCell& cell : problem.cells) {
    cell.ForEachLimit([&](uint32_t r) { ++count[r]; });
  }
  int entries = 0;
  for (size_t r = 0; r < rows; ++r) {
    lp.row_start.push_back(entries);
    entries += r < limits ? count[r]
                          : static_cast<int>(problem.Cells(r - limits).size());
  }
  lp.entry_column.resize(static_cast<size_t>(entries));
  lp.entry_value.resize(static_cast<size_t>(entries));
  std::vector<int> next = lp.row_start;  // where a row's next entry goes
  const auto put = [&](size_t row, size_t column, double value) {
    const auto at = static_cast<size_t>(next[row]++);
    lp.entry_column[at] = static_cast<int>(column);
    lp.entry_value[at] = value;
  };
  for (size_t i = 0; i < problem.cells.size(); ++i) {
    const ShareCell& cell = problem.cells[i];
    cell.ForEachLimit(
        [&](uint32_t r) { put(r, i, cell.scale_factor / problem.limits[r]); });
  }
  for (size_t m = 0; m < problem.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      put(limits + m, cell.cell, cell.time);
    }
  }
}

int ShareProgram::AddThroughputRow(size_t m, double factor,
                                   std::span<const LpEntry> extra, double lower,
                                   double upper) {
  row_.clear();
  for (const JobCell& cell : problem_.Cells(m)) {
    row_.push_back({static_cast<int>(cell.cell), factor * cell.throughput});
  }
  row_.insert(row_.end(), extra.begin(), extra.end());
  const int row = lp.AddRow(lower, upper, row_);
  throughput_rows_.push_back({m, factor, static_cast<size_t>(row)});
  return row;
}

void ShareProgram::AddThroughputCost(size_t m, double factor,
                                     std::span<double> costs) const {
  for (const JobCell& cell : problem_.Cells(m)) {
    costs[cell.cell] += factor * cell.throughput;
  }
}

std::vector<double> ShareProgram::Shares(const LpSolution& solution) const {
  if (solution.column_values.empty()) return {};
  std::vector<double> shares(
      solution.column_values.begin(),
      solution.column_values.begin() +
          static_cast<std::ptrdiff_t>(problem_.cells.size()));
  RepairShares(problem_, shares);
  return shares;
}

double DualBound(const LinearProgram& program,
                 std::span<const double> row_duals) {
  assert(row_duals.empty() ||
         row_duals.size() == static_cast<size_t>(program.rows()));
  // For any y: c x = y A x + (c - y A) x; each part is at most what the bounds
  // of the rows and of the columns allow.
  std::vector<double> reduced = program.column_cost;
  double bound = 0;
  for (size_t r = 0; r < row_duals.size(); ++r) {
    const double dual = row_duals[r];
    const double at = dual > 0 ? program.row_upper[r] : program.row_lower[r];
    if (dual == 0 || !std::isfinite(dual) || std::isinf(at)) continue;
    bound += dual * at;
    const auto begin = static_cast<size_t>(program.row_start[r]);
    const size_t end = r + 1 < row_duals.size()
                           ? static_cast<size_t>(program.row_start[r + 1])
                           : program.entry_column.size();
    for (size_t e = begin; e < end; ++e) {
      reduced[static_cast<size_t>(program.entry_column[e])] -=
          dual * program.entry_value[e];
    }
  }
  for (size_t c = 0; c < reduced.size(); ++c) {
    if (reduced[c] == 0) continue;
    bound += reduced[c] * (reduced[c] > 0 ? program.column_upper[c]
                                          : program.column_lower[c]);
  }
  return bound;
}

}  // namespace gavel::policy
