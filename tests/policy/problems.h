// Problems for tests and benchmarks of policies: a few rows by hand, or random
// clusters. The same seed and shape give the same problem. Pure functions.
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

// Lets two jobs of `problem` (indices, first < second; pairs in order) share
// every type with these parts of what they have alone.
void AddPair(size_t first, size_t second, double part_of_first,
             double part_of_second, PolicyProblem* problem);

// How a random cluster and its jobs look.
struct ProblemShape {
  size_t types_min = 1;
  size_t types_max = 5;
  size_t jobs_min = 1;
  size_t jobs_max = 30;
  bool log_jobs = false;        // their number is log-uniform, else uniform
  int capacity_min = 0;         // accelerators of a type: from this to
  double capacity_more = 8;     // this more, and for each job
  double capacity_per_job = 0;  // this more
  bool crowded = false;  // at least as many jobs as there are accelerators
  int gang_log_max = 3;  // gangs of 1 to 2^this
  bool weights = true;   // a third of the jobs have one of 0.2 to 5, else all 1
  bool unusable = true;  // a job can't run on one type in eight
  bool whole_ratios = false;  // of a job's throughputs: exact ties
  // Throughputs of one job, and weights, differ by a factor of up to 1,000;
  // else of 25.
  bool wide = false;
  // Of jobs with the same throughputs and size of gangs; 0: each job is of its
  // own.
  size_t kinds = 0;
  bool unknown_lengths = false;  // one in six
  bool passed_deadlines = false;
  // Three quarters of the pairs of gangs of one size may share accelerators,
  // with 0.3 to 1 of what they have alone, rarely 0 or more. Where there are
  // kinds: by kinds.
  bool pairs = false;
  // Servers of 4 accelerators, or in one problem of four of 1 to 5; gangs
  // across servers have 0.2 to 1 of what they have on one.
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

// Up to 9 jobs on three types, with all that a policy has to take: gangs,
// weights, types that are too small or unusable, deadlines, jobs of unknown
// length, pairs, jobs that fit nowhere.
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

// Problems of all kinds for comparing solvers, up to `jobs_max` jobs on 1 to 10
// types; by the seed modulo kFamilies: plain, equal jobs, exact ties, wide
// ratios, gangs larger than types, few accelerators, many.
inline constexpr uint64_t kFamilies = 7;
ProblemShape FamilyShape(uint64_t seed, size_t jobs_max);

// Makes the problem's types usable by tiers of jobs: of 121 jobs 81 can use the
// first of five types alone, 27 the first two, then 9, 3 and 1. Each of these
// parts stops at a level of its own when water rises.
void RestrictToTiers(PolicyProblem* problem);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_PROBLEMS_H_
