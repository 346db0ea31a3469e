// Problems with pairs and placement, and what is right about shares of them,
// worked out from the problem alone.
#ifndef GAVEL_TESTS_POLICY_SHARE_KIT_H_
#define GAVEL_TESTS_POLICY_SHARE_KIT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// RandomProblem with three quarters of the pairs of equal gangs; together jobs
// have 0.3 to 1 of what they have alone, rarely 0.
PolicyProblem RandomPairs(uint64_t seed, size_t jobs_max);
// RandomProblem on servers of 1 to 4 accelerators; gangs across servers have
// 0.2 to 1 of what they have on one. `pairs`: as above.
PolicyProblem RandomPlacement(uint64_t seed, size_t jobs_max, bool pairs);

// All that makes the allocation infeasible by more than 1e-9: negative shares,
// time where a unit can't run, more than all of a job's time or of a type's
// accelerators, more consolidated gangs than servers have room for, jobs
// wrongly left out or in. Empty: feasible.
std::string ShareErrors(const PolicyProblem& problem,
                        const PolicyResult& result);

// [n] steps/s of all jobs. `agnostic`: the time that they run.
std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const Allocation& allocation, bool agnostic);
// [n] s_m / (w_m prop_m) T_m(X), Gavel section 4.1; NaN for jobs that run
// nowhere. Shares of servers' types as for ProportionalThroughputs.
std::vector<double> JobValues(const PolicyProblem& problem,
                              const Allocation& allocation, bool agnostic);
// Whether the objective of the policy of that name is what its formula makes of
// the shares alone, to 1e-10, and every job has what it needs for its deadline,
// to a millionth, where the result does not tell otherwise. Empty: all is so.
std::string FormulaErrors(std::string_view policy, const PolicyProblem& problem,
                          const PolicyResult& result);
// The least of them, NaN left aside.
double LeastValue(const std::vector<double>& values);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_SHARE_KIT_H_
