// Makes problems for tests and benchmarks of policies: a few rows by hand, or
// random clusters. The same seed and shape give the same problem. Pure
// functions.
#ifndef GAVEL_TESTS_POLICY_PROBLEMS_H_
#define GAVEL_TESTS_POLICY_PROBLEMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// Jobs 1, 2, ... with these throughputs, scale factor 1 and weight 1.
PolicyProblem MakeProblem(std::vector<int> capacity,
                          const std::vector<std::vector<double>>& throughputs);

// Lets two jobs of `problem` share every type. They are given by their indices,
// first < second, and pairs must be added in order. Beside the other, each job
// has this part of its throughput alone.
void AddPair(size_t first, size_t second, double part_of_first,
             double part_of_second, PolicyProblem* problem);

// How a random cluster and its jobs look.
struct ProblemShape {
  size_t types_min = 1;
  size_t types_max = 5;
  size_t jobs_min = 1;
  size_t jobs_max = 30;
  bool log_jobs = false;  // the number of jobs is log-uniform, else uniform
  // A type has from capacity_min to capacity_min + capacity_more +
  // capacity_per_job * jobs accelerators.
  int capacity_min = 0;
  double capacity_more = 8;
  double capacity_per_job = 0;
  bool crowded = false;  // at least as many jobs as there are accelerators
  int gang_log_max = 3;  // gangs of 1 to 2^this
  bool weights = true;   // a third of the jobs have one of 0.2 to 5, else all 1
  bool unusable = true;  // a job can't run on one type in eight
  bool whole_ratios = false;  // a job's throughputs tie: ratios of 1, 2, 3
  // The throughputs of one job, and the weights, differ by a factor of up to
  // 1,000; otherwise by up to 25.
  bool wide = false;
  // The number of kinds. Jobs of one kind have the same throughputs and gang
  // size. 0: no two jobs are equal.
  size_t kinds = 0;
  bool unknown_lengths = false;  // one in six
  bool passed_deadlines = false;
  // Three quarters of the pairs of gangs of one size may share accelerators.
  // Each job then has 0.3 to 1 of its throughput alone, rarely 0 or up to 1.5.
  // With kinds, the pairs are pairs of kinds.
  bool pairs = false;
  // Servers have 4 accelerators, or in one problem of four 1 to 5. A gang
  // across servers has 0.2 to 1 of its throughput on one server.
  bool servers = false;
};
PolicyProblem RandomProblem(uint64_t seed, const ProblemShape& shape);

inline PolicyProblem RandomProblem(uint64_t seed, size_t jobs_max) {
  return RandomProblem(seed, {.jobs_max = jobs_max});
}
inline PolicyProblem RandomPairs(uint64_t seed, size_t jobs_max) {
  return RandomProblem(seed, {.jobs_max = jobs_max, .pairs = true});
}
inline PolicyProblem RandomPlacement(uint64_t seed, size_t jobs_max,
                                     bool pairs) {
  return RandomProblem(seed,
                       {.jobs_max = jobs_max, .pairs = pairs, .servers = true});
}

// Up to 9 jobs on three types, with all that a policy has to handle: gangs,
// weights, types that are too small or unusable, deadlines, jobs of unknown
// length, pairs, and jobs that fit nowhere.
inline ProblemShape SmallShape() {
  return {.types_min = 3,
          .types_max = 3,
          .jobs_max = 9,
          .capacity_more = 6,
          .gang_log_max = 2,
          .unknown_lengths = true,
          .passed_deadlines = true,
          .pairs = true};
}

// Shapes of all kinds for comparing solvers, with up to `jobs_max` jobs on 1 to
// 10 types. The seed modulo kFamilies chooses: plain, equal jobs, exact ties,
// wide ratios, gangs larger than types, few accelerators, many.
inline constexpr uint64_t kFamilies = 7;
ProblemShape FamilyShape(uint64_t seed, size_t jobs_max);

// Makes the problem's types usable by tiers of jobs: of 121 jobs, 81 can use
// the first of five types alone, 27 the first two, then 9, 3 and 1. Each of
// these tiers is frozen at its own level of the water filling.
void RestrictToTiers(PolicyProblem* problem);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_PROBLEMS_H_
