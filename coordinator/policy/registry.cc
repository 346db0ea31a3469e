#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

// All policies: the name that users write, the function that makes it (defined
// in the policy's own file). A new policy is one file and one line here.
#define GAVEL_POLICIES(POLICY)                   \
  POLICY("fifo", MakeFifo)                       \
  POLICY("max_min_fairness", MakeMaxMinFairness) \
  POLICY("max_min_fairness_perf", MakeMaxMinFairnessPerf)

namespace gavel {

#define GAVEL_DECLARE_POLICY(name, make) std::unique_ptr<Policy> make();
GAVEL_POLICIES(GAVEL_DECLARE_POLICY)
#undef GAVEL_DECLARE_POLICY

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

constexpr Entry kPolicies[] = {
#define GAVEL_LIST_POLICY(name, make) {name, &make},
    GAVEL_POLICIES(GAVEL_LIST_POLICY)
#undef GAVEL_LIST_POLICY
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make();
  }
  return absl::NotFoundError(StrCat("policy \"", name,
                                    "\" does not exist; choose one of ",
                                    absl::StrJoin(PolicyNames(), ", ")));
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gavel
