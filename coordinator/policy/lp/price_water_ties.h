// How a stage of water filling by prices (price_water.h) ended: which jobs
// still rise, and whether frozen jobs could exchange scarce columns. Called by
// price_water.cc. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"

namespace gavel::policy {

// n jobs of the stage on J columns.
struct WaterEnd {
  PriceJobs jobs;
  std::vector<double> has;  // [n] steps/s at the level
  double level = 0;
  double bound = 0;  // no higher level can be had
  bool met = false;
  bool proved = false;
  bool at_caps = false;          // all jobs: none rises any more
  std::vector<double> shares;    // [n x J]
  std::vector<double> scarcity;  // [J] prices that prove it, if any do
};

// [J] columns whose accelerators cost nothing.
std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity);
// The most that the job can have on those, steps/s.
double FastestFree(const PriceJobs& jobs, const std::vector<bool>& free,
                   size_t job);
// Whether a job that has this much still rises where it could have `most`.
bool RisesOn(double has, double most);

// Frozen jobs with several choices at the same cost may exchange what they have
// of scarce columns, and so leave more or less of the free ones to the jobs
// that rise: the stage's shares are then not the only ones to continue from,
// and others may be better. False: what is full leaves each of them one choice,
// or they all use the same free columns.
bool ExchangeMatters(const WaterEnd& end);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_WATER_TIES_H_
