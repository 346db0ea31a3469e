#include "coordinator/policy/lp/price_water_stage.h"

#include <algorithm>
#include <numeric>

namespace gavel::policy {
namespace {

// As in price_levels.cc.
constexpr int kWaterStallMax = 60;
// Evaluations of one search for a root, and where it ends: the cost above 1.
constexpr int kRootStepsMax = 30;
constexpr double kCostSlack = 1e-12;
// A mixture that fits as well as rounding allows is looked for some passes
// longer: where throughputs differ by many powers of ten, what is left here is
// all that a later stage has.
constexpr double kOverloadAim = 1e-13;
constexpr int kAimStallMax = 8;

// Prices that prove the level to this part of it tell what is scarce: those of
// the master may be off by a rounding where nothing is.
constexpr double kScarceSlack = 1e-9;

double Newton(const PriceSums& sums, double level) {
  return sums.slope > 0 ? level - (sums.cost - 1) / sums.slope : 0;
}

// False position, and every third time the middle.
double Between(double low, double low_cost, double high, double high_cost,
               int i) {
  if (i % 3 == 2) return (low + high) / 2;
  return low + (high - low) * (1 - low_cost) / (high_cost - low_cost);
}

}  // namespace

WaterStage::WaterStage(WaterSums sums, std::span<const double> capacity,
                       double top)
    : sums_(std::move(sums)),
      capacity_(capacity),
      master_(capacity.size(), /*convex=*/false),
      level_(top),
      usage_(capacity.size()) {
  const double all = std::accumulate(capacity.begin(), capacity.end(), 0.0);
  prices_.assign(capacity.size(), 1 / all);
}

void WaterStage::Run() {
  int stall = 0;
  double before = level_;
  Tighten(std::vector<double>(prices_));
  while (true) {
    master_.Solve();
    double fits = 0;
    for (const auto& [k, weight] : master_.mixture()) fits += weight;
    // Either bound has moved: the next prices are between.
    stall = fits > fits_ || level_ < before ? 0 : stall + 1;
    if (fits > fits_) {
      fits_ = fits;
      mixture_ = master_.mixture();
    }
    if (fits_ >= 1 - kOverloadAim || passes_ >= kPassesMax ||
        stall > (met() ? kAimStallMax : kWaterStallMax)) {
      break;
    }
    before = level_;
    std::vector<double> prices = MasterPrices();
    if (stall == 0) {
      for (size_t j = 0; j < prices.size(); ++j) {
        prices[j] = kBestPart * prices_[j] + (1 - kBestPart) * prices[j];
      }
    }
    Tighten(prices);
  }
}

std::vector<double> WaterStage::Scarcity() {
  std::vector<double> prices = MasterPrices();
  if (!Proves(prices, kProofSlack)) prices = prices_;
  std::vector<size_t> order(prices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return prices[a] * capacity_[a] < prices[b] * capacity_[b];
  });
  // Without as many of the cheapest ones as can be.
  for (size_t cheap = order.size() - 1; cheap > 0; --cheap) {
    std::vector<double> fewer = prices;
    for (size_t i = 0; i < cheap; ++i) fewer[order[i]] = 0;
    const double all =
        std::inner_product(fewer.begin(), fewer.end(), capacity_.begin(), 0.0);
    if (!(all > 0)) continue;
    for (double& price : fewer) price /= all;
    if (Proves(fewer, kScarceSlack)) return fewer;
  }
  return prices;
}

// 0 where nothing is scarce.
std::vector<double> WaterStage::MasterPrices() const {
  std::vector<double> prices = master_.PricesOf(capacity_);
  prices.resize(capacity_.size(), 0.0);
  return prices;
}

// Lowers the level to the root of the cost at `prices`, if that is below it,
// and adds the column there. Only levels with a cost of at least 1 are
// bounds, to kCostSlack.
void WaterStage::Tighten(std::span<const double> prices) {
  PriceSums sums = Pass(level_, prices);
  if (sums.cost > 1) {
    prices_.assign(prices.begin(), prices.end());
    double low = 0;
    double low_cost = 0;
    double high = level_;
    double step = Newton(sums, high);
    for (int i = 0; i < kRootStepsMax && sums.cost > 1 + kCostSlack; ++i) {
      if (!(step > low && step < high))
        step = Between(low, low_cost, high, sums.cost, i);
      if (!(step > low && step < high)) break;
      const PriceSums at = Pass(step, prices);
      // Or a rounding below: that is the root.
      if (at.cost >= 1 - kCostSlack) {
        sums = at;
        high = step;
        step = Newton(sums, high);
      } else {
        low = step;
        low_cost = at.cost;
        step = Between(low, low_cost, high, sums.cost, i);
      }
    }
    level_ = high;
  }
  for (size_t j = 0; j < usage_.size(); ++j) {
    usage_[j] = sums.usage[j] / capacity_[j];
  }
  master_.Add(1, usage_);
  columns_.push_back({level_, 0, {prices.begin(), prices.end()}});
}

}  // namespace gavel::policy
