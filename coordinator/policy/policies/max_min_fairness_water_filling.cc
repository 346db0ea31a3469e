// Max-min fairness by water filling: as max_min_fairness, and when the least
// job can have no more, the second least is made as large as it can be, and so
// on (Gavel section 4.3). With entities (organisations with weights, each with
// a policy inside) the hierarchical form of the same section.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/policy/policies/hierarchy.h"
#include "coordinator/policy/policies/max_min_fairness.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/problem.h"
#include "coordinator/policy/share/water_filling.h"
#include "core/status.h"

namespace gavel {
namespace {

// The objective is min over jobs of v_m = s_m / (w_m prop_m) T_m(X); the sorted
// vector of all v_m is the lexicographically largest one. With entities it is
// the first level, see hierarchy.h.
class WaterFilling : public Policy {
 public:
  WaterFilling(std::string_view name, FairnessForm form)
      : name_(name), form_(form) {}

  std::string_view name() const override { return name_; }
  bool packs() const override { return form_ == FairnessForm::kPacked; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
    ShareProblem shares =
        MakeShareProblem(problem, OptionsOf(form_, problem.solver));
    if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
    const std::vector<double> normalizers = Normalizers(shares);
    if (problem.entities.empty()) {
      return SolveFlatWaterFilling(std::move(shares), normalizers,
                                   problem.solver);
    }
    return SolveHierarchy(problem, std::move(shares), normalizers);
  }

 private:
  std::string_view name_;
  FairnessForm form_;
};

}  // namespace

std::unique_ptr<Policy> MakeWaterFilling();
std::unique_ptr<Policy> MakeWaterFilling() {
  return std::make_unique<WaterFilling>("max_min_fairness_water_filling",
                                        FairnessForm::kAgnostic);
}

std::unique_ptr<Policy> MakeWaterFillingPerf();
std::unique_ptr<Policy> MakeWaterFillingPerf() {
  return std::make_unique<WaterFilling>("max_min_fairness_water_filling_perf",
                                        FairnessForm::kAware);
}

std::unique_ptr<Policy> MakeWaterFillingPacked();
std::unique_ptr<Policy> MakeWaterFillingPacked() {
  return std::make_unique<WaterFilling>("max_min_fairness_water_filling_packed",
                                        FairnessForm::kPacked);
}

}  // namespace gavel
