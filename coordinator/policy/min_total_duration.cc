// Makespan: min over X of max_m rem_m / T_m(X), seconds (Gavel section 4.2).
// Exactly: with theta = 1 / makespan it is the linear program max theta,
// T_m(X) >= rem_m theta, where the original bisects to 5 %. What the optimum
// leaves is given to the jobs by weight and normalised throughput.
//
// A job of unknown length counts as long as the longest known one.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policy/bound.h"
#include "coordinator/policy/even_spread.h"
#include "coordinator/policy/lp/pair_columns.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/lp/target_solver.h"
#include "coordinator/policy/option_policy.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/problem.h"
#include "coordinator/policy/reference_type.h"
#include "coordinator/policy/share_problem.h"
#include "core/status.h"

namespace gavel {
namespace {

struct MakespanOptions {
  bool agnostic = false;
  bool pairs = false;
};

// [k] steps left.
std::vector<double> Remaining(const PolicyProblem& problem,
                              const ShareProblem& shares) {
  const std::vector<double> fastest = LargestThroughputs(shares);
  std::vector<double> remaining;
  double longest_s = 0;
  for (size_t m = 0; m < shares.size(); ++m) {
    remaining.push_back(problem.jobs[shares.jobs[m]].steps_remaining);
    longest_s = std::max(longest_s, remaining[m] / fastest[m]);
  }
  if (longest_s == 0) longest_s = 1;
  for (size_t m = 0; m < shares.size(); ++m) {
    if (remaining[m] <= 0) remaining[m] = longest_s * fastest[m];
  }
  return remaining;
}

absl::StatusOr<PolicyResult> SolveAware(const PolicyProblem& problem,
                                        bool pairs) {
  ShareProblem shares = MakeShareProblem(
      problem, {.pairs = pairs,
                .pairs_unlisted = problem.solver != SolverChoice::kHighs});
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  const std::vector<double> remaining = Remaining(problem, shares);
  if (auto best = EveryoneAtBest(shares)) {
    SpreadEvenly(shares, *best);
    const double makespan_s = 1 / Level(shares, remaining, *best);
    return ToResult(shares, *best, makespan_s, makespan_s, "all-at-best");
  }
  std::vector<double> gain = Normalizers(shares);
  for (size_t m = 0; m < gain.size(); ++m) gain[m] *= shares.weight[m];
  TargetAnswer answer =
      SolveWithPairs(&shares, {}, [&](const LpOptions& options) {
        return SolveTargets(shares, remaining, gain, problem.solver, options);
      });
  SpreadEvenly(shares, answer.shares);
  const double makespan_s = 1 / Level(shares, remaining, answer.shares);
  PolicyResult result =
      ToResult(shares, answer.shares, makespan_s, 1 / answer.bound);
  result.outcome = answer.outcome;
  result.detail = std::move(answer.detail);
  result.solver = std::move(answer.solver);
  result.iterations = answer.iterations;
  Certify(Sense::kMinimum, &result);
  return result;
}

absl::StatusOr<PolicyResult> Solve(const PolicyProblem& problem,
                                   const MakespanOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
  if (!options.agnostic) return SolveAware(problem, options.pairs);
  return SolveAware(WithReferenceType(problem), options.pairs);
}

std::unique_ptr<Policy> Make(std::string_view name, MakespanOptions options) {
  return std::make_unique<OptionPolicy<MakespanOptions>>(name, Solve, options);
}

}  // namespace

std::unique_ptr<Policy> MakeMinTotalDuration();
std::unique_ptr<Policy> MakeMinTotalDuration() {
  return Make("min_total_duration", {.agnostic = true});
}

std::unique_ptr<Policy> MakeMinTotalDurationPerf();
std::unique_ptr<Policy> MakeMinTotalDurationPerf() {
  return Make("min_total_duration_perf", {});
}

std::unique_ptr<Policy> MakeMinTotalDurationPacked();
std::unique_ptr<Policy> MakeMinTotalDurationPacked() {
  return Make("min_total_duration_packed", {.pairs = true});
}

}  // namespace gavel
