// Water filling by prices (Gavel section 4.3), in at most J stages however
// many levels there are and without integer variables. Amounts of all jobs rise
// with the level t, min(t rate_m, cap_m), to the highest level that can be had.
// There the prices tell which jobs can have no more: those that need more than
// the accelerators that cost nothing. These jobs are frozen at what they have,
// the types with a price are full, and the other jobs rise on what is left of
// the other types. Where frozen jobs could exchange what they have, the
// filling ends without a proof.
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
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/share/demands.h"

namespace gavel::policy {

struct PriceWater {
  std::vector<double> shares;  // [n x J]
  double first_bound = 0;      // no allocation gives all jobs a higher one
  int stages = 0;
  int passes = 0;
  bool converged = false;  // all stages met their bounds
};

// `rates` and `caps`: [n] steps/s, > 0; caps are at most the jobs' fastest.
PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> rates,
                        std::span<const double> caps);
// The same of demands that are at their start, as factor[m] times steps/s.
PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> factor,
                        Demands demands, std::span<const double> caps);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_H_
