// Random problems on which solvers are compared, and how many of them.
#ifndef GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_
#define GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_

#include <cstddef>
#include <cstdint>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// GAVEL_SOLVER_INSTANCES, 300 without; from number GAVEL_SOLVER_FIRST on, so
// that long runs can be made in parts; at most GAVEL_SOLVER_JOBS jobs.
int Instances();
int FirstInstance();
size_t InstanceJobsMax();

// J 1 to 10, n log-uniform up to `jobs_max`; by the seed's last digit: plain,
// equal jobs, exact ties between types, ratios up to 1e-6..1e6, gangs larger
// than types, few accelerators, many.
PolicyProblem Instance(uint64_t seed, size_t jobs_max);

// Instance on servers of 4 accelerators, one in four on servers of any size up
// to 5; gangs across servers have 0.2 to 1 of what they have on one.
PolicyProblem PlacedInstance(uint64_t seed, size_t jobs_max);

// Instance with pairs: a third each with kinds of equal jobs, with kinds whose
// jobs differ alone, and with every job of its own kind. Together jobs have 0.3
// to 1 of what the first job of their kind has alone, rarely 0 or more.
PolicyProblem PackedInstance(uint64_t seed, size_t jobs_max);

inline constexpr int kInstanceFamilies = 7;  // by the seed modulo this
inline constexpr int kExtremeFamily = 3;     // ratios of 1e-6..1e6

// The problem with that solver.
PolicyResult By(SolverChoice choice, const char* policy, PolicyProblem problem);
bool ByPrices(const PolicyResult& result);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_
