// Clusters for bench/policy_solver.cc and bench/packing.cc, random or of
// measured throughputs, and what both solvers are given of them. Pure
// functions.
#ifndef GAVEL_BENCH_POLICY_INSTANCES_H_
#define GAVEL_BENCH_POLICY_INSTANCES_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/lp/linear_program.h"
#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/throughput_table.h"

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

// RandomArrays of five types, but of 121 jobs 81 can use the first one alone,
// 27 the first two, then 9, 3 and 1: each of these parts stops at a level of
// its own when water rises.
Arrays TieredArrays(size_t jobs);

// Kinds of jobs, with one row of throughputs and one size of gangs each.
struct Kinds {
  size_t types = 0;
  std::vector<std::vector<double>> rows;  // [kinds][types] steps/s
  std::vector<double> gang;               // [kinds]
};
// As many as the published table has, and of as many types.
Kinds RandomKinds();
// The rows of a file of throughputs in Gavel's form, each with its scale
// factor.
absl::StatusOr<Kinds> KindsOf(const ThroughputTable& table);

// Jobs of these kinds, with steps left from minutes to weeks: the target is
// that of makespan.
Arrays ClassArrays(size_t jobs, const Kinds& kinds);

// The highest level that no job alone can exceed.
double LevelMax(const Arrays& arrays);

PriceJobs JobsOf(const Arrays& arrays);
// max t, T_m(X) >= t target_m.
LinearProgram ProgramOf(const Arrays& arrays);
// For the policies themselves: with times, steps, costs and some deadlines.
PolicyProblem ProblemOf(const Arrays& arrays);
// The same on servers of five accelerators, which no gang fills; gangs across
// servers have 0.6 of their throughputs.
PolicyProblem PlacedProblemOf(const Arrays& arrays);

// Jobs of one accelerator on three types, half as many accelerators as jobs;
// `kinds` of them, of which all pairs share all types, with 0.2 to 0.9 of what
// they have alone.
PolicyProblem PackedProblem(size_t jobs, size_t kinds);

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_INSTANCES_H_
