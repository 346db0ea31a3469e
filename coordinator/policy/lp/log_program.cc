#include "coordinator/policy/lp/log_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/policy/lp/share_program.h"

namespace gavel::policy {
namespace {

// Logarithms count in thousandths, so that the solver's absolute tolerance does
// not hide what tangents are short of.
constexpr double kUnit = 1e-3;

}  // namespace

LogProgram::LogProgram(const ShareProblem& problem, std::vector<double> scale)
    : problem_(problem), scale_(std::move(scale)), points_(problem.size()) {}

void LogProgram::AddTangents(std::span<const double> ratios) {
  for (size_t m = 0; m < points_.size(); ++m) {
    if (scale_[m] > 0) points_[m].push_back(ratios[m]);
  }
}

LogProgram::Answer LogProgram::Solve() const {
  ShareProgram program(problem_);
  const std::vector<double> largest = LargestThroughputs(problem_);
  for (size_t m = 0; m < points_.size(); ++m) {
    if (scale_[m] <= 0) continue;
    // Between the lowest tangent at 0 and the logarithm of the most there is.
    double lowest = 0;
    for (const double at : points_[m]) {
      lowest = std::min(lowest, std::log(at) - 1);
    }
    const int log = program.lp.AddColumn(
        1, lowest / kUnit, std::log(largest[m] / scale_[m]) / kUnit);
    const LpEntry entry = {log, 1};
    for (const double at : points_[m]) {
      // log t <= log at + t / at - 1.
      program.AddThroughputRow(m, -1 / (at * scale_[m]) / kUnit, {&entry, 1},
                               -kInfinity, (std::log(at) - 1) / kUnit);
    }
  }
  const LpSolution solution = HighsSolver(program.lp).Solve(Restart::kDual);
  return {program.Shares(solution),
          kUnit * DualBound(program.lp, solution.row_duals)};
}

}  // namespace gavel::policy
