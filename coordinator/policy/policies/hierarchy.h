// Hierarchical fairness (Gavel section 4.3): entities with weights share the
// cluster by water filling, and each divides its part among its jobs by a
// policy of its own. Called by the water-filling policies. Pure.
//
// An entity of weight w has w times the level of normalised throughput s_m /
// prop_m T_m(X), all its jobs together. Inside it, by PolicyEntity::policy:
// - "fairness": its jobs rise together, in proportion to their weights; what
//   one can't use, as it is at its most or no allocation gives it more, goes to
//   the others;
// - "fifo": all of it to the job that arrived first (ties by id) until that job
//   can have no more, then to the next;
// - the name of any policy: the policy divides a cluster of the entity's part
//   (each type's accelerators times w / sum of weights, rounded up, and never
//   fewer than the largest gang that fits the whole type) among the entity's
//   jobs alone; the entity's jobs then rise together in proportion to the
//   normalised throughputs that they have there. Jobs that have none come after
//   those, by their weights.
// A job without an entity is an entity of its own, with the job's weight.
//
// The objective is the level up to which no job is short of its demand: the
// first level at which some job can have no more. `bound` is above it in every
// feasible allocation.
#ifndef GAVEL_COORDINATOR_POLICY_POLICIES_HIERARCHY_H_
#define GAVEL_COORDINATOR_POLICY_POLICIES_HIERARCHY_H_

#include <span>

#include "absl/status/statusor.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel {

// `normalizers`: of Normalizers(shares). INVALID_ARGUMENT names an entity whose
// policy does not exist.
absl::StatusOr<PolicyResult> SolveHierarchy(
    const PolicyProblem& problem, ShareProblem shares,
    std::span<const double> normalizers);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_POLICIES_HIERARCHY_H_
