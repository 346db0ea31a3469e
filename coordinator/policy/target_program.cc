#include "coordinator/policy/target_program.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "coordinator/policy/bound.h"
#include "coordinator/policy/price_program.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

// The second stage may take this part of the level: as much as the tolerance of
// the first.
constexpr double kLevelSlack = 1e-9;
// Relative; a program whose bound is further away is solved another way, too.
constexpr double kGapMax = 1e-8;

// The solver's tolerance is much for a job that needs next to nothing.
void TopUp(const ShareProblem& problem, std::span<const double> targets,
           double level, std::vector<double>* shares) {
  std::vector<double> wanted(targets.begin(), targets.end());
  for (double& rate : wanted) rate *= level;
  TopUpShares(problem, wanted, *shares);
}

}  // namespace

double Level(const ShareProblem& problem, std::span<const double> targets,
             std::span<const double> shares) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < problem.size(); ++m) {
    least = std::min(least, Throughput(problem, m, shares) / targets[m]);
  }
  return least;
}

TargetProgram::TargetProgram(const ShareProblem& problem,
                             std::vector<double> targets, LpOptions options)
    : problem_(problem),
      targets_(std::move(targets)),
      options_(options),
      unit_(Level(problem, targets_, EvenShares(problem))),
      program_(problem),
      share_rows_(static_cast<size_t>(program_.lp.rows())) {
  assert(problem.size() > 0 && targets_.size() == problem.size());
  AddTargets();
  solver_ = std::make_unique<HighsSolver>(program_.lp, options);
}

// Rows T_m(X) / (unit target_m) - level >= 0, scaled.
void TargetProgram::AddTargets() {
  const std::vector<double> fastest = LargestThroughputs(problem_);
  double most = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < targets_.size(); ++m) {
    most = std::min(most, fastest[m] / targets_[m]);
  }
  level_column_ = program_.lp.AddColumn(1, 0, most / unit_);
  for (size_t m = 0; m < targets_.size(); ++m) {
    const double most_of_row = fastest[m] / targets_[m] / unit_;
    const double scale = std::min(1.0, kRowValueMax / most_of_row);
    row_factor_.push_back(scale / unit_ / targets_[m]);
    const LpEntry level = {level_column_, -scale};
    program_.AddThroughputRow(m, row_factor_[m], {&level, 1}, 0, kInfinity);
  }
}

void TargetProgram::AddCertificate(const LpSolution& solution,
                                   TargetAnswer* answer) const {
  std::vector<double> row_duals = solution.row_duals;
  const double rise = PricePairs(options_, program_, nullptr, 1, &row_duals);
  answer->bound = unit_ * (DualBound(program_.lp, row_duals) + rise);
  if (row_duals.empty()) return;
  // The Lagrangian of the target rows alone: what is left is a linear function
  // of X, and the duals of the other rows bound it.
  ShareProgram shares(problem_);
  for (size_t m = 0; m < targets_.size(); ++m) {
    const double dual = std::max(0.0, -row_duals[share_rows_ + m]);
    answer->slope.push_back(dual * row_factor_[m]);
    shares.AddThroughputCost(m, answer->slope[m], shares.lp.column_cost);
  }
  answer->slope_bound =
      DualBound(shares.lp, std::span(row_duals).first(share_rows_)) + rise;
}

TargetAnswer TargetProgram::AnswerOf(const LpSolution& solution) const {
  TargetAnswer answer;
  static_cast<SolveReport&>(answer) = solution;
  answer.shares = program_.Shares(solution);
  if (!answer.shares.empty()) {
    const auto level = static_cast<size_t>(level_column_);
    TopUp(problem_, targets_, solution.column_values[level] * unit_,
          &answer.shares);
    answer.level = Level(problem_, targets_, answer.shares);
  }
  if (answer.level < unit_) {
    answer.shares = EvenShares(problem_);
    answer.level = unit_;
  }
  AddCertificate(solution, &answer);
  const std::string error =
      CheckBound(Sense::kMaximum, answer.level, &answer.bound);
  if (!error.empty() && answer.outcome == SolveOutcome::kOptimal) {
    answer.outcome = SolveOutcome::kIterationLimit;
    answer.detail = error;
  }
  return answer;
}

TargetAnswer TargetProgram::Solve() {
  TargetAnswer answer = AnswerOf(solver_->Solve());
  if (answer.outcome == SolveOutcome::kIterationLimit ||
      answer.bound <= answer.level * (1 + kGapMax) || PairsFound(options_)) {
    return answer;
  }
  // Targets of very different sizes: interior point has better duals there.
  LpOptions options = options_;
  options.method = LpMethod::kInteriorPoint;
  TargetAnswer second = AnswerOf(HighsSolver(program_.lp, options).Solve());
  second.iterations += answer.iterations;
  if (second.outcome != SolveOutcome::kOptimal) return answer;
  if (second.level < answer.level) {
    second.level = answer.level;
    second.shares = std::move(answer.shares);
    const std::string error =
        CheckBound(Sense::kMaximum, second.level, &second.bound);
    if (!error.empty()) return answer;
  }
  return second.bound < answer.bound ? second : answer;
}

std::vector<double> TargetProgram::SpendTheRest(double level,
                                                std::span<const double> gain) {
  std::vector<double> costs(program_.lp.column_cost.size(), 0.0);
  for (size_t m = 0; m < gain.size(); ++m) {
    program_.AddThroughputCost(m, gain[m], costs);
  }
  const double largest = *std::max_element(costs.begin(), costs.end());
  for (double& cost : costs) cost /= largest;
  solver_->ChangeCosts(costs);
  const double least =
      std::min(level / unit_ * (1 - kLevelSlack),
               program_.lp.column_upper[static_cast<size_t>(level_column_)]);
  solver_->ChangeColumnBounds(level_column_, least, kInfinity);
  LpSolution solution = solver_->Solve();
  if (solution.outcome != SolveOutcome::kOptimal) return {};
  const SumObjective objective{{gain.begin(), gain.end()},
                               std::vector<double>(problem_.types, 1.0),
                               std::vector<double>(problem_.types, 0.0)};
  PricePairs(options_, program_, &objective, largest, &solution.row_duals);
  std::vector<double> shares = program_.Shares(solution);
  TopUp(problem_, targets_, level * (1 - kLevelSlack), &shares);
  return shares;
}

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
