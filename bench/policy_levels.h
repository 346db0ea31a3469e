// The highest level of demands that rise together (max-min fairness, makespan,
// finish-time fairness), timed by prices and by HiGHS from the same arrays, and
// verified by neither's code (tests/policy/checker.h). Of
// bench/policy_solver.cc.
#ifndef GAVEL_BENCH_POLICY_LEVELS_H_
#define GAVEL_BENCH_POLICY_LEVELS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"

namespace gavel::bench {

inline constexpr double kGapMax = 1e-8;  // of levels by prices
inline constexpr double kHighsSeconds = 60;
// HiGHS is asked three times up to here.
inline constexpr size_t kHighsMedianJobs = 10'000;

// Demands of all jobs that rise with one level.
struct Question {
  policy::PriceDemand demand;  // not padded
  double level_max = 0;

  // The level at which the job has that rate, and back; infinite: no rate does.
  double Level(size_t m, double steps_per_s) const;
  double Rate(size_t m, double level) const;
};

// `targets`: [n] steps/s at level 1.
Question Proportional(const PolicyProblem& problem,
                      std::vector<double> targets);
// Of max-min fairness: w_m / s_m times what an equal part of the time on each
// accelerator gives.
std::vector<double> FairTargets(const PolicyProblem& problem);
// Finish-time fairness: levels are -rho, as finish_time_fairness.cc has it.
Question Finishing(const PolicyProblem& problem);
// [n] on its fastest type, steps/s.
std::vector<double> Fastest(const PolicyProblem& problem);
// What the price method is given.
policy::PriceJobs JobsOf(const PolicyProblem& problem);

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

// Fills in what X and the level's prices prove.
void Verify(const PolicyProblem& problem, const Question& question,
            const policy::PriceLevel& level, std::span<const double> shares,
            Solved* solved);
Solved ByPrices(const PolicyProblem& problem, const Question& question);
// By the fastest of HiGHS' methods, each of which is told.
Solved ByHighs(const PolicyProblem& problem, const Question& question);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_LEVELS_H_
