// What a second of each accelerator type is worth to a mix of jobs: the dual
// of the least makespan, max over p of sum_m min_j p_j t[m][j] with
// sum_j p_j N_j = 1. A division of jobs among types that keeps all types busy
// to the end has every job where p_j t[m][j] is least. Called by allox.cc. Pure
// function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_TYPE_PRICES_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_TYPE_PRICES_H_

#include <span>
#include <vector>

namespace gavel::policy {

// `time_s` [n x J] row-major, accelerator-seconds that each job takes on each
// type, > 0; infinity: it can't run there. `capacity` [J], N_j >= 0.
//
// [J] prices, the dearest 1; 0 where there are no accelerators. To some percent
// (multiplicative weights, a fixed number of steps), O(n J) a step. All 1
// without jobs.
std::vector<double> TypePrices(std::span<const double> time_s,
                               std::span<const int> capacity);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_TYPE_PRICES_H_
