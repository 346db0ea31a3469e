// Finds the highest level of demands that rise together (max-min fairness,
// makespan, finish-time fairness) by prices and by HiGHS, from the same arrays,
// and times both. Code of neither verifies the results
// (tests/policy/checker.h). Part of bench/policy_solver.cc.
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
// HiGHS' fastest method is timed three times for at most this many jobs.
inline constexpr size_t kHighsMedianJobs = 10'000;

// Demands of all jobs that rise with one level.
struct Question {
  policy::PriceDemand demand;  // not padded
  double level_max = 0;

  // Level converts a rate of the job to its level, and Rate a level to the
  // rate; an infinite rate means that no rate reaches the level.
  double Level(size_t m, double steps_per_s) const;
  double Rate(size_t m, double level) const;
};

// `targets`: [n] steps/s at level 1.
Question Proportional(const PolicyProblem& problem,
                      std::vector<double> targets);
// The targets of max-min fairness: w_m / s_m times the rate with an equal part
// of the time on each accelerator.
std::vector<double> FairTargets(const PolicyProblem& problem);
// Finish-time fairness; its levels are -rho, as in fairness.cc.
Question Finishing(const PolicyProblem& problem);
// [n] The rate of each job on its fastest type, steps/s.
std::vector<double> Fastest(const PolicyProblem& problem);
// The input of the price method.
policy::PriceJobs JobsOf(const PolicyProblem& problem);

struct Solved {
  double seconds = 0;  // of processor time
  double building_s = 0;
  double level = 0;  // verified; 0: HiGHS was stopped
  double bound = 0;
  double cost = 0;  // of the bound's demands at its prices
};

// The run with the median time of three.
template <class Solve>
Solved MedianOf(Solve solve) {
  std::vector<Solved> runs = {solve(), solve(), solve()};
  std::sort(runs.begin(), runs.end(), [](const Solved& a, const Solved& b) {
    return a.seconds < b.seconds;
  });
  return runs[1];
}

// Sets the level, bound and cost that the shares and the level's prices prove.
void Verify(const PolicyProblem& problem, const Question& question,
            const policy::PriceLevel& level, std::span<const double> shares,
            Solved* solved);
Solved ByPrices(const PolicyProblem& problem, const Question& question);
// Solves with the fastest of HiGHS' methods, and prints the time of each.
Solved ByHighs(const PolicyProblem& problem, const Question& question);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_LEVELS_H_
