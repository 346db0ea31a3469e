#include "coordinator/policy/shares.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

namespace gavel {
namespace {

// A share below this is the dust of floating-point pivots, not a decision; the
// mechanism would give it a whole round.
constexpr double kDust = 1e-13;

void ScaleRows(const Limits& limits, std::span<double> shares) {
  const size_t types = limits.capacity.size();
  for (size_t m = 0; m < limits.scale_factor.size(); ++m) {
    const std::span<double> row = shares.subspan(m * types, types);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    if (sum <= 1) continue;
    for (double& share : row) share /= sum;
  }
}

void ScaleColumns(const Limits& limits, std::span<double> shares) {
  const size_t types = limits.capacity.size();
  std::vector<double> used(types, 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    used[i % types] += limits.scale_factor[i / types] * shares[i];
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    const size_t j = i % types;
    if (used[j] > limits.capacity[j]) {
      shares[i] *= limits.capacity[j] / used[j];
    }
  }
}

double Dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

void RepairShares(const Limits& limits, std::span<double> shares) {
  assert(shares.size() == limits.capacity.size() * limits.scale_factor.size());
  for (double& share : shares) {
    // Written so that NaN becomes 0 too.
    if (!(share > kDust)) share = 0;
  }
  ScaleRows(limits, shares);
  // Columns come last: making them smaller leaves the rows feasible.
  ScaleColumns(limits, shares);
}

std::vector<double> EvenShares(const MaxMinProblem& problem) {
  const size_t types = problem.types();
  std::vector<double> asked(types, 0.0);  // accelerators of each type
  for (size_t i = 0; i < problem.values.size(); ++i) {
    if (problem.values[i] <= 0) continue;
    asked[i % types] += problem.limits.scale_factor[i / types];
  }
  std::vector<double> shares(problem.values.size(), 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (problem.values[i] <= 0) continue;
    shares[i] = problem.limits.capacity[i % types] / asked[i % types];
  }
  RepairShares(problem.limits, shares);
  return shares;
}

double SmallestValue(const MaxMinProblem& problem,
                     std::span<const double> shares) {
  double smallest = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < problem.jobs(); ++m) {
    const auto row = shares.subspan(m * problem.types(), problem.types());
    smallest = std::min(smallest, Dot(problem.Row(m), row));
  }
  return smallest;
}

double UpperBound(const MaxMinProblem& problem,
                  std::span<const double> job_weight,
                  std::span<const double> price) {
  const auto positive = [](double value) { return value > 0 ? value : 0.0; };
  double total_weight = 0;
  for (const double weight : job_weight) total_weight += positive(weight);
  if (total_weight <= 0) return std::numeric_limits<double>::infinity();

  // For weights that sum to 1 the least value is at most the weighted mean of
  // all values. Buying accelerators at the prices, job m gains at most
  // max_j (weight_m values[m][j] - s_m price_j) per unit of time, and it has
  // one unit; what all of them pay is at most sum_j price_j N_j.
  double bound = 0;
  for (size_t j = 0; j < problem.types(); ++j) {
    bound += positive(price[j]) * problem.limits.capacity[j];
  }
  for (size_t m = 0; m < problem.jobs(); ++m) {
    double gain = 0;
    for (size_t j = 0; j < problem.types(); ++j) {
      gain = std::max(gain,
                      positive(job_weight[m]) * problem.Row(m)[j] -
                          problem.limits.scale_factor[m] * positive(price[j]));
    }
    bound += gain;
  }
  return bound / total_weight;
}

}  // namespace gavel
