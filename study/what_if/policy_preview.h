// What another policy would do to the shares of the jobs that are there: both
// policies solve the problem that the engine makes of what a coordinator tells
// of its jobs. Pure.
//
// What it does not know: pairs that were measured, and, for finish-time
// fairness, how each job would have fared alone.
#ifndef GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_
#define GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "study/what_if/what_if.h"

namespace gavel {

struct ShareChange {
  uint64_t id = 0;
  std::string name;
  std::string owner;
  double before = 0;  // share of time by the policy that decides now, [0, 1]
  double after = 0;   // and by the other one
};

struct PolicyPreview {
  std::string before;  // names of the policies
  std::string after;
  std::vector<ShareChange> jobs;  // by id
};

// INVALID_ARGUMENT: there is no such policy. FAILED_PRECONDITION: there are no
// accelerators, or one of the two finds no allocation.
absl::StatusOr<PolicyPreview> Preview(const LiveState& live,
                                      const std::string& policy);

// Those that lose most come first; who keeps its share is only counted.
std::string RenderPreview(const PolicyPreview& preview, size_t width);
Json PreviewJson(const PolicyPreview& preview);

}  // namespace gavel

#endif  // GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_
