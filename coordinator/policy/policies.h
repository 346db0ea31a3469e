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

// Curves through the losses that jobs report, for the policies that predict
// training (loss_policies.cc). Pure, thread-safe.
//
//   kReciprocal   1 / (b k + c) + d              Optimus (EuroSys'18), eq. 1
//   kSublinear    1 / (a k^2 + b k + c) + d      SLAQ (SoCC'17):
//   kExponential  exp(-b k - c) + d              first-order methods, and those
//                                                that converge linearly
//
// with a, b, c >= 0 (but c of any sign in kExponential) and k in steps. The
// asymptote d is below all losses; it is at least 0 if they are all above 0,
// and else no further below them than they have fallen.

enum class CurveFamily : uint8_t { kReciprocal, kSublinear, kExponential };

struct LossCurve {
  CurveFamily family = CurveFamily::kReciprocal;
  double a = 0, b = 0, c = 0, d = 0;
  // The mean of the squared errors by weight, as a part of the squared range
  // of the losses.
  double error = 0;

  double At(double steps) const;
};

// Fewer points than this have no curve.
inline constexpr size_t kLossPointsMin = 4;

// The curve of the family that is nearest to `points`, which ascend by steps:
// non-negative least squares for each asymptote, and a search for the best
// asymptote. The weight of a point is `decay` times that of the next one.
// Nothing if there are too few points, or if the loss does not fall.
std::optional<LossCurve> FitCurve(std::span<const PolicyLoss> points,
                                  CurveFamily family, double decay = 1);

// The two problems inside AlloX: what a second on each accelerator type is
// worth, and the matching of jobs to positions. Called by allox.cc. Pure
// functions, thread-safe.

// The value of a second of each accelerator type to a mix of jobs: the dual of
// the least makespan, max over p of sum_m min_j p_j t[m][j] with sum_j p_j N_j
// = 1. A division of jobs among types that keeps all types busy to the end has
// every job where p_j t[m][j] is least.
//
// `time_s` [n x J] row-major, accelerator-seconds that each job takes on each
// type, > 0; infinity: it can't run there. `capacity` [J], N_j >= 0.
//
// [J] prices, the dearest 1; 0 where there are no accelerators. To some percent
// (multiplicative weights, a fixed number of steps), O(n J) a step. All 1
// without jobs.
std::vector<double> TypePrices(std::span<const double> time_s,
                               std::span<const int> capacity);

// The assignment problem of AlloX (Le et al., EuroSys'20, section 4): jobs to
// positions in the queues of machines. Machines of a type that become free at
// the same time are alike, so their positions k = 1, 2, ... are one column of
// as many places instead of a column each: a transport problem, whose optimum
// is integral. See MatchPositions.

// Machines that are alike.
struct MachineGroup {
  size_t type = 0;
  double ready_s = 0;  // when they become free, >= 0
  int machines = 0;    // >= 1
};

struct MatchingProblem {
  size_t types = 0;                  // J
  std::vector<MachineGroup> groups;  // by type, then ready_s, all different
  // [n x J] row-major, > 0; kInfinity: cannot run there.
  std::vector<double> time_s;
  // [J] added to each job's from_end: that many more wait for a machine of the
  // type while one is busy. >= 0; empty: 0 each.
  std::vector<double> price;

  size_t jobs() const { return types == 0 ? 0 : time_s.size() / types; }
};

struct Position {
  size_t group = 0;
  // From the end of the queue: 1 runs last and delays itself only, k delays
  // itself and the k - 1 jobs behind it.
  int from_end = 0;  // 0: no machine can run the job
};

struct Matching {
  std::vector<Position> positions;  // by job
  // Sum over jobs of (from_end + price) * time_s + ready_s.
  double cost = 0;
  double bound = 0;  // no matching is cheaper, to rounding: by its duals
};

// The cheapest one, by shortest augmenting paths (Jonker and Volgenant 1987),
// O(n^3) at worst, as only the first empty positions are looked at.
Matching MatchPositions(const MatchingProblem& problem);

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
