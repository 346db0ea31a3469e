// How a stage of water filling by prices (price_water.h) ended: who rises on,
// and what time who is held back could do without. Where throughputs differ by
// many powers of ten, a job may hold whole accelerators that nobody is short of
// for a billionth of what it has, and keep those who rise on from them. Called
// by price_water.cc. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_SPARE_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_SPARE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_pass.h"

namespace gavel {

// The part of a stage's level that is given up, at most, for those who rise on.
inline constexpr double kGivenUpMax = 5e-9;
// A job of the stage that could do without the wanted types.
struct WaterSpare {
  double cost = 0;  // part of the level, at the stage's prices
  size_t job = 0;
};

// n jobs of the stage on J columns.
struct WaterEnd {
  PriceJobs jobs;
  std::vector<double> has;  // [n] steps/s at the level
  double level = 0;
  double bound = 0;  // no higher level can be had
  bool met = false;
  bool proved = false;
  bool at_caps = false;          // all jobs: nobody rises on
  std::vector<double> shares;    // [n x J]
  std::vector<double> scarcity;  // [J] prices that prove it, if somebody does
  // Ramps only: columns that cost nothing, and of which who is held leaves too
  // little for all who rise on ...
  std::vector<bool> wanted;  // [J]
  // ... and who could do without those, by cost.
  std::vector<WaterSpare> spare;
};

// [J] columns whose accelerators cost nothing.
std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity);
// The most that the job can have on those, steps/s.
double FastestFree(const PriceJobs& jobs, const std::vector<bool>& free,
                   size_t job);
// Whether who has this much is not held back where it could have `most`.
bool RisesOn(double has, double most);

// Fills in wanted and spare, for the demands of `pass`.
void FindSpare(const PricePass& pass, WaterEnd* end);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_SPARE_H_
