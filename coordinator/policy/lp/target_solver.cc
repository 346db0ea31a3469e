#include "coordinator/policy/lp/target_solver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "coordinator/policy/lp/price_program.h"
#include "coordinator/policy/share/bound.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

TargetAnswer ByHighs(const ShareProblem& problem,
                     const std::vector<double>& targets,
                     std::span<const double> gain, const LpOptions& options) {
  TargetProgram program(problem, targets, options);
  TargetAnswer answer = program.Solve();
  const bool again = options.pairs != nullptr && options.pairs->found();
  if (answer.outcome != SolveOutcome::kOptimal || again) return answer;
  std::vector<double> more = program.SpendTheRest(answer.level, gain);
  if (!more.empty() && Level(problem, targets, more) >=
                           answer.level * (1 - TargetProgram::kLossMax)) {
    answer.shares = std::move(more);
  }
  return answer;
}

TargetAnswer ByPrices(const ShareProblem& problem,
                      const std::vector<double>& targets,
                      std::span<const double> gain) {
  const std::vector<double> fastest = LargestThroughputs(problem);
  double most = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < targets.size(); ++m) {
    most = std::min(most, fastest[m] / targets[m]);
  }
  PriceProgram program(problem);
  PriceDemand demand;
  demand.a = targets;
  PriceProgram::Answer found = program.Highest(std::move(demand), most);
  TargetAnswer answer;
  answer.solver = kPricesSolver;
  answer.iterations = found.passes;
  answer.bound = found.bound;
  if (!found.shares.empty()) {
    answer.level = Level(problem, targets, found.shares);
  }
  // What is not proved may leave some job with nothing.
  if (answer.level < answer.bound * (1 - kPriceGapMax)) {
    std::vector<double> even = EvenShares(problem);
    const double level = Level(problem, targets, even);
    if (level > answer.level) {
      answer.level = level;
      found.shares = std::move(even);
    }
  }
  answer.detail = CheckBound(Sense::kMaximum, answer.level, &answer.bound);
  if (!answer.detail.empty()) {
    answer.outcome = SolveOutcome::kIterationLimit;
  } else if (answer.level < answer.bound * (1 - kPriceGapMax)) {
    answer.outcome = SolveOutcome::kIterationLimit;
    answer.detail = StrCat("prices: no closer to the bound after ",
                           found.passes, " passes");
  } else {
    answer.outcome = SolveOutcome::kOptimal;
    std::vector<double> wanted = targets;
    for (double& rate : wanted) rate *= answer.level;
    std::vector<double> more = program.SpendTheRest(found, wanted, gain);
    if (Level(problem, targets, more) >=
        answer.level * (1 - TargetProgram::kLossMax)) {
      found.shares = std::move(more);
    }
  }
  answer.shares = std::move(found.shares);
  return answer;
}

}  // namespace

TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options) {
  const bool serves = PriceProgram::Serves(problem);
  if (choice == SolverChoice::kHighs || !serves) {
    return ByHighs(problem, targets, gain, options);
  }
  TargetAnswer answer = ByPrices(problem, targets, gain);
  if (choice == SolverChoice::kPrices ||
      answer.outcome == SolveOutcome::kOptimal) {
    return answer;
  }
  answer = ByHighs(problem, targets, gain, options);
  answer.solver += kAfterPrices;
  return answer;
}

}  // namespace gavel::policy
