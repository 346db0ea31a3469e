// Problems to solve and the proof that an answer is right: a solver's answer is
// checked for what it must satisfy, never against one expected vector.
#ifndef GAVEL_TESTS_POLICY_CERTIFICATE_H_
#define GAVEL_TESTS_POLICY_CERTIFICATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// Jobs 1, 2, ... with these throughputs, scale factor 1 and weight 1.
PolicyProblem MakeProblem(std::vector<int> capacity,
                          const std::vector<std::vector<double>>& throughputs);

// A mixed problem of up to `jobs_max` jobs: gangs, weights, types on which a
// job can't run, types without accelerators, jobs that fit nowhere.
PolicyProblem RandomProblem(uint64_t seed, size_t jobs_max);

// True throughputs, 0 where the job cannot run; 1 for all others if `agnostic`.
std::vector<double> UsableRow(const PolicyProblem& problem, size_t job,
                              bool agnostic);

// s_m / (w_m prop_m) * sum_j T[m][j] x[j], straight from Gavel section 4.1.
double NormalizedThroughput(const PolicyProblem& problem, size_t job,
                            const std::vector<double>& x, bool agnostic);

// Everything wrong with `result` as an allocation of `problem`: shares outside
// their limits by more than 1e-12, time on types that the job cannot use, jobs
// in neither the allocation nor left_out. Empty: feasible.
std::string FeasibilityErrors(const PolicyProblem& problem,
                              const PolicyResult& result);

// The least normalised throughput of the jobs in the allocation.
double MaxMinObjective(const PolicyProblem& problem, const PolicyResult& result,
                       bool agnostic);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_CERTIFICATE_H_
