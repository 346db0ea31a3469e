// The functions behind the policies, and what makes a Policy of a
// function. Each is described where it is defined. registry.cc gives them their
// names. Problems have passed CheckProblem. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_POLICIES_H_
#define GAVEL_COORDINATOR_POLICY_POLICIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "core/status.h"

// The Nash product of jobs' throughputs (proportional fairness): max over X of
// sum over jobs of log(T_m(X) / largest_m), with largest_m the most that job m
// can have. Called by the strategy-proof policies, k + 1 times for k jobs, so
// it has a solver of its own: a primal-dual interior-point method whose Newton
// step costs one small block for each job and one system of as many rows as
// there are limits. Linear programs with tangents take hundreds of times as
// long. Pure.

namespace gavel::policy {

// kOptimal: the bound proves the product to 1e-9 per job.
struct NashProduct : SolveReport {
  std::vector<double> shares;  // feasible
  double log_product = 0;      // of these shares
  // No X has a larger log_product. With prices p >= 0 of the limits, a = T(X)
  // at the shares and log t <= log a + t / a - 1:
  //   sum_m log a_m - k + sum_r p_r + sum_m max(0, max_c T_mc / a_m - p(c)).
  double bound = 0;  // to rounding
};

// Leaves out job `without`, which then has no time, and its logarithm. All
// units must be of one job only. If there is no job besides `without`, the
// product is empty: 0.
NashProduct MaximizeNashProduct(const ShareProblem& problem,
                                std::optional<size_t> without = std::nullopt);

}  // namespace gavel::policy

namespace gavel {

// A policy that is a function of the problem. Called by registry.cc, and by
// tests and benchmarks that set a solver's options. Thread-safe, as all
// policies.

// See Policy for both.
struct PolicyTraits {
  bool packs = false;
  bool reads_progress = true;
  bool reads_losses = false;
};

class FunctionPolicy : public Policy {
 public:
  using Function =
      std::function<absl::StatusOr<PolicyResult>(const PolicyProblem& problem)>;

  // `solve` gets problems that have passed CheckProblem.
  FunctionPolicy(std::string name, Function solve, PolicyTraits traits)
      : name_(std::move(name)), solve_(std::move(solve)), traits_(traits) {}

  std::string_view name() const override { return name_; }
  bool packs() const override { return traits_.packs; }
  bool reads_progress() const override { return traits_.reads_progress; }
  bool reads_losses() const override { return traits_.reads_losses; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
    return solve_(problem);
  }

 private:
  std::string name_;
  Function solve_;
  PolicyTraits traits_;
};

}  // namespace gavel

namespace gavel::policy {

// kAgnostic: all accelerator types that a job can use count alike (least
// attained service). kAware: by the job's throughput on each. kPacked: aware,
// and pairs of jobs may share accelerators (space sharing, Gavel section 3.1).
enum class PolicyForm : uint8_t { kAgnostic, kAware, kPacked };

// How policies of this form look at a problem. HiGHS alone gets all pairs.
inline ShareOptions OptionsOf(PolicyForm form, SolverChoice solver) {
  return {.pairs = form == PolicyForm::kPacked,
          .pairs_unlisted = solver != SolverChoice::kHighs,
          .agnostic = form == PolicyForm::kAgnostic};
}

// `alpha` in (0, 1].
PolicyResult SolveAllox(const PolicyProblem& problem, double alpha);
PolicyResult SolveDrf(const PolicyProblem& problem);
PolicyResult SolveFifo(const PolicyProblem& problem);
PolicyResult SolveFifoPacked(const PolicyProblem& problem);
PolicyResult SolveFifoPerf(const PolicyProblem& problem);
PolicyResult SolveFinishTimeFairness(const PolicyProblem& problem,
                                     PolicyForm form);
PolicyResult SolveGandiva(const PolicyProblem& problem);
PolicyResult SolveGandivaReactive(const PolicyProblem& problem);
PolicyResult SolveIsolated(const PolicyProblem& problem);
PolicyResult SolveMaxMinFairness(const PolicyProblem& problem, PolicyForm form,
                                 const LpOptions& options = {});
struct MaxSumOptions {
  PolicyForm form = PolicyForm::kAware;  // or kPacked
  bool by_cost = false;
  bool deadlines = false;
};
// INVALID_ARGUMENT by cost: a type costs nothing.
absl::StatusOr<PolicyResult> SolveMaxSumThroughput(const PolicyProblem& problem,
                                                   MaxSumOptions options);
// INVALID_ARGUMENT: a type costs nothing.
absl::StatusOr<PolicyResult> SolveMaxThroughputPerCost(
    const PolicyProblem& problem);
PolicyResult SolveMinTotalDuration(const PolicyProblem& problem,
                                   PolicyForm form);
PolicyResult SolveOptimus(const PolicyProblem& problem);
PolicyResult SolvePriority(const PolicyProblem& problem);
PolicyResult SolveProportional(const PolicyProblem& problem);
PolicyResult SolveSjf(const PolicyProblem& problem);
PolicyResult SolveSlaq(const PolicyProblem& problem);
// Alone: kAgnostic or kAware.
PolicyResult SolveStrategyProof(const PolicyProblem& problem, PolicyForm form);
PolicyResult SolveStrawman(const PolicyProblem& problem);
absl::StatusOr<PolicyResult> SolveThemis(const PolicyProblem& problem,
                                         double f);
PolicyResult SolveTiresias(const PolicyProblem& problem, bool gittins);
// INVALID_ARGUMENT names an entity whose policy does not exist; so both.
absl::StatusOr<PolicyResult> SolveWaterFilling(const PolicyProblem& problem,
                                               PolicyForm form);
// The same of a problem with entities: see fairness.cc. `normalizers`: of
// Normalizers(shares).
absl::StatusOr<PolicyResult> SolveHierarchy(
    const PolicyProblem& problem, ShareProblem shares,
    std::span<const double> normalizers);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_POLICIES_H_
