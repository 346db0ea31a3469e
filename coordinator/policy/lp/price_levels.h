// The highest level of demands that all jobs can have together, by prices: the
// problem of max-min fairness, makespan and finish-time fairness (Gavel section
// 4) for jobs that run alone and limits that are accelerators of types, or of
// parts of them.
//
// Let C(t, p) be what all jobs cost when each has its demand d_m(t) in the
// cheapest way at prices p >= 0, sum_j p_j N_j = 1. The level t can be had if
// and only if C(t, p) <= 1 for every p: the dual of the linear program, in J
// variables however many jobs there are. C is convex in t, so that any pass at
// (t, p) proves that no level is above t - (C - 1) / (dC/dt); its choice of
// types is a column of a restricted master problem of J + 1 rows (Dantzig and
// Wolfe): its convex combination is feasible, its duals are the next prices.
// The search ends where both bounds meet.
//
// Called by the policies' solvers. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_LEVELS_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_LEVELS_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel::policy {

// Sums over all jobs at (level, prices); what SumPass gives, however it is
// worked out.
struct PriceEvaluator {
  std::function<PriceSums(double level, std::span<const double> prices)> sums;
  bool idle_at_zero = false;  // at level 0 no job demands anything
};

// Sums over the capacities of `jobs`, which outlive it, at their prices: of
// those over its columns at theirs.
PriceEvaluator OfCapacities(const PriceJobs& jobs, PriceEvaluator columns);

// Relative, of the bounds: a search ends there, or after so many passes.
inline constexpr double kPriceGap = 1e-9;
inline constexpr int kPassesMax = 500;

// Part of a convex combination: jobs choose by these prices and this level.
struct PriceColumn {
  double level = 0;
  double weight = 0;  // > 0; they sum to 1
  std::vector<double> prices;
};

// Of the prices of the best bound in the next ones, the rest is the master's:
// without them prices jump from corner to corner.
inline constexpr double kBestPart = 0.6;

// The columns of the master's mixture, with weights that sum to 1.
std::vector<PriceColumn> NormalizedMixture(
    std::span<const PriceColumn> columns,
    std::span<const std::pair<size_t, double>> mixture);

// Where to start: what a problem that was nearly this one ended with.
struct PriceStart {
  std::vector<double> prices;  // [J]; empty: nothing known
  double level = 0;
  std::vector<PriceColumn> mixture;  // weights don't count
  // How far prices move in one round at first, as a part of the worth of all
  // accelerators. Infinite: as far as they like.
  double reach = std::numeric_limits<double>::infinity();
};

struct PriceLevel {
  double level = 0;            // that the mixture gives every job, at least
  double bound = 0;            // no allocation gives a higher one to all
  std::vector<double> prices;  // [J] that prove the bound; sum p N = 1
  // [J] the same to 1e-8, but exactly 0 where something can be left over.
  std::vector<double> scarcity;
  std::vector<PriceColumn> mixture;  // its usage fits
  int passes = 0;
  bool converged = false;  // to gap_max
};

// `level_max`: every job can have it when it is alone; demands are finite up to
// there and rise. kFinish: levels are below 0.
PriceLevel HighestLevel(const PriceEvaluator& evaluate,
                        std::span<const double> capacity, double level_max,
                        double gap_max = kPriceGap, PriceStart start = {});

// The same over jobs one by one; many jobs are first looked at by a sample. The
// bound is what the prices prove by price_proof.h.
PriceLevel HighestLevel(const PriceJobs& jobs, const PriceDemand& demand,
                        double level_max, double gap_max = kPriceGap);

// Raises the bound to what its prices really prove. `converged` remains only
// where that is still near the level, and not below it.
void ProveBound(const PriceJobs& jobs, const PricePass& pass, double level_max,
                double gap_max, PriceLevel* level);

// [blocks x kPriceLanes x J] the shares of the mixture.
std::vector<double> SharesOf(const PriceJobs& jobs, const PricePass& pass,
                             std::span<const PriceColumn> mixture);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_LEVELS_H_
