#include "bench/policy_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/ids.h"

namespace gavel::bench {
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

double RateOf(const Arrays& arrays, std::span<const double> shares, size_t m) {
  double rate = 0;
  for (size_t j = 0; j < arrays.types; ++j) {
    const size_t i = m * arrays.types + j;
    rate += arrays.throughputs[i] * std::max(0.0, shares[i]);
  }
  return rate;
}

}  // namespace

double Excess(const Arrays& arrays, std::span<const double> shares) {
  double excess = 1;
  std::vector<double> used(arrays.types, 0.0);
  for (size_t m = 0; m < arrays.jobs; ++m) {
    double time = 0;
    for (size_t j = 0; j < arrays.types; ++j) {
      const double share = std::max(0.0, shares[m * arrays.types + j]);
      time += share;
      used[j] += arrays.gang[m] * share;
    }
    excess = std::max(excess, time);
  }
  for (size_t j = 0; j < arrays.types; ++j) {
    excess = std::max(excess, used[j] / arrays.capacity[j]);
  }
  return excess;
}

double LeastValue(const Arrays& arrays, std::span<const double> shares,
                  const std::function<double(size_t, double)>& value) {
  const double excess = Excess(arrays, shares);
  double least = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < arrays.jobs; ++m) {
    least = std::min(least, value(m, RateOf(arrays, shares, m) / excess));
  }
  return least;
}

double LeastCost(const Arrays& arrays, std::span<const double> prices,
                 const std::function<double(size_t)>& demand) {
  double all = 0;
  for (size_t j = 0; j < arrays.types; ++j) {
    all += prices[j] * arrays.capacity[j];
  }
  double cost = 0;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const std::span<const double> row(&arrays.throughputs[m * arrays.types],
                                      arrays.types);
    cost += arrays.gang[m] * CheapestOf(row, prices, demand(m));
  }
  return cost / all;
}

double WorstRatio(const Arrays& arrays, std::span<const double> first,
                  std::span<const double> second) {
  double worst = 1;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const double ratio = RateOf(arrays, first, m) / RateOf(arrays, second, m);
    if (!(std::abs(ratio - 1) <= std::abs(worst - 1))) worst = ratio;
  }
  return worst;
}

std::vector<double> AllShares(const Allocation& allocation, size_t jobs,
                              size_t types) {
  std::vector<double> shares;
  shares.reserve(jobs * types);
  for (size_t m = 0; m < jobs; ++m) {
    const std::vector<double> row =
        allocation.Row(JobId(static_cast<int64_t>(m) + 1));
    shares.insert(shares.end(), row.begin(), row.end());
  }
  return shares;
}

void Checks::Certified(const std::string& what, double value, double bound,
                       double cost, double gap_max) {
  const double unproved = cost >= 1 ? 0 : 1 - cost;
  const double apart = (bound - value) / std::abs(bound);
  const double gap = apart + unproved;
  // Below 0: an allocation beyond its bound.
  const bool right = apart >= -kRounding && gap <= gap_max + kRounding;
  std::printf("  %s: %.10g, verified gap %.1e%s\n", what.c_str(), value, gap,
              right ? "" : " WRONG");
  if (!right) ++wrong_;
}

void Checks::Agree(const std::string& what, double value, double other,
                   double part_max) {
  const double part = (value - other) / std::abs(other);
  const bool right = std::abs(part) <= part_max;
  std::printf("  %s: %+.1e from the other's%s\n", what.c_str(), part,
              right ? "" : " WRONG");
  if (!right) ++wrong_;
}

void Checks::Holds(const std::string& what, bool holds) {
  if (holds) return;
  std::printf("  %s: WRONG\n", what.c_str());
  ++wrong_;
}

}  // namespace gavel::bench
