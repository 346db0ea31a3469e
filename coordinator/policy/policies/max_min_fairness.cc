// Max-min fairness, Gavel section 4.1: the least normalised throughput of all
// jobs is made as large as it can be. The objective is min over jobs of
//   v_m = s_m / (w_m prop_m) * T_m(X),
// prop_m = sum_j T[m][j] N_j / sum_j N_j, with T = 0 where the job cannot run.
// What then is left over goes where it gains most, with no job below the
// optimum: the total of s_m / prop_m * T_m(X) is made as large as it can be.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/pair_columns.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/lp/target_solver.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/job_classes.h"

namespace gavel::policy {
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

// min_m v_m.
double LeastValue(const ShareProblem& shares, std::span<const double> of) {
  return Level(shares, Targets(shares, Normalizers(shares)), of);
}

// Jobs that run alone. Equal ones have equal shares, unless all jobs are
// in their best cells: then maybe on different types.
PolicyResult SolveAlone(const PolicyProblem& problem,
                        const ShareOptions& share_options,
                        const LpOptions& options) {
  const JobClasses classes = ClassesOf(problem, share_options);
  const ShareProblem& shares = classes.problem;
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  if (MayAllBeAtBest(shares)) {
    const ShareProblem all = MakeShareProblem(problem, share_options);
    const auto value = [&](std::span<const double> of) {
      return LeastValue(all, of);
    };
    if (auto result = ResultIfNoneScarce(all, value)) return *result;
  }
  TargetAnswer answer =
      SolveStages(shares, classes.members, problem.solver, options);
  SpreadEvenly(shares, answer.shares);
  return Certified(Sense::kMaximum, answer,
                   ToResult(problem, classes, answer.shares,
                            LeastValue(shares, answer.shares), answer.bound));
}

PolicyResult SolvePacked(const PolicyProblem& problem,
                         const ShareOptions& share_options,
                         const LpOptions& options) {
  ShareProblem shares = MakeShareProblem(problem, share_options);
  const std::vector<double> targets = Targets(shares, Normalizers(shares));
  const auto value = [&](std::span<const double> of) {
    return Level(shares, targets, of);
  };
  if (auto result = ResultIfNoneScarce(shares, value)) return *result;
  JobClasses classes = ClassifyJobs(shares);
  const TargetAnswer answer = SolveWithPairs(
      &classes.problem, options, [&](const LpOptions& with_pairs) {
        return SolveStages(classes.problem, classes.members, problem.solver,
                           with_pairs);
      });
  std::vector<double> all = SharesOfMembers(classes, answer.shares, &shares);
  SpreadEvenly(shares, all);
  return Certified(Sense::kMaximum, answer,
                   ToResult(shares, all, value(all), answer.bound));
}

}  // namespace

PolicyResult SolveMaxMinFairness(const PolicyProblem& problem, PolicyForm form,
                                 const LpOptions& options) {
  const ShareOptions share_options = OptionsOf(form, problem.solver);
  return share_options.pairs && !problem.pairs.empty()
             ? SolvePacked(problem, share_options, options)
             : SolveAlone(problem, share_options, options);
}

}  // namespace gavel::policy
