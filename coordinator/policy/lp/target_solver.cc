#include "coordinator/policy/lp/target_solver.h"

#include <algorithm>
#include <cmath>
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
  if (answer.outcome != SolveOutcome::kOptimal || PairsFound(options)) {
    return answer;
  }
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
  LevelQuestion question;
  question.demand.a = targets;
  question.level_max = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < targets.size(); ++m) {
    question.level_max = std::min(question.level_max, fastest[m] / targets[m]);
  }
  question.level_of = [&](std::span<const double> shares) {
    return Level(problem, targets, shares);
  };
  question.rates = [&](double level) {
    std::vector<double> rates = targets;
    for (double& rate : rates) rate *= level;
    return rates;
  };
  return LevelByPrices(problem, std::move(question), gain);
}

}  // namespace

TargetAnswer LevelByPrices(const ShareProblem& problem, LevelQuestion question,
                           std::span<const double> gain) {
  PriceProgram program(problem);
  PriceProgram::Answer found =
      program.Highest(std::move(question.demand), question.level_max);
  TargetAnswer answer;
  answer.solver = kPricesSolver;
  answer.iterations = found.passes;
  answer.bound = found.bound;
  answer.level = found.shares.empty() ? -std::numeric_limits<double>::infinity()
                                      : question.level_of(found.shares);
  const bool proved =
      answer.bound - answer.level <= kPriceGapMax * std::abs(answer.bound);
  if (!proved) {
    // Some job may have nothing.
    std::vector<double> even = EvenShares(problem);
    const double level = question.level_of(even);
    if (level > answer.level) {
      answer.level = level;
      found.shares = std::move(even);
    }
  }
  answer.detail = CheckBound(Sense::kMaximum, answer.level, &answer.bound);
  answer.outcome = SolveOutcome::kIterationLimit;
  if (answer.detail.empty() && !proved) {
    answer.detail = StrCat("prices: no closer to the bound after ",
                           found.passes, " passes");
  } else if (answer.detail.empty()) {
    answer.outcome = SolveOutcome::kOptimal;
    std::vector<double> more =
        program.SpendTheRest(found, question.rates(answer.level), gain);
    if (question.level_of(more) >=
        answer.level - TargetProgram::kLossMax * std::abs(answer.level)) {
      found.shares = std::move(more);
    }
  }
  answer.shares = std::move(found.shares);
  return answer;
}

TargetAnswer SolveTargets(const ShareProblem& problem,
                          const std::vector<double>& targets,
                          std::span<const double> gain, SolverChoice choice,
                          const LpOptions& options) {
  return ByPricesOrHighs(
      choice, PriceProgram::Serves(problem),
      [&] { return ByPrices(problem, targets, gain); },
      [&] { return ByHighs(problem, targets, gain, options); });
}

}  // namespace gavel::policy
