// What share_problem.h says of jobs to which all types are alike.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {
namespace {

// Each scales jobs, then limits. Few are needed where most jobs can run
// anywhere.
constexpr int kIterationsMax = 500;
// A job may lose this part of its time to the spread.
constexpr double kSpreadLossMax = 1e-12;

// [k] time of each job on all types together.
std::vector<double> Totals(const ShareProblem& problem,
                           std::span<const double> shares) {
  std::vector<double> totals(problem.size(), 0.0);
  for (size_t m = 0; m < totals.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      totals[m] += shares[cell.cell];
    }
  }
  return totals;
}

// Scales each job's cells so that they sum to its total.
void ScaleJobs(const ShareProblem& problem, std::span<const double> totals,
               std::span<double> shares) {
  const std::vector<double> now = Totals(problem, shares);
  for (size_t m = 0; m < totals.size(); ++m) {
    if (now[m] <= 0) continue;
    for (const JobCell& cell : problem.Cells(m)) {
      shares[cell.cell] *= totals[m] / now[m];
    }
  }
}

}  // namespace

// Iterative proportional fitting: of all shares with these sums that keep to
// the limits it finds the ones closest to the even spread, by entropy.
void SpreadEvenly(const ShareProblem& problem, std::span<double> shares) {
  const bool pairs = problem.units.size() != problem.size();
  if (pairs || !AllTypesAlike(problem)) return;
  const std::vector<double> totals = Totals(problem, shares);
  std::vector<double> spread(shares.size(), 1.0);
  for (int iteration = 0; iteration < kIterationsMax; ++iteration) {
    ScaleJobs(problem, totals, spread);
    RepairShares(problem, spread);
    const std::vector<double> now = Totals(problem, spread);
    bool kept = true;
    for (size_t m = 0; m < totals.size(); ++m) {
      kept &= now[m] >= totals[m] * (1 - kSpreadLossMax);
    }
    if (!kept) continue;
    std::copy(spread.begin(), spread.end(), shares.begin());
    return;
  }
}

std::optional<PolicyResult> ResultIfNoneScarce(
    const ShareProblem& problem,
    const std::function<double(std::span<const double> shares)>& objective) {
  if (problem.size() == 0) return ToResult(problem, {}, 0, 0, "none");
  std::optional<std::vector<double>> best = EveryoneAtBest(problem);
  if (!best.has_value()) return std::nullopt;
  SpreadEvenly(problem, *best);
  const double value = objective(*best);
  return ToResult(problem, *best, value, value, "all-at-best");
}

}  // namespace gavel::policy
