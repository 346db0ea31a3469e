// The part of checker.h for large problems.
#include <algorithm>
#include <limits>

#include "tests/policy/checker.h"

namespace gavel::testing {

std::vector<double> SharesOf(const Allocation& allocation,
                             const PolicyProblem& problem) {
  std::vector<double> shares;
  shares.reserve(problem.throughputs.size());
  for (const PolicyJob& job : problem.jobs) {
    const std::vector<double> row = allocation.Row(job.id);
    shares.insert(shares.end(), row.begin(), row.end());
  }
  return shares;
}

double Excess(const PolicyProblem& problem, std::span<const double> shares) {
  const size_t types = problem.types.size();
  double excess = 1;
  std::vector<double> used(types, 0.0);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    double time = 0;
    for (size_t j = 0; j < types; ++j) {
      const double share = std::max(0.0, shares[m * types + j]);
      time += share;
      used[j] += problem.jobs[m].scale_factor * share;
    }
    excess = std::max(excess, time);
  }
  for (size_t j = 0; j < types; ++j) {
    if (used[j] > 0) excess = std::max(excess, used[j] / problem.capacity[j]);
  }
  return excess;
}

std::vector<double> FittingThroughputs(const PolicyProblem& problem,
                                       std::span<const double> shares) {
  const double excess = Excess(problem, shares);
  std::vector<double> throughputs;
  throughputs.reserve(problem.jobs.size());
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const std::span<const double> row = problem.Row(m);
    double rate = 0;
    for (size_t j = 0; j < row.size(); ++j) {
      rate += row[j] * std::max(0.0, shares[m * row.size() + j]);
    }
    throughputs.push_back(rate / excess);
  }
  return throughputs;
}

namespace {

// One job's cheapest way to `demand`: the optimum of two constraints (its rate,
// its time) holds one type, or two with all of its time.
double CheapestOf(std::span<const double> throughputs,
                  std::span<const double> prices, double demand) {
  if (demand <= 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < prices.size(); ++j) {
    if (throughputs[j] < demand) continue;
    least = std::min(least, prices[j] * demand / throughputs[j]);
    for (size_t slow = 0; slow < prices.size(); ++slow) {
      if (throughputs[slow] >= demand) continue;
      const double part =
          (demand - throughputs[slow]) / (throughputs[j] - throughputs[slow]);
      least = std::min(least, part * prices[j] + (1 - part) * prices[slow]);
    }
  }
  return least;
}

}  // namespace

double CheapestCost(const PolicyProblem& problem,
                    std::span<const double> prices,
                    const std::function<double(size_t)>& demand) {
  double all = 0;
  for (size_t j = 0; j < prices.size(); ++j) {
    all += prices[j] * problem.capacity[j];
  }
  double cost = 0;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    cost += problem.jobs[m].scale_factor *
            CheapestOf(problem.Row(m), prices, demand(m));
  }
  return cost / all;
}

}  // namespace gavel::testing
