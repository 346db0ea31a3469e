// How the shares of the present jobs would change under another policy. Both
// policies solve the problem that the engine makes of the coordinator's report
// of its jobs. Pure.
//
// It knows neither measured pairs nor, for finish-time fairness, the isolated
// time of each job.
#ifndef GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_
#define GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "study/what_if/what_if.h"

namespace gavel::study {

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

// The jobs that lose most come first; jobs that keep their share are counted.
std::string RenderPreview(const PolicyPreview& preview, size_t width);
Json PreviewJson(const PolicyPreview& preview);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_WHAT_IF_POLICY_PREVIEW_H_
