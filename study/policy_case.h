// Reads scheduling problems from the JSON files of `gavel solve`, and writes
// its answers. A problem has the form of the cases that record the original
// Gavel's policies, so that both programs can read the same file. Called by the
// solve command and by tests. Pure functions, thread-safe.
//
// A file is one case, or has several in "cases". The fields of a case are:
//   cluster_spec         {TYPE: accelerators}
//   jobs                 [{id, scale_factor, priority_weight (1),
//                          num_steps_remaining, time_since_start (0)}]; jobs
//                        arrive in the order of their ids
//   throughputs          {ID: {TYPE: steps/s}}, 0 where it cannot run
// and, if the policy uses them:
//   pair_throughputs     {"A,B": {TYPE: [A's steps/s, B's steps/s]}} if they
//                        share accelerators
//   kinds                {ID: ID of a job that behaves in the same way in
//                        pairs}; pair_throughputs then has only those jobs, and
//                        "A,A" is a pair of two jobs like A (default: each job
//                        is only like itself)
//   SLO_seconds_remaining     {ID: seconds to its deadline; <= 0: missed}
//   cumulative_isolated_time  [seconds] in the order of `jobs`, or {ID: ...}
//   time_received             {ID: seconds that it ran}
//   instance_costs       {TYPE: per accelerator and hour}
//   entities             {NAME: {jobs: [ID], weight, policy}}
//   previous_allocation  {ID or "A,B": {TYPE: share}}: what runs now
//   servers              {TYPE: [accelerators of each server]}; makes
//                        placement matter, and allows
//   unconsolidated_throughputs, unconsolidated_pair_throughputs
//                        the throughputs of gangs across servers, in the same
//                        form (default: the throughputs above)
// Other fields are ignored. docs/solve.schema.json is the schema of a file, and
// `gavel solve --example POLICY` prints an example.
#ifndef GAVEL_STUDY_POLICY_CASE_H_
#define GAVEL_STUDY_POLICY_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/json_fields.h"

namespace gavel::study {

struct PolicyCase {
  int64_t number = 0;  // "case" in the file, else its place there
  PolicyProblem problem;
};

// Ids in a file may be 0, which is not a valid JobId, so JobIds are one higher.
inline JobId JobIdOfCase(int64_t id) {
  return JobId(static_cast<uint64_t>(id) + 1);
}
inline int64_t IdInCase(JobId id) {
  return static_cast<int64_t>(id.value()) - 1;
}
// Rewrites the text of a policy to the ids of the file: "job 6" becomes "job
// 5".
std::string WithIdsOfCase(std::string_view text);

// Parses the problems that `policy` is to solve. INVALID_ARGUMENT: a field that
// the policy needs is missing, has the wrong type or is out of range, or an id
// is duplicate or unknown. The message names the case, the job and the remedy.
absl::StatusOr<std::vector<PolicyCase>> ParsePolicyCases(
    const ParsedJson& file, std::string_view policy);

// Whether `policy` refuses a case, or a job of a case, that lacks `field`.
bool PolicyNeeds(std::string_view policy, std::string_view field);

// A small valid case for `policy`: three jobs on accelerators of two types,
// with only the fields that the policy needs and uses.
Json PolicyExample(std::string_view policy);
// The same with all fields of docs/solve.schema.json.
Json FullPolicyExample();

// ---- answers, for machines and for people

struct PolicyAnswer {
  PolicyCase of;
  PolicyResult result;
  double time_s = 0;  // that the policy needed
};

// {"policy", "cases": [{"case", "status", "allocation": {"ID" or "A,B":
// {"TYPE": share}}, "objective", "bound", "gap", "solver", "iterations",
// "time_s", "left_out": [ID], "reason"}]}. "iterations" counts passes for
// prices and iterations for HiGHS; it is 0 for other solvers. An assignment has
// shares of 1. If placement matters, "TYPE_unconsolidated" has the time of
// gangs across servers. A pair without time is left out.
Json AnswersJson(std::string_view policy,
                 const std::vector<PolicyAnswer>& answers);

// One line for each case; if there is only one case, its shares follow.
std::string RenderAnswers(std::string_view policy,
                          const std::vector<PolicyAnswer>& answers,
                          size_t width);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_POLICY_CASE_H_
