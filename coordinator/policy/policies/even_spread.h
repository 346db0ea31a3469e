// Where to run, for policies to which all types are alike: the same time for
// each job, spread equally over the types that it can use, as far as their
// accelerators go. In proportion to their numbers a job would spend most of its
// time on the type of which there are most, the slowest as a rule. A vertex of
// a linear program would leave one job on the fastest type and another on the
// slowest for good. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_POLICIES_EVEN_SPREAD_H_
#define GAVEL_COORDINATOR_POLICY_POLICIES_EVEN_SPREAD_H_

#include <functional>
#include <optional>
#include <span>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

// Moves each job's shares among its cells: their sum stays as it is, to
// rounding, and limits are kept. Leaves `shares` alone when some job is not
// equally fast in all of its cells, when there are pairs, or when a spread that
// keeps every sum is not found (an iteration that has not converged).
void SpreadEvenly(const ShareProblem& problem, std::span<double> shares);

// Where no accelerator is scarce: there are no jobs, or every job can have its
// best cell all the time (EveryoneAtBest), spread evenly. `objective` of these
// shares is also the bound. nullopt: there is something to solve.
std::optional<PolicyResult> ResultIfNoneScarce(
    const ShareProblem& problem,
    const std::function<double(std::span<const double> shares)>& objective);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_POLICIES_EVEN_SPREAD_H_
