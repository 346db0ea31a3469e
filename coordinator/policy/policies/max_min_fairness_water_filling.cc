// Max-min fairness by water filling: as max_min_fairness, and when the least
// job can have no more, the second least is made as large as it can be, and so
// on (Gavel section 4.3). With entities (organisations with weights, each with
// a policy inside) the hierarchical form of the same section.
//
// The objective is min over jobs of v_m = s_m / (w_m prop_m) T_m(X); the sorted
// vector of all v_m is the lexicographically largest one. With entities it is
// the first level, see hierarchy.cc.
#include <utility>
#include <vector>

#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/water_filling.h"

namespace gavel::policy {

absl::StatusOr<PolicyResult> SolveWaterFilling(const PolicyProblem& problem,
                                               PolicyForm form) {
  ShareProblem shares =
      MakeShareProblem(problem, OptionsOf(form, problem.solver));
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  const std::vector<double> normalizers = Normalizers(shares);
  if (problem.entities.empty()) {
    return SolveFlatWaterFilling(std::move(shares), normalizers,
                                 problem.solver);
  }
  return SolveHierarchy(problem, std::move(shares), normalizers);
}

}  // namespace gavel::policy
