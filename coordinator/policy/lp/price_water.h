// Water filling by prices (Gavel section 4.3), in at most J stages however
// many levels there are and without integer variables. Amounts of all jobs rise
// with the level t, min(t rate_m, cap_m), to the highest level that can be had.
// There the prices tell which jobs can have no more: those that need more than
// the accelerators that cost nothing. These jobs are frozen at what they have,
// the types with a price are full, and the other jobs rise on what is left of
// the other types. Where frozen jobs could exchange what they have
// (price_water_ties.h), the filling ends without a proof.
//
// Caps make C (price_levels.h) neither convex nor concave in t, so a stage
// comes down from above: at the best bound t so far the master looks for a
// mixture of columns that fits. Where the cost at new prices is above 1, the
// root below t is the next bound; older columns give more than is asked for,
// and stay good. It ends when a mixture fits.
//
// Called by water_filling.cc. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"

namespace gavel::policy {

struct PriceWater {
  std::vector<double> shares;  // [n x J]
  double first_bound = 0;      // no allocation gives all jobs a higher one
  int stages = 0;
  int passes = 0;
  bool converged = false;  // all stages met their bounds
};

// Demands that rise in other ways than in proportion (demands.h), in steps/s.
struct WaterCurves {
  // The level from which on all jobs are at their caps.
  std::function<double()> top;
  // [n] at a level above the last end; never falling in it.
  std::function<void(double level, std::span<double> rates)> at;
  // A stage ended at the level: frozen jobs can have no more, the others no
  // more than their caps. Levels count from there.
  std::function<void(double level, const std::vector<bool>& frozen,
                     std::span<const double> caps)>
      end;
};

// `rates` and `caps`: [n] steps/s, > 0; caps are at most the jobs' fastest.
PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> rates,
                        std::span<const double> caps,
                        const PriceOptions& options);
PriceWater FillByPrices(const PriceJobs& jobs, const WaterCurves& curves,
                        std::span<const double> caps,
                        const PriceOptions& options);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_H_
