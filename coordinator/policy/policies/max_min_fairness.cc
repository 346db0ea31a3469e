#include "coordinator/policy/policies/max_min_fairness.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/pair_columns.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/lp/target_solver.h"
#include "coordinator/policy/policies/even_spread.h"
#include "coordinator/policy/problem.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/job_classes.h"
#include "core/status.h"

namespace gavel {
namespace {

// T_m(X) at v_m = 1, by job.
std::vector<double> Targets(const ShareProblem& shares,
                            const std::vector<double>& normalizers) {
  std::vector<double> targets(shares.size());
  for (size_t m = 0; m < targets.size(); ++m) {
    targets[m] = shares.weight[m] / normalizers[m];
  }
  return targets;
}

}  // namespace

std::string_view MaxMinFairness::name() const {
  switch (form_) {
    case FairnessForm::kAgnostic:
      return "max_min_fairness";
    case FairnessForm::kAware:
      return "max_min_fairness_perf";
    case FairnessForm::kPacked:
      return "max_min_fairness_packed";
  }
  return "";
}

namespace {

// On classes of equal jobs. Shares are those of the classes.
TargetAnswer SolveStages(const ShareProblem& shares,
                         std::span<const double> members, SolverChoice choice,
                         const LpOptions& options) {
  std::vector<double> gains = Normalizers(shares);
  const std::vector<double> targets = Targets(shares, gains);
  for (size_t m = 0; m < gains.size(); ++m) gains[m] *= members[m];
  TargetAnswer answer = SolveTargets(shares, targets, gains, choice, options);
  if (answer.outcome != SolveOutcome::kOptimal) return answer;
  std::vector<double> wanted = targets;
  for (double& throughput : wanted) throughput *= answer.bound;
  TopUpShares(shares, wanted, answer.shares);
  return answer;
}

// The answer's certificate, recomputed from its shares.
PolicyResult Certified(PolicyResult result, const TargetAnswer& answer) {
  result.outcome = answer.outcome;
  result.detail = answer.detail;
  result.solver = answer.solver;
  result.iterations = answer.iterations;
  Certify(Sense::kMaximum, &result);
  return result;
}

// Everyone in their best cells, if they all fit.
std::optional<PolicyResult> AllAtBest(const ShareProblem& shares) {
  std::optional<std::vector<double>> best = EveryoneAtBest(shares);
  if (!best.has_value()) return std::nullopt;
  SpreadEvenly(shares, *best);
  const double objective =
      Level(shares, Targets(shares, Normalizers(shares)), *best);
  return ToResult(shares, *best, objective, objective, "all-at-best");
}

// Jobs that run alone. Equal ones have equal shares, unless everyone is at
// their best: then maybe on different types.
PolicyResult SolveAlone(const PolicyProblem& problem,
                        const ShareOptions& share_options,
                        const LpOptions& options) {
  const JobClasses classes = ClassesOf(problem, share_options);
  const ShareProblem& shares = classes.problem;
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  if (MayAllBeAtBest(shares)) {
    auto best = AllAtBest(MakeShareProblem(problem, share_options));
    if (best.has_value()) return *std::move(best);
  }
  TargetAnswer answer =
      SolveStages(shares, classes.members, problem.solver, options);
  SpreadEvenly(shares, answer.shares);
  const double objective =
      Level(shares, Targets(shares, Normalizers(shares)), answer.shares);
  return Certified(
      ToResult(problem, classes, answer.shares, objective, answer.bound),
      answer);
}

PolicyResult SolvePacked(const PolicyProblem& problem,
                         const ShareOptions& share_options,
                         const LpOptions& options) {
  ShareProblem shares = MakeShareProblem(problem, share_options);
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  if (auto best = AllAtBest(shares)) return *std::move(best);
  const std::vector<double> targets = Targets(shares, Normalizers(shares));
  JobClasses classes = ClassifyJobs(shares);
  const TargetAnswer answer = SolveWithPairs(
      &classes.problem, options, [&](const LpOptions& with_pairs) {
        return SolveStages(classes.problem, classes.members, problem.solver,
                           with_pairs);
      });
  std::vector<double> all = SharesOfMembers(classes, answer.shares, &shares);
  SpreadEvenly(shares, all);
  const double objective = Level(shares, targets, all);
  return Certified(ToResult(shares, all, objective, answer.bound), answer);
}

}  // namespace

absl::StatusOr<PolicyResult> MaxMinFairness::Solve(
    const PolicyProblem& problem) const {
  GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
  const ShareOptions options = OptionsOf(form_, problem.solver);
  return options.pairs && !problem.pairs.empty()
             ? SolvePacked(problem, options, options_)
             : SolveAlone(problem, options, options_);
}

std::unique_ptr<Policy> MakeMaxMinFairness();
std::unique_ptr<Policy> MakeMaxMinFairness() {
  return std::make_unique<MaxMinFairness>(FairnessForm::kAgnostic);
}

std::unique_ptr<Policy> MakeMaxMinFairnessPerf();
std::unique_ptr<Policy> MakeMaxMinFairnessPerf() {
  return std::make_unique<MaxMinFairness>(FairnessForm::kAware);
}

std::unique_ptr<Policy> MakeMaxMinFairnessPacked();
std::unique_ptr<Policy> MakeMaxMinFairnessPacked() {
  return std::make_unique<MaxMinFairness>(FairnessForm::kPacked);
}

}  // namespace gavel
