#include "coordinator/policy/share_program.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "core/text.h"

namespace gavel::policy {

ShareProgram::ShareProgram(const ShareProblem& problem) : problem_(problem) {
  const size_t limits = problem.limits.size();
  const size_t rows = limits + problem.size();
  lp.column_cost.assign(problem.cells.size(), 0.0);
  lp.column_lower.assign(problem.cells.size(), 0.0);
  lp.column_upper.assign(problem.cells.size(), 1.0);
  lp.row_lower.assign(rows, -kInfinity);
  lp.row_upper.assign(rows, 1.0);
  // How many entries each row has: they are filled in one pass over the cells.
  std::vector<int> count(limits, 0);
  for (const ShareCell& cell : problem.cells) {
    cell.ForEachLimit([&](uint32_t r) { ++count[r]; });
  }
  int entries = 0;
  for (size_t r = 0; r < rows; ++r) {
    lp.row_start.push_back(entries);
    entries += r < limits ? count[r]
                          : static_cast<int>(problem.Cells(r - limits).size());
  }
  lp.entry_column.resize(static_cast<size_t>(entries));
  lp.entry_value.resize(static_cast<size_t>(entries));
  std::vector<int> next = lp.row_start;  // where a row's next entry goes
  const auto put = [&](size_t row, size_t column, double value) {
    const auto at = static_cast<size_t>(next[row]++);
    lp.entry_column[at] = static_cast<int>(column);
    lp.entry_value[at] = value;
  };
  for (size_t i = 0; i < problem.cells.size(); ++i) {
    const ShareCell& cell = problem.cells[i];
    cell.ForEachLimit(
        [&](uint32_t r) { put(r, i, cell.scale_factor / problem.limits[r]); });
  }
  for (size_t m = 0; m < problem.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      put(limits + m, cell.cell, cell.time);
    }
  }
}

int ShareProgram::AddThroughputRow(size_t m, double factor,
                                   std::span<const LpEntry> extra, double lower,
                                   double upper) {
  row_.clear();
  for (const JobCell& cell : problem_.Cells(m)) {
    row_.push_back({static_cast<int>(cell.cell), factor * cell.throughput});
  }
  row_.insert(row_.end(), extra.begin(), extra.end());
  const int row = lp.AddRow(lower, upper, row_);
  throughput_rows_.push_back({m, factor, static_cast<size_t>(row)});
  return row;
}

void ShareProgram::AddThroughputCost(size_t m, double factor,
                                     std::span<double> costs) const {
  for (const JobCell& cell : problem_.Cells(m)) {
    costs[cell.cell] += factor * cell.throughput;
  }
}

std::vector<double> ShareProgram::Shares(const LpSolution& solution) const {
  if (solution.column_values.empty()) return {};
  std::vector<double> shares(
      solution.column_values.begin(),
      solution.column_values.begin() +
          static_cast<std::ptrdiff_t>(problem_.cells.size()));
  RepairShares(problem_, shares);
  return shares;
}

double DualBound(const LinearProgram& program,
                 std::span<const double> row_duals) {
  assert(row_duals.empty() ||
         row_duals.size() == static_cast<size_t>(program.rows()));
  // For any y: c x = y A x + (c - y A) x; each part is at most what the bounds
  // of the rows and of the columns allow.
  std::vector<double> reduced = program.column_cost;
  double bound = 0;
  for (size_t r = 0; r < row_duals.size(); ++r) {
    const double dual = row_duals[r];
    const double at = dual > 0 ? program.row_upper[r] : program.row_lower[r];
    if (dual == 0 || !std::isfinite(dual) || std::isinf(at)) continue;
    bound += dual * at;
    const auto begin = static_cast<size_t>(program.row_start[r]);
    const size_t end = r + 1 < row_duals.size()
                           ? static_cast<size_t>(program.row_start[r + 1])
                           : program.entry_column.size();
    for (size_t e = begin; e < end; ++e) {
      reduced[static_cast<size_t>(program.entry_column[e])] -=
          dual * program.entry_value[e];
    }
  }
  for (size_t c = 0; c < reduced.size(); ++c) {
    if (reduced[c] == 0) continue;
    bound += reduced[c] * (reduced[c] > 0 ? program.column_upper[c]
                                          : program.column_lower[c]);
  }
  return bound;
}

namespace {

// A pair that makes less than this of its program's objective, which is near 1,
// goes into the bound instead.
constexpr double kGainMin = 1e-10;
// At most so many of the best new cells of each job are listed at a time.
constexpr int kCellsOfJobMax = 3;
// Cells that make less than this part of what another one of the same jobs
// makes wait for the next time.
constexpr double kGainPartMin = 0.3;

}  // namespace

PairColumns::PairColumns(ShareProblem* problem)
    : problem_(*problem), table_(*problem->pairs) {}

PairColumns::Worth PairColumns::WorthOf(const ShareProgram& program,
                                        const SumObjective* objective,
                                        double scale,
                                        std::vector<double>* row_duals) const {
  const size_t k = problem_.size();
  const size_t types = problem_.types;
  const size_t limits = problem_.limits.size();
  Worth worth;
  worth.step.assign(k * types, 0.0);
  for (const ShareProgram::ThroughputRow& row : program.throughput_rows()) {
    const double value = std::max(0.0, -(*row_duals)[row.row]) * row.factor;
    for (size_t j = 0; j < types; ++j) worth.step[row.job * types + j] += value;
  }
  for (size_t r = 0; r < limits + k; ++r) {
    (*row_duals)[r] = std::max(0.0, (*row_duals)[r]);
  }
  for (size_t r = 0; r < limits; ++r) {
    worth.price.push_back((*row_duals)[r] / problem_.limits[r]);
  }
  worth.time.assign(
      row_duals->begin() + static_cast<std::ptrdiff_t>(limits),
      row_duals->begin() + static_cast<std::ptrdiff_t>(limits + k));
  if (objective == nullptr) return worth;
  for (size_t j = 0; j < types; ++j) {
    worth.price[j] += objective->rent[j] / scale;
    for (size_t m = 0; m < k; ++m) {
      worth.step[m * types + j] +=
          objective->gain[m] * objective->worth[j] / scale;
    }
  }
  return worth;
}

// Jobs pay with their time for what their cells are worth beyond their price:
// the same proof as a column's bound, and one that pairs not listed pay, too.
void PairColumns::RaiseTime(Worth* worth) const {
  std::vector<double> reduced(problem_.cells.size());
  for (size_t i = 0; i < reduced.size(); ++i) {
    const ShareCell& cell = problem_.cells[i];
    double price = 0;
    cell.ForEachLimit([&](uint32_t r) { price += worth->price[r]; });
    reduced[i] = -cell.scale_factor * price;
  }
  for (size_t m = 0; m < problem_.size(); ++m) {
    for (const JobCell& entry : problem_.Cells(m)) {
      const auto i = entry.cell;
      const auto type = problem_.cells[i].type;
      reduced[i] += worth->step[m * problem_.types + type] * entry.throughput -
                    worth->time[m] * entry.time;
    }
  }
  for (size_t m = 0; m < problem_.size(); ++m) {
    double raise = 0;
    for (const JobCell& entry : problem_.Cells(m)) {
      if (entry.time < 1) continue;
      raise = std::max(raise, reduced[entry.cell]);
    }
    if (raise == 0) continue;
    worth->time[m] += raise;
    for (const JobCell& entry : problem_.Cells(m)) {
      reduced[entry.cell] -= raise * entry.time;
    }
  }
}

double PairColumns::Price(const ShareProgram& program,
                          const SumObjective* objective, double scale,
                          std::vector<double>* row_duals) {
  if (row_duals->empty()) return 0;
  const size_t limits = problem_.limits.size();
  Worth worth = WorthOf(program, objective, scale, row_duals);
  RaiseTime(&worth);
  std::copy(worth.time.begin(), worth.time.end(),
            row_duals->begin() + static_cast<std::ptrdiff_t>(limits));
  // From here on of one job of each class.
  for (size_t m = 0; m < problem_.size(); ++m) {
    worth.time[m] /= table_.members[m];
    for (size_t j = 0; j < problem_.types; ++j) {
      worth.step[m * problem_.types + j] /= table_.members[m];
    }
  }
  most_.assign(problem_.size(), 0.0);
  excess_.assign(problem_.size(), 0.0);
  for (size_t i = 0; i < table_.cells.size(); ++i) PriceCell(i, worth);
  double rise = 0;
  // Half of it by each of the two.
  for (size_t m = 0; m < excess_.size(); ++m) {
    rise += table_.members[m] * excess_[m] / 2;
  }
  return rise;
}

PairColumns::Side PairColumns::SideOf(uint32_t m, size_t type,
                                      double throughput,
                                      const Worth& worth) const {
  const double step = worth.step[m * problem_.types + type];
  return {m, step * throughput - worth.time[m]};
}

std::vector<PairColumns::Side> PairColumns::SidesOf(const PairCell& cell,
                                                    bool first,
                                                    const Worth& worth) const {
  const double throughput =
      first ? cell.first_throughput : cell.second_throughput;
  const size_t type = cell.column % problem_.types;
  std::vector<Side> sides;
  for (const uint32_t m : table_.jobs[first ? cell.first : cell.second]) {
    sides.push_back(SideOf(m, type, throughput, worth));
  }
  return sides;
}

void PairColumns::PriceCell(size_t index, const Worth& worth) {
  const PairCell& cell = table_.cells[index];
  const size_t type = cell.column % problem_.types;
  double price = worth.price[type];
  if (cell.placement != kNoPlacement) {
    price += worth.price[cell.placement];
  }
  const std::vector<uint32_t>& first = table_.jobs[cell.first];
  const std::vector<uint32_t>& second = table_.jobs[cell.second];
  price *= problem_.scale_factor[first.front()];
  if (first.size() == 1 && second.size() == 1) {
    return Note(
        index, SideOf(first.front(), type, cell.first_throughput, worth),
        SideOf(second.front(), type, cell.second_throughput, worth), price);
  }
  first_ = SidesOf(cell, true, worth);
  if (cell.first != cell.second) second_ = SidesOf(cell, false, worth);
  PriceKinds(index, price);
}

// The best of the one kind beside the best of the other, the second best beside
// the second best: not all beside the same one.
void PairColumns::PriceKinds(size_t index, double price) {
  const PairCell& cell = table_.cells[index];
  std::sort(first_.begin(), first_.end());
  if (cell.first != cell.second) {
    std::sort(second_.begin(), second_.end());
    const size_t most = std::max(first_.size(), second_.size());
    for (size_t i = 0; i < most; ++i) {
      const Side& a = first_[std::min(i, first_.size() - 1)];
      const Side& b = second_[std::min(i, second_.size() - 1)];
      if (a.gain + second_.front().gain <= price &&
          b.gain + first_.front().gain <= price) {
        break;
      }
      Note(index, a, second_.front(), price);
      Note(index, first_.front(), b, price);
      Note(index, a, b, price);
    }
    return;
  }
  for (size_t i = 0; i < first_.size(); ++i) {
    const Side& a = first_[i];
    if (table_.PairsWithItself(a.job)) {
      Note(index, a, a, price);
    }
    if (i == 0) continue;
    if (a.gain + first_.front().gain <= price) break;
    Note(index, first_.front(), a, price);
    Note(index, first_[i - 1], a, price);
  }
}

void PairColumns::Note(size_t index, const Side& a, const Side& b,
                       double price) {
  const double gain = a.gain + b.gain - price;
  if (gain <= 0) return;
  const uint32_t m = a.job;
  const uint32_t n = b.job;
  const double whole = gain * table_.PairsAtATime(m, n);
  if (stopped_ || whole <= kGainMin) {
    excess_[m] = std::max(excess_[m], gain);
    excess_[n] = std::max(excess_[n], gain);
    return;
  }
  if (whole < kGainPartMin * std::min(most_[m], most_[n])) return;
  most_[m] = std::max(most_[m], whole);
  most_[n] = std::max(most_[n], whole);
  found_.push_back({whole, {a.job, b.job, index}});
}

bool PairColumns::List() {
  std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
    return std::tuple(-a.gain, a.cell.cell, a.cell.first, a.cell.second) <
           std::tuple(-b.gain, b.cell.cell, b.cell.first, b.cell.second);
  });
  std::vector<int> count(problem_.size(), 0);
  std::vector<ListedCell> listed;
  for (const Found& found : found_) {
    const auto [first, second, cell] = found.cell;
    int& of_first = count[first];
    int& of_second = count[second];
    if (of_first >= kCellsOfJobMax && of_second >= kCellsOfJobMax) continue;
    if (!listed_.emplace(cell, std::min(first, second), std::max(first, second))
             .second) {
      continue;
    }
    ++of_first;
    ++of_second;
    listed.push_back(found.cell);
  }
  found_.clear();
  if (listed.empty()) return false;
  // Columns of shares come first; new ones are 0 where simplex continues.
  if (!basis_.columns.empty()) {
    basis_.columns.insert(basis_.columns.begin() + static_cast<std::ptrdiff_t>(
                                                       problem_.cells.size()),
                          listed.size(), 0);
  }
  ListCells(listed, &problem_);
  return true;
}

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
