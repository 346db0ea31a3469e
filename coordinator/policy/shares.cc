// The functions of share_problem.h over plain shares: throughputs, repairs,
// even spreads and results.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/share_problem.h"

namespace gavel::policy {

namespace {

// A share below this is the dust of floating-point pivots, not a decision; the
// mechanism would give it a whole round.
constexpr double kDust = 1e-13;

// Calls visit(limit, cell) for each limit of each cell.
template <class Visit>
void ForEachLimit(const ShareProblem& problem, Visit visit) {
  for (size_t i = 0; i < problem.cells.size(); ++i) {
    problem.cells[i].ForEachLimit([&](uint32_t limit) { visit(limit, i); });
  }
}

void ScaleJobs(const ShareProblem& problem, std::span<double> shares) {
  for (size_t m = 0; m < problem.size(); ++m) {
    double sum = 0;
    for (const JobCell& cell : problem.Cells(m)) {
      sum += cell.time * shares[cell.cell];
    }
    if (sum <= 1) continue;
    // In pairs this also lowers the other job's sum: it stays feasible.
    for (const JobCell& cell : problem.Cells(m)) {
      shares[cell.cell] /= sum;
    }
  }
}

void ScaleLimits(const ShareProblem& problem, std::span<double> shares) {
  std::vector<double> factor(problem.limits.size(), 0.0);
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    factor[limit] += problem.cells[i].scale_factor * shares[i];
  });
  for (size_t r = 0; r < factor.size(); ++r) {
    const double used = factor[r];
    factor[r] = used > problem.limits[r] ? problem.limits[r] / used : 1;
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    double least = 1;
    problem.cells[i].ForEachLimit(
        [&](uint32_t r) { least = std::min(least, factor[r]); });
    shares[i] *= least;
  }
}

bool Alone(const ShareProblem& problem, size_t cell) {
  return problem.units[problem.cells[cell].unit].second < 0;
}

// The remainder of the limits while jobs are put in whole cells.
struct Room {
  const ShareProblem& problem;
  std::vector<double> left;

  double Of(const ShareCell& cell) const {
    double room = left[cell.type];
    cell.ForEachLimit([&](uint32_t r) { room = std::min(room, left[r]); });
    return room;
  }
  void Take(const ShareCell& cell) {
    cell.ForEachLimit([&](uint32_t r) { left[r] -= cell.scale_factor; });
  }
  // The cell with the most room of the job's fastest ones; nullopt: a pair is
  // faster, or none has room.
  std::optional<size_t> Best(size_t m, double fastest) const {
    std::optional<size_t> best;
    for (const JobCell& entry : problem.Cells(m)) {
      if (entry.throughput < fastest || !Alone(problem, entry.cell)) continue;
      const ShareCell& cell = problem.cells[entry.cell];
      if (Of(cell) < cell.scale_factor) continue;
      if (best && Of(cell) <= Of(problem.cells[*best])) continue;
      best = entry.cell;
    }
    return best;
  }
};

}  // namespace

double Throughput(const ShareProblem& problem, size_t m,
                  std::span<const double> shares) {
  double throughput = 0;
  for (const JobCell& cell : problem.Cells(m)) {
    throughput += cell.throughput * shares[cell.cell];
  }
  return throughput;
}

std::vector<double> Throughputs(const ShareProblem& problem,
                                std::span<const double> shares) {
  std::vector<double> throughputs(problem.size());
  for (size_t m = 0; m < throughputs.size(); ++m) {
    throughputs[m] = Throughput(problem, m, shares);
  }
  return throughputs;
}

std::vector<double> ProportionalThroughputs(const ShareProblem& problem) {
  const double accelerators = problem.accelerators();
  std::vector<double> proportional(problem.size(), 0.0);
  for (size_t m = 0; m < proportional.size(); ++m) {
    const std::span<const double> row = problem.Row(m);
    for (size_t j = 0; j < problem.types; ++j) {
      const double throughput =
          row[j] > 0 ? row[j] : row[row.size() - problem.types + j];
      proportional[m] += throughput * (problem.capacity[j] / accelerators);
    }
  }
  return proportional;
}

std::vector<double> LargestThroughputs(const ShareProblem& problem) {
  std::vector<double> largest(problem.size(), 0.0);
  for (size_t m = 0; m < largest.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      largest[m] = std::max(largest[m], cell.throughput);
    }
    if (problem.pairs != nullptr) {
      largest[m] = std::max(largest[m], problem.pairs->fastest[m]);
    }
  }
  return largest;
}

std::vector<double> Normalizers(const ShareProblem& problem) {
  std::vector<double> normalizers = ProportionalThroughputs(problem);
  for (size_t m = 0; m < normalizers.size(); ++m) {
    normalizers[m] = problem.scale_factor[m] / normalizers[m];
  }
  return normalizers;
}

std::vector<double> WeightedNormalizers(const ShareProblem& problem) {
  std::vector<double> gains = Normalizers(problem);
  for (size_t m = 0; m < gains.size(); ++m) gains[m] *= problem.weight[m];
  return gains;
}

void RepairShares(const ShareProblem& problem, std::span<double> shares) {
  assert(shares.size() == problem.cells.size());
  for (double& share : shares) {
    // Written so that NaN becomes 0 too.
    if (!(share > kDust)) share = 0;
    share = std::min(share, 1.0);
  }
  ScaleJobs(problem, shares);
  // Limits come last: making shares smaller leaves the jobs feasible.
  ScaleLimits(problem, shares);
}

void TopUpShares(const ShareProblem& problem, std::span<const double> wanted,
                 std::span<double> shares) {
  if (shares.empty()) return;
  constexpr double kShortMin = 1e-9;
  constexpr double kTakenMax = 1e-9;
  std::vector<std::pair<size_t, double>> extra;  // (cell, share)
  double taken = 0;
  for (size_t m = 0; m < problem.size(); ++m) {
    const double missing = wanted[m] - Throughput(problem, m, shares);
    if (missing <= kShortMin * wanted[m]) continue;
    JobCell best;
    for (const JobCell& cell : problem.Cells(m)) {
      if (!Alone(problem, cell.cell)) continue;
      if (cell.throughput > best.throughput) best = cell;
    }
    const auto i = best.cell;
    const double share = std::max(missing / best.throughput, 2 * kDust);
    const auto type = problem.cells[i].type;
    extra.emplace_back(i, share);
    taken += share * std::max(1.0, problem.cells[i].scale_factor /
                                       problem.limits[type]);
  }
  if (extra.empty() || taken > kTakenMax) return;
  for (const auto& [i, share] : extra) shares[i] += share;
  RepairShares(problem, shares);
}

std::vector<double> EvenShares(const ShareProblem& problem) {
  std::vector<double> asked(problem.limits.size(), 0.0);
  const auto alone = [&](size_t i) { return Alone(problem, i); };
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    if (alone(i)) asked[limit] += problem.cells[i].scale_factor;
  });
  std::vector<double> shares(problem.cells.size(), 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (alone(i)) shares[i] = 1;
  }
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    if (!alone(i)) return;
    shares[i] = std::min(shares[i], problem.limits[limit] / asked[limit]);
  });
  RepairShares(problem, shares);
  return shares;
}

std::optional<std::vector<double>> EveryoneAtBest(const ShareProblem& problem) {
  const std::vector<double> fastest = LargestThroughputs(problem);
  std::vector<double> shares(problem.cells.size(), 0.0);
  Room room{problem, problem.limits};
  // Jobs that are equally fast in several cells take what the others leave.
  for (const bool choosy : {true, false}) {
    for (size_t m = 0; m < problem.size(); ++m) {
      const auto cells = problem.Cells(m);
      const auto equal = std::count_if(
          cells.begin(), cells.end(),
          [&](const JobCell& cell) { return cell.throughput >= fastest[m]; });
      if ((equal == 1) != choosy) continue;
      const std::optional<size_t> best = room.Best(m, fastest[m]);
      if (!best) return std::nullopt;
      room.Take(problem.cells[*best]);
      shares[*best] = 1;
    }
  }
  return shares;
}

bool MayAllBeAtBest(const ShareProblem& problem) {
  Room room{problem, problem.limits};
  double all = problem.accelerators();
  for (size_t m = 0; m < problem.size(); ++m) {
    JobCell best;
    bool choosy = false;  // no other cell is as good
    for (const JobCell& cell : problem.Cells(m)) {
      if (cell.throughput < best.throughput) continue;
      choosy = cell.throughput > best.throughput;
      best = cell;
    }
    const ShareCell& cell = problem.cells[best.cell];
    all -= cell.scale_factor;
    if (choosy) room.Take(cell);
    if (all < 0 || room.Of(cell) < 0) return false;
  }
  return true;
}

Allocation ToAllocation(const ShareProblem& problem,
                        std::span<const double> shares) {
  std::vector<bool> held(problem.units.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) held[problem.cells[i].unit] = true;
  }
  std::vector<size_t> order(problem.units.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Pairs that were listed later come last.
  const auto by_id = [&](size_t a, size_t b) {
    return problem.units[a].id < problem.units[b].id;
  };
  if (!std::is_sorted(order.begin(), order.end(), by_id)) {
    std::sort(order.begin(), order.end(), by_id);
  }
  std::vector<ShareUnit> units;
  std::vector<size_t> row(problem.units.size(), 0);
  for (const size_t u : order) {
    if (problem.units[u].second >= 0 && !held[u]) continue;
    row[u] = units.size();
    units.push_back(problem.units[u].id);
  }
  std::vector<double> rows(units.size() * problem.columns, 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    const ShareCell& cell = problem.cells[i];
    if (!(shares[i] > 0)) continue;
    rows[row[cell.unit] * problem.columns + cell.column] = shares[i];
  }
  return Allocation::FromRows(std::move(units), problem.columns,
                              std::move(rows));
}

bool AllTypesAlike(const ShareProblem& problem) {
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::span<const JobCell> cells = problem.Cells(m);
    const bool alike =
        std::all_of(cells.begin(), cells.end(), [&](const JobCell& cell) {
          return cell.throughput == cells.front().throughput;
        });
    if (!alike) return false;
  }
  return true;
}

PolicyResult ToResult(const ShareProblem& problem,
                      std::span<const double> shares, double objective,
                      double bound, std::string_view solver) {
  PolicyResult result;
  result.solver = solver;
  result.outcome = SolveOutcome::kOptimal;
  result.allocation = ToAllocation(problem, shares);
  result.worth = AllTypesAlike(problem) ? TypeWorth::kAlike : TypeWorth::kSpeed;
  result.left_out = problem.left_out;
  result.objective = objective;
  result.bound = bound;
  result.gap = std::abs(bound - objective) / std::max(1.0, std::abs(bound));
  return result;
}

// Even spreads, for policies to which all types are alike.

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
void ScaleJobsTo(const ShareProblem& problem, std::span<const double> totals,
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
    ScaleJobsTo(problem, totals, spread);
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
