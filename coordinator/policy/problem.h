// What every policy does first: refuse a malformed problem, so that nothing
// behind this looks at sizes or for numbers that are none. Called by the
// policies. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_PROBLEM_H_
#define GAVEL_COORDINATOR_POLICY_PROBLEM_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "coordinator/policy/policy.h"

namespace gavel {

// INVALID_ARGUMENT names the job, pair, type or entity and says what to give:
// sizes that do not match, jobs or pairs not in ascending order, scale factor
// < 1, a weight that is not finite and > 0, times, steps, costs and throughputs
// that are not finite and >= 0, a deadline that is not a number, an entity or a
// kind of a pair that is not there, kinds of jobs with different scale factors
// or throughputs beside each other, a pair of different scale factors, negative
// capacities, servers that do not add up to them. PolicyJob::running_on may
// name a type that is gone. OK at once when it has been `checked`.
absl::Status CheckProblem(const PolicyProblem& problem);

// Of one job, its row of throughputs and its place behind the job before it:
// CheckProblem finds nothing wrong.
bool IsSoundJob(const PolicyProblem& problem, size_t job);

// The index of the pair of the kinds of two jobs. nullopt: they don't share.
// O(log P).
std::optional<size_t> FindPair(const PolicyProblem& problem, size_t job,
                               size_t other);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_PROBLEM_H_
