#include "coordinator/policy/share/type_prices.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

namespace gavel::policy {
namespace {

constexpr int kSteps = 60;
// A type that no job wants must not be free: it would never be tried again.
constexpr double kPriceMin = 1e-3;

// Accelerator-seconds on each type when every job is where it costs least.
std::vector<double> Loads(std::span<const double> time_s,
                          std::span<const double> prices) {
  const size_t types = prices.size();
  std::vector<double> load_s(types, 0.0);
  for (size_t row = 0; row < time_s.size(); row += types) {
    double least = std::numeric_limits<double>::infinity();
    size_t where = types;
    for (size_t j = 0; j < types; ++j) {
      if (prices[j] <= 0 || prices[j] * time_s[row + j] >= least) continue;
      least = prices[j] * time_s[row + j];
      where = j;
    }
    if (where < types) load_s[where] += time_s[row + where];
  }
  return load_s;
}

void ScaleToOne(std::vector<double>& prices) {
  const double most = *std::max_element(prices.begin(), prices.end());
  if (most <= 0) return;
  for (double& price : prices) price /= most;
}

// Dearer where the load of an accelerator is above the mean of types.
void Raise(std::span<const double> load_s, std::span<const int> capacity,
           double step, std::vector<double>& prices) {
  double mean_s = 0;
  double types = 0;
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] <= 0) continue;
    mean_s += load_s[j] / capacity[j];
    ++types;
  }
  if (mean_s <= 0) return;
  mean_s /= types;
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] <= 0) continue;
    const double excess = load_s[j] / capacity[j] / mean_s - 1;
    prices[j] *= std::exp(step * std::min(1.0, excess));
  }
  ScaleToOne(prices);
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] > 0) prices[j] = std::max(prices[j], kPriceMin);
  }
}

}  // namespace

std::vector<double> TypePrices(std::span<const double> time_s,
                               std::span<const int> capacity) {
  assert(capacity.empty() || time_s.size() % capacity.size() == 0);
  std::vector<double> prices;
  for (const int count : capacity) prices.push_back(count > 0 ? 1 : 0);
  std::vector<double> sum(prices.size(), 0.0);
  for (int i = 0; i < kSteps; ++i) {
    // Long steps first; the mean of the later, short ones is the answer.
    Raise(Loads(time_s, prices), capacity, 1 / (1 + 0.2 * i), prices);
    if (i < kSteps / 2) continue;
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += prices[j];
  }
  if (!sum.empty()) ScaleToOne(sum);
  return sum;
}

}  // namespace gavel::policy
