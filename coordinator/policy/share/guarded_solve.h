// The one way in which a live coordinator asks a policy: whatever a problem is
// like, there is an answer, and a job whose figures the solvers can't take does
// not keep the others from theirs. The solver thread and replays call it.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_GUARDED_SOLVE_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_GUARDED_SOLVE_H_

#include "coordinator/policy/policy.h"

namespace gavel::policy {

// The policy's answer. Where that is an error, an exception or kFailed, jobs
// are left out, those with the most extreme figures first, until it is none;
// PolicyResult::too_extreme names them. Jobs with a weight or a throughput
// outside of [1e-15, 1e15] are left out from the start. kFailed: it fails
// without them, too, and `detail` says why.
PolicyResult GuardedSolve(const Policy& policy, const PolicyProblem& problem);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_GUARDED_SOLVE_H_
