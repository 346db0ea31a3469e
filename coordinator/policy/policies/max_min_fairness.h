// Max-min fairness, Gavel section 4.1: the least normalised throughput of all
// jobs is made as large as it can be. MakePolicy makes them; tests and
// researchers make them with options of the solver. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_POLICIES_MAX_MIN_FAIRNESS_H_
#define GAVEL_COORDINATOR_POLICY_POLICIES_MAX_MIN_FAIRNESS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel {

// kAgnostic: all accelerator types that a job can use count alike (least
// attained service). kAware: by the job's throughput on each. kPacked: aware,
// and pairs of jobs may share accelerators (space sharing, Gavel section 3.1).
enum class FairnessForm : uint8_t { kAgnostic, kAware, kPacked };

// How the policies of this form look at a problem. HiGHS alone gets all pairs.
inline ShareOptions OptionsOf(FairnessForm form, SolverChoice solver) {
  return {.pairs = form == FairnessForm::kPacked,
          .pairs_unlisted = solver != SolverChoice::kHighs,
          .agnostic = form == FairnessForm::kAgnostic};
}

class MaxMinFairness : public Policy {
 public:
  explicit MaxMinFairness(FairnessForm form, LpOptions options = {})
      : form_(form), options_(options) {}

  std::string_view name() const override;
  bool packs() const override { return form_ == FairnessForm::kPacked; }
  bool reads_progress() const override { return false; }
  // The objective is min over jobs of
  //   v_m = s_m / (w_m prop_m) * T_m(X),
  // prop_m = sum_j T[m][j] N_j / sum_j N_j, with T = 0 where the job cannot
  // run. What then is left over goes to whoever makes most of it, no one below
  // the optimum: the total of s_m / prop_m * T_m(X) is made as large as it can
  // be.
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override;

 private:
  FairnessForm form_;
  LpOptions options_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_POLICIES_MAX_MIN_FAIRNESS_H_
