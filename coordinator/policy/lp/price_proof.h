// What prices prove, worked out anew: job by job, over all pairs of points that
// a job can mix, without the walk along the hull and the classes by which the
// prices were found (price_pass.h, price_classes.h). Called once with the
// prices that an answer rests on. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_PROOF_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_PROOF_H_

#include <functional>
#include <span>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel::policy {

// What a job has and pays when it spends all of its time in one way.
struct Choice {
  double rate = 0;
  double cost = 0;
};

// As SumPass: what all jobs cost at least that have their demands.
struct LeastCost {
  double cost = 0;
  double slope = 0;  // d cost / d level, a subgradient; without gains only
};
LeastCost LeastCostOf(const PricePass& pass, double level,
                      std::span<const double> prices);
// The same of one job: the least that mixtures of choices cost which have the
// rate, of equal ones the steepest. Infinite: none has.
LeastCost LeastCostOf(std::span<const Choice> choices, double rate);

// The least level that `prices`, at which all accelerators are worth 1, prove
// to be out of reach, at least `bound`, which they are said to prove, and at
// most `level_max`, which needs no proof. Demands without caps: the cost is
// convex in the level.
double ProvedLevel(const PricePass& pass, std::span<const double> prices,
                   double bound, double level_max);

// The same of any demands that never fall as the level rises, whose least cost
// `cost_at` tells: where they are flat, all jobs that cost anything having all
// that they can, a cost of 1 proves nothing, and a higher level is the first
// that is out of reach.
double ProvedLevel(const std::function<double(double level)>& cost_at,
                   double bound, double level_max);

// The value that `prices` of the capacities prove to be out of reach: of the
// gains of `pass` less `rent` (both [J]).
double ProvedSum(const PriceJobs& jobs, const PricePass& pass,
                 std::span<const double> rent, std::span<const double> prices);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_PROOF_H_
