// One stage of water filling by prices (price_water.h): the highest level that
// jobs which still rise can have on what is left. Owned by a filling for as
// long as the stage lasts. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_STAGE_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_STAGE_H_

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/column_master.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel::policy {

// Prices at which the demands cost this little less than 1 prove the level.
inline constexpr double kProofSlack = 1e-11;

using WaterSums =
    std::function<PriceSums(double level, std::span<const double> prices)>;

class WaterStage {
 public:
  // `sums` of all jobs at (level, prices of capacities); their demands rise
  // with the level, up to `top`.
  WaterStage(WaterSums sums, std::span<const double> capacity, double top);

  void Run();

  // A mixture of the jobs' choices fits at the level, to rounding.
  bool met() const { return fits_ >= 1 - kOverloadMax; }
  double level() const { return level_; }
  int passes() const { return passes_; }

  // [J] prices that prove the level, of as few capacities as they can be: what
  // is left out is not scarce. From the master's duals, or the last ones that
  // did.
  std::vector<double> Scarcity();

  // To start from on a problem like this one.
  const std::vector<double>& prices() const { return prices_; }
  void StartFrom(std::vector<double> prices) { prices_ = std::move(prices); }

  std::vector<PriceColumn> Mixture() const {
    return NormalizedMixture(columns_, mixture_);
  }

 private:
  // A mixture fits that is this part too large, and scaled down.
  static constexpr double kOverloadMax = 1e-9;

  PriceSums Pass(double level, std::span<const double> prices) {
    ++passes_;
    return sums_(level, prices);
  }
  std::vector<double> MasterPrices() const;
  bool Proves(std::span<const double> prices, double slack) {
    return Pass(level_, prices).cost >= 1 - slack;
  }
  void Tighten(std::span<const double> prices);

  WaterSums sums_;
  std::span<const double> capacity_;
  ColumnMaster master_;
  double level_;                // no higher one can be had
  std::vector<double> prices_;  // that proved it last
  double fits_ = 0;  // the part of the demands that the mixture can be had of
  std::vector<std::pair<size_t, double>> mixture_;
  std::vector<PriceColumn> columns_;
  std::vector<double> usage_;  // [J] parts of the capacity; reused
  int passes_ = 0;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_STAGE_H_
