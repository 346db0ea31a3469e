// The most throughput: max sum over jobs of T_m(X) (Gavel section 4.2, "total
// throughput" and "minimise cost").
//
// As in the original, raw steps/s of all jobs are added, so that jobs with fast
// steps come first, and neither weights nor scale factors count. With
// `normalized_by_cost` a step on type j counts 1/cost_j. With `SLOs` every job
// with a deadline gets T_m(X) >= rem_m / deadline_m; where that can't be, the
// least total of relative shortfalls comes first, then the objective, and the
// outcome says whose deadline it is (the original drops all of them).
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/deadline_program.h"
#include "coordinator/policy/lp/pair_columns.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/share_problem.h"
#include "core/status.h"

namespace gavel::policy {
namespace {

// sum_m T_m, over the cost of the type.
SumObjective Objective(const ShareProblem& shares,
                       const std::vector<double>& cost) {
  SumObjective objective;
  objective.gain.assign(shares.size(), 1.0);
  for (const double one : cost) objective.worth.push_back(1 / one);
  objective.rent.assign(cost.size(), 0.0);
  return objective;
}

}  // namespace

absl::StatusOr<PolicyResult> SolveMaxSumThroughput(const PolicyProblem& problem,
                                                   MaxSumOptions options) {
  std::vector<double> cost(problem.types.size(), 1.0);
  if (options.by_cost) {
    GAVEL_ASSIGN_OR_RETURN(cost, Costs(problem));
  }
  ShareProblem shares =
      MakeShareProblem(problem, OptionsOf(options.form, problem.solver));
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  const SumObjective sum = Objective(shares, cost);
  std::vector<DeadlineFloor> floors;
  if (options.deadlines) floors = DeadlineFloors(problem, shares);
  DeadlineProgram::Answer answer =
      SolveWithPairs(&shares, {}, [&](const LpOptions& lp) {
        return DeadlineProgram(problem, shares, floors, lp).Maximize(sum);
      });
  if (answer.shares.empty()) answer.shares = EvenShares(shares);
  const std::vector<double> values = CellValues(shares, sum);
  const double objective = std::inner_product(values.begin(), values.end(),
                                              answer.shares.begin(), 0.0);
  PolicyResult result =
      ToResult(shares, answer.shares, objective, answer.bound);
  // With deadlines a dear type may be the one that a job needs.
  if (options.deadlines) {
    result.worth = TypeWorth::kAlike;
  } else {
    result.worth = options.by_cost ? TypeWorth::kThroughputPerCost
                                   : TypeWorth::kThroughput;
  }
  return Certified(Sense::kMaximum, answer, std::move(result));
}

}  // namespace gavel::policy
