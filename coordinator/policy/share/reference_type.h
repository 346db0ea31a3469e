// The heterogeneity-agnostic view of policies that need real durations: every
// job is as fast on all types as on one of them (the original Gavel: as on a
// V100). Called by min_total_duration.cc and finish_time_fairness.cc. Pure
// function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_REFERENCE_TYPE_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_REFERENCE_TYPE_H_

#include "coordinator/policy/policy.h"

namespace gavel::policy {

// `problem` with T[m][j] := the throughput of job m on "v100" wherever it can
// run, its highest one where it can't run on that type or there is none.
// `problem` has passed CheckProblem.
PolicyProblem WithReferenceType(PolicyProblem problem);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_REFERENCE_TYPE_H_
