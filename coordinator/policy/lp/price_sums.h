// The most total gain of all jobs together with a floor under each one's rate,
// by prices: maximum throughput with service-level objectives (Gavel section
// 4.2), and what to do with accelerators that a fair allocation leaves.
//
// At prices p each job solves its own small problem (price_pass.h): what it
// gains less what it pays, with its floor. sum_j p_j N_j plus all of that
// bounds the total (the Lagrangian); their choices are columns of the same
// master as in price_levels.h. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_SUMS_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_SUMS_H_

#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"

namespace gavel::policy {

struct PriceSum {
  double value = 0;
  double bound = 0;            // no allocation that keeps the floors has more
  std::vector<double> prices;  // [J] that prove it
  std::vector<PriceColumn> mixture;  // the rest of the weight is the known one
  double known_weight = 0;
  int passes = 0;
  bool converged = false;  // relative to the value without rent
};

// An allocation that fits and keeps all floors.
struct KnownShares {
  double value = 0;           // less rent
  std::vector<double> usage;  // [J] of the capacities
};

// `pass` with demands that do not depend on the level, and gains per
// accelerator: [jobs] g, value of a step over the accelerators held. `rent` [J]
// is taken off the value for each accelerator that is used.
PriceSum HighestSum(const PriceJobs& jobs, const PricePass& pass,
                    std::span<const double> rent, const KnownShares& known,
                    double gap_max);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_SUMS_H_
