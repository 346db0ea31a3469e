// Two splits of the cluster that look at no throughput; what others are
// compared with (Gavel sections 4.1 and 7). Only usable jobs count, and no job
// is given time on a type that it can't use. Nothing is optimised: the
// objective, and the bound, are the jobs that run at a time, sum_mj X[m][j].
//
// isolated: each of n jobs has an nth of every type, X[m][j] = N_j / (n s_m),
// its row scaled down to 1 where it is more.
//
// proportional: each job's time is split as the accelerators are, X[m][j] =
// N_j / sum_k N_k, and all jobs' time on a type scaled down to what there is of
// it (the original gives out more than there is).
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {
namespace {

// The job's cell of each type; of its columns the faster one.
std::vector<int> CellsByType(const ShareProblem& problem, size_t m) {
  std::vector<int> cells(problem.types, -1);
  std::vector<double> fastest(problem.types, 0.0);
  for (const JobCell& entry : problem.Cells(m)) {
    const auto type = problem.cells[entry.cell].type;
    if (entry.throughput <= fastest[type]) continue;
    fastest[type] = entry.throughput;
    cells[type] = static_cast<int>(entry.cell);
  }
  return cells;
}

// The share of a type that a gang of `scale_factor` is given.
using Share = std::function<double(double scale_factor, size_t type)>;

PolicyResult Split(const ShareProblem& problem, const Share& share) {
  std::vector<double> shares(problem.cells.size(), 0.0);
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::vector<int> cells = CellsByType(problem, m);
    const auto given = [&](size_t type) {
      return cells[type] < 0 ? 0 : share(problem.scale_factor[m], type);
    };
    double sum = 0;
    for (size_t type = 0; type < cells.size(); ++type) sum += given(type);
    for (size_t type = 0; type < cells.size(); ++type) {
      if (cells[type] < 0) continue;
      shares[static_cast<size_t>(cells[type])] =
          given(type) / std::max(1.0, sum);
    }
  }
  RepairShares(problem, shares);  // down to what there is of each type
  const double running = std::accumulate(shares.begin(), shares.end(), 0.0);
  PolicyResult result =
      ToResult(problem, shares, running, running, "closed-form");
  result.worth = TypeWorth::kAlike;
  return result;
}

}  // namespace

PolicyResult SolveIsolated(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  const auto jobs = static_cast<double>(shares.size());
  return Split(shares, [&](double scale_factor, size_t type) {
    return shares.capacity[type] / (jobs * scale_factor);
  });
}

PolicyResult SolveProportional(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  return Split(shares, [&](double, size_t type) {
    return shares.capacity[type] / shares.accelerators();
  });
}

}  // namespace gavel::policy
