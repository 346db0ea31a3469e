// The highest level of demands that rise together (max-min fairness, makespan,
// finish-time fairness), timed by prices and by HiGHS from the same arrays, and
// verified by neither's code (policy_checks.h). Of bench/policy_solver.cc.
#ifndef GAVEL_BENCH_POLICY_LEVELS_H_
#define GAVEL_BENCH_POLICY_LEVELS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "bench/policy_instances.h"
#include "coordinator/policy/lp/price_classes.h"
#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/policy.h"

namespace gavel::bench {

inline constexpr double kGapMax = 1e-8;  // of levels by prices
inline constexpr double kHighsSeconds = 60;
// HiGHS is asked three times up to here.
inline constexpr size_t kHighsMedianJobs = 10'000;

// Demands of all jobs that rise with one level.
struct Question {
  PriceDemand demand;  // not padded
  double level_max = 0;

  // The level at which the job has that rate, and back; infinite: no rate does.
  double Level(size_t m, double steps_per_s) const;
  double Rate(size_t m, double level) const;
};

// Max-min fairness and makespan.
Question Proportional(const Arrays& arrays);
// Finish-time fairness: levels are -rho, as finish_time_fairness.cc has it.
Question Finishing(const Arrays& arrays, const PolicyProblem& problem);

struct Solved {
  double seconds = 0;  // of processor time
  double building_s = 0;
  double level = 0;  // verified; 0: HiGHS was stopped
  double bound = 0;
  double cost = 0;  // of the bound's demands at its prices
};

// The middle of three, by time.
template <class Solve>
Solved MedianOf(Solve solve) {
  std::vector<Solved> runs = {solve(), solve(), solve()};
  std::sort(runs.begin(), runs.end(), [](const Solved& a, const Solved& b) {
    return a.seconds < b.seconds;
  });
  return runs[1];
}

// Prices to a gap of kGapMax.
PriceOptions OfBench();

// Fills in what X and the level's prices prove.
void Verify(const Arrays& arrays, const Question& question,
            const PriceLevel& level, std::span<const double> shares,
            Solved* solved);
// The same of jobs in classes: X is worked out for this only.
void VerifyClasses(const Arrays& arrays, const PriceClasses& classes,
                   std::span<const size_t> class_of, const PriceLevel& level,
                   Solved* solved);

Solved ByPrices(const Arrays& arrays, const Question& question);
// Max-min fairness by the fastest of HiGHS' methods, each of which is told.
Solved ByHighs(const Arrays& arrays);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_LEVELS_H_
