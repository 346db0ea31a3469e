#include "coordinator/policy/lp/price_proof.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "coordinator/policy/share/bound.h"

namespace gavel::policy {
namespace {

// Of the least cost, which sums up positive terms.
constexpr double kCostRounding = 1e-13;
// Mixtures of two choices cost the same but for rounding.
constexpr double kSameCost = 1e-13;

struct DemandPoint {
  double rate = 0;
  double slope = 0;
};

DemandPoint DemandOf(const PricePass& pass, size_t job, double level) {
  const double a = pass.a[job];
  if (pass.curve == DemandCurve::kFinish) {
    const double left = -level * pass.b[job] - pass.c[job];
    return {a / left, a * pass.b[job] / (left * left)};
  }
  const double rate = level * a + (pass.b == nullptr ? 0 : pass.b[job]);
  if (pass.c != nullptr && rate >= pass.c[job]) return {pass.c[job], 0};
  return {rate, a};
}

// Nothing, and all types that the job can use. Returns how many.
size_t ChoicesOf(const PricePass& pass, size_t job,
                 std::span<const double> prices, Choice* choices) {
  const double gain = pass.gain == nullptr ? 0 : pass.gain[job];
  const double* throughputs = pass.throughputs +
                              job / kPriceLanes * pass.types * kPriceLanes +
                              job % kPriceLanes;
  size_t count = 1;
  for (size_t j = 0; j < pass.types; ++j) {
    const double rate = throughputs[j * kPriceLanes];
    if (rate <= 0) continue;
    const double worth = gain == 0 ? 0 : gain * pass.worth[j];
    choices[count++] = {rate, prices[j] - worth * rate};
  }
  return count;
}

}  // namespace

// Of two choices, one on each side of the rate, or of one that is better than
// free.
LeastCost LeastCostOf(std::span<const Choice> choices, double rate) {
  LeastCost least{std::numeric_limits<double>::infinity(), 0};
  for (const Choice& above : choices) {
    if (above.rate < rate) continue;
    if (above.cost <= 0 && above.cost < least.cost) least = {above.cost, 0};
    for (const Choice& below : choices) {
      if (below.rate >= rate) continue;
      const double slope =
          (above.cost - below.cost) / (above.rate - below.rate);
      const double cost = below.cost + slope * (rate - below.rate);
      const bool steeper =
          cost <= least.cost * (1 + kSameCost) && slope > least.slope;
      if (cost >= least.cost && !steeper) continue;
      least = {std::min(least.cost, cost), slope};
    }
  }
  return least;
}

LeastCost LeastCostOf(const PricePass& pass, double level,
                      std::span<const double> prices) {
  assert(prices.size() == pass.types && pass.types <= kPriceTypesMax);
  Choice choices[kPriceTypesMax + 1];
  LeastCost all;
  for (size_t block = 0; block < pass.blocks; ++block) {
    LeastCost sum;  // apart: less rounding
    for (size_t lane = 0; lane < kPriceLanes; ++lane) {
      const size_t job = block * kPriceLanes + lane;
      const double held = pass.accelerators[job];
      if (held == 0) continue;
      const size_t count = ChoicesOf(pass, job, prices, choices);
      const DemandPoint demand = DemandOf(pass, job, level);
      double fastest = 0;
      for (size_t i = 0; i < count; ++i) {
        fastest = std::max(fastest, choices[i].rate);
      }
      // Above it by rounding only.
      const LeastCost least =
          LeastCostOf({choices, count}, std::min(demand.rate, fastest));
      sum.cost += held * least.cost;
      sum.slope += held * least.slope * demand.slope;
    }
    all.cost += sum.cost;
    all.slope += sum.slope;
  }
  return all;
}

double ProvedLevel(const PricePass& pass, std::span<const double> prices,
                   double bound, double level_max) {
  if (bound >= level_max) return level_max;
  const LeastCost least = LeastCostOf(pass, bound, prices);
  if (least.cost >= 1) return bound;
  if (!(least.slope > 0)) return level_max;
  return std::min(level_max, bound + (1 - least.cost) / least.slope);
}

double ProvedLevel(const std::function<double(double level)>& cost_at,
                   double bound, double level_max) {
  const auto out_of_reach = [&](double level) {
    return cost_at(level) > 1 + kCostRounding;
  };
  if (bound >= level_max) return level_max;
  double low = bound * (1 + kBoundRounding);
  if (out_of_reach(low)) return bound;
  if (!out_of_reach(level_max)) return level_max;
  double high = level_max;
  while (high - low > kBoundRounding * high) {
    const double middle = (low + high) / 2;
    (out_of_reach(middle) ? high : low) = middle;
  }
  return high;
}

double ProvedSum(const PriceJobs& jobs, const PricePass& pass,
                 std::span<const double> rent, std::span<const double> prices) {
  std::vector<double> paid(prices.begin(), prices.end());
  double income = 0;
  for (size_t j = 0; j < paid.size(); ++j) {
    paid[j] += rent[j];
    income += prices[j] * jobs.capacity[j];
  }
  return income - LeastCostOf(pass, 0, PricesOfColumns(jobs, paid)).cost;
}

}  // namespace gavel::policy
