// Scheduling problems as files: the JSON that `gavel solve` reads, and the
// answers that it writes. The form of a problem is that of the cases that
// record the original Gavel's policies, so that one file can be given to both.
// Called by the solve command and by tests. Pure functions, thread-safe.
//
// A file is one case, or has several in "cases". Of a case:
//   cluster_spec         {TYPE: accelerators}
//   jobs                 [{id, scale_factor, priority_weight (1),
//                          num_steps_remaining, time_since_start (0)}]; jobs
//                        arrive in the order of their ids
//   throughputs          {ID: {TYPE: steps/s}}, 0 where it cannot run
// and where the policy uses them:
//   pair_throughputs     {"A,B": {TYPE: [of A, of B]}}, when they share
//   kinds                {ID: ID of the job that it is like when they share};
//                        pair_throughputs are then of those, "A,A" of two that
//                        are like A (default: each is like itself only)
//   SLO_seconds_remaining     {ID: seconds to its deadline; <= 0: missed}
//   cumulative_isolated_time  [seconds] in the order of `jobs`, or {ID: ...}
//   time_received             {ID: seconds that it ran}
//   instance_costs       {TYPE: per accelerator and hour}
//   entities             {NAME: {jobs: [ID], weight, policy}}
//   previous_allocation  {ID or "A,B": {TYPE: share}}: what runs now
//   servers              {TYPE: [accelerators of each server]}: placement
//                        matters; then also
//   unconsolidated_throughputs, unconsolidated_pair_throughputs: as those
//                        above, of gangs across servers (default: as those)
// Anything else in it is not read. docs/solve.schema.json has the same as a
// schema, and `gavel solve --example POLICY` prints one.
#ifndef GAVEL_STUDY_SOLVE_POLICY_CASE_H_
#define GAVEL_STUDY_SOLVE_POLICY_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "coordinator/cli/json_fields.h"
#include "coordinator/policy/policy.h"

namespace gavel::study {

struct PolicyCase {
  int64_t number = 0;  // "case" of the file, else its place there
  PolicyProblem problem;
};

// Ids of files may be 0, which is no JobId: ours are one higher.
inline JobId JobIdOfCase(int64_t id) {
  return JobId(static_cast<uint64_t>(id) + 1);
}
inline int64_t IdInCase(JobId id) {
  return static_cast<int64_t>(id.value()) - 1;
}
// "job 5" for "job 6": what a policy says, with the file's ids.
std::string WithIdsOfCase(std::string_view text);

// The problems that `policy` is to solve. Errors (INVALID_ARGUMENT) name the
// case, the job and the remedy: a field that the policy needs and is missing,
// of another type or out of range, an id that is there twice or unknown.
absl::StatusOr<std::vector<PolicyCase>> ParsePolicyCases(
    const ParsedJson& file, std::string_view policy);

// Whether a case for `policy` without `field`, or a job of it, is refused.
bool PolicyNeeds(std::string_view policy, std::string_view field);

// A small valid case of `policy`, with what that policy needs and uses, and no
// more: three jobs on accelerators of two types.
Json PolicyExample(std::string_view policy);
// The same with all fields of docs/solve.schema.json.
Json FullPolicyExample();

// ---- answers, for machines and for people

struct PolicyAnswer {
  PolicyCase of;
  PolicyResult result;
  double time_s = 0;  // that the policy took
};

// {"policy", "cases": [{"case", "status", "allocation": {"ID" or "A,B":
// {"TYPE": share}}, "objective", "bound", "gap", "solver", "iterations",
// "time_s", "left_out": [ID], "reason"}]}. Iterations are passes over prices, 0
// by other solvers. An assignment is shares of 1. Where placement
// matters, the time of gangs across servers is that of "TYPE_unconsolidated". A
// pair without time is not there.
Json AnswersJson(std::string_view policy,
                 const std::vector<PolicyAnswer>& answers);

// One line for each case; of a single case its shares, too.
std::string RenderAnswers(std::string_view policy,
                          const std::vector<PolicyAnswer>& answers,
                          size_t width);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SOLVE_POLICY_CASE_H_
