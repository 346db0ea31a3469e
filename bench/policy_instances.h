// Random clusters for bench/policy_solver.cc and bench/packing.cc, and what
// both solvers are given of them. Pure functions.
#ifndef GAVEL_BENCH_POLICY_INSTANCES_H_
#define GAVEL_BENCH_POLICY_INSTANCES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/linear_program.h"
#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/policy.h"

namespace gavel::bench {

// What a policy is given, as plain arrays.
struct Arrays {
  size_t jobs = 0;
  size_t types = 0;
  std::vector<double> throughputs;  // [jobs x types] row-major, steps/s
  std::vector<double> gang;         // [jobs]
  std::vector<double> weight;       // [jobs]
  std::vector<double> capacity;     // [types]
  std::vector<double> target;       // [jobs] steps/s at level 1: max-min
  std::vector<double> fastest;      // [jobs]
};

// Throughputs of a job's speed times 0.2 to 5, an eighth of them 0, gangs of 1
// to 8, weights 1 or 0.2 to 5, a tenth of the accelerators that all jobs
// together could use.
Arrays RandomArrays(size_t jobs, size_t types);

// `kinds` different rows of throughputs, and steps left from minutes to weeks:
// the target is that of makespan.
Arrays ClassArrays(size_t jobs, size_t types, size_t kinds);

// The highest level that no job alone can exceed.
double LevelMax(const Arrays& arrays);

// Rates and loads of X, whoever made it: the level of the worst job once X is
// scaled down to what there is.
double Verified(const Arrays& arrays, std::span<const double> shares);

PriceJobs JobsOf(const Arrays& arrays);
// max t, T_m(X) >= t target_m.
LinearProgram ProgramOf(const Arrays& arrays);
// For the policies themselves: with times, steps, costs and some deadlines.
PolicyProblem ProblemOf(const Arrays& arrays);

// Jobs of one accelerator on three types, half as many accelerators as jobs;
// `kinds` of them, of which all pairs share all types, with 0.2 to 0.9 of what
// they have alone.
PolicyProblem PackedProblem(size_t jobs, size_t kinds);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_INSTANCES_H_
