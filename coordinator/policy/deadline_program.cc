#include "coordinator/policy/deadline_program.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/policy/bound.h"
#include "coordinator/policy/share_program.h"
#include "coordinator/policy/target_program.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

// A total shortfall of at most this counts as none: it may be the solver's
// tolerance.
constexpr double kShortfallMax = 1e-9;
// The program limits a need to this many times the job's fastest throughput.
// Needs beyond that are all equally hopeless.
constexpr double kNeedMax = 1e4;
// If a solution is further from its bound than this, relative, the program is
// also solved by the interior point method.
constexpr double kGapMax = 1e-8;
// A job is not named in the message if it misses less than this part of its
// need.
constexpr double kToldMin = 1e-5;

// Adds the rows T_m(X) / floor_m + z_m >= 1 and sum_m z_m <= budget, and
// returns the column of the budget.
int AddFloors(const std::vector<DeadlineFloor>& floors, ShareProgram* program) {
  LinearProgram& lp = program->lp;
  std::vector<LpEntry> total;
  for (const DeadlineFloor& floor : floors) {
    const LpEntry shortfall = {lp.AddColumn(0, 0, 1), 1};
    program->AddThroughputRow(floor.job, 1 / floor.in_program, {&shortfall, 1},
                              1, kInfinity);
    total.push_back(shortfall);
  }
  const int budget = lp.AddColumn(0, 0, static_cast<double>(floors.size()));
  total.push_back({budget, -1});
  lp.AddRow(-kInfinity, 0, total);
  return budget;
}

// Applies CheckBound to a sum of values times shares, in which terms may be
// negative. Returns the error, or "" if the bound is valid.
std::string CheckSum(std::span<const double> values,
                     std::span<const double> shares, double* bound) {
  double sum = 0;
  double scale = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i] * shares[i];
    scale += std::abs(values[i] * shares[i]);
  }
  return CheckBound(Sense::kMaximum, sum, scale, bound);
}

}  // namespace

std::vector<DeadlineFloor> DeadlineFloors(const PolicyProblem& problem,
                                          const ShareProblem& shares) {
  const std::vector<double> fastest = LargestThroughputs(shares);
  std::vector<DeadlineFloor> floors;
  for (size_t m = 0; m < shares.size(); ++m) {
    const PolicyJob& job = problem.jobs[shares.jobs[m]];
    if (std::isinf(job.deadline_s) || job.steps_remaining <= 0) continue;
    DeadlineFloor floor{m, fastest[m], job.deadline_s <= 0, 0};
    if (!floor.passed) floor.needs = job.steps_remaining / job.deadline_s;
    floor.in_program = std::min(floor.needs, kNeedMax * fastest[m]);
    floors.push_back(floor);
  }
  return floors;
}

DeadlineProgram::DeadlineProgram(const PolicyProblem& problem,
                                 const ShareProblem& shares,
                                 std::vector<DeadlineFloor> floors,
                                 LpOptions options)
    : problem_(problem),
      shares_(shares),
      floors_(std::move(floors)),
      options_(options),
      program_(shares),
      needs_(shares.size(), 0.0),
      budget_(AddFloors(floors_, &program_)),
      relaxed_(floors_.empty()),
      infeasible_(std::ranges::any_of(floors_, &DeadlineFloor::passed)) {
  for (const DeadlineFloor& floor : floors_) needs_[floor.job] = floor.needs;
  if (problem.solver != SolverChoice::kHighs && PriceProgram::Serves(shares)) {
    prices_ = std::make_unique<PriceProgram>(shares);
  }
}

// Finds the least total shortfall and allows this much of it from now on. The
// program is feasible here even without any shares. Later programs start from
// the solution found here, so the simplex method always has a feasible point.
LpSolution DeadlineProgram::Relax() {
  const auto budget = static_cast<size_t>(budget_);
  std::vector<double>& costs = program_.lp.column_cost;
  std::fill(costs.begin(), costs.end(), 0.0);
  costs[budget] = -1;
  solver_->ChangeCosts(costs);
  LpSolution solution = solver_->Solve();
  if (solution.outcome != SolveOutcome::kOptimal) return solution;
  // The duals prove that no allocation falls short by less than this.
  const double least = -BoundOf(solution, nullptr, 1);
  infeasible_ = infeasible_ || least > kShortfallMax;
  double& allowed = program_.lp.column_upper[budget];
  allowed = solution.column_values[budget];
  allowed = allowed > kShortfallMax ? allowed * (1 + kShortfallMax) : 0;
  solver_->ChangeColumnBounds(budget_, 0, allowed);
  relaxed_ = true;
  return solution;
}

std::string DeadlineProgram::WhoFallsShort(
    std::span<const double> shares) const {
  std::string text;
  for (const DeadlineFloor& floor : floors_) {
    double has = Throughput(shares_, floor.job, shares);
    if (!floor.passed && has >= floor.needs * (1 - kToldMin)) continue;
    if (has < floor.in_program * kToldMin) has = 0;
    const JobId id = problem_.jobs[shares_.jobs[floor.job]].id;
    StrAppend(&text, text.empty() ? "" : ", ", "job ", id.value());
    StrAppend(&text, floor.passed
                         ? std::string(" (its deadline has passed)")
                         : absl::StrFormat(" (needs %.6g steps/s, gets %.6g)",
                                           floor.needs, has));
  }
  if (!proof_.empty()) StrAppend(&text, "; ", proof_);
  return StrCat("infeasible: deadlines can't all be met: ", text,
                "; they fall short by the least there is; move deadlines or "
                "add accelerators");
}

double DeadlineProgram::BoundOf(const LpSolution& solution,
                                const SumObjective* objective,
                                double scale) const {
  std::vector<double> row_duals = solution.row_duals;
  const double rise =
      PricePairs(options_, program_, objective, scale, &row_duals);
  return DualBound(program_.lp, row_duals) + rise;
}

DeadlineProgram::Answer DeadlineProgram::AnswerOf(const LpSolution& solution,
                                                  const SumObjective& objective,
                                                  double scale) const {
  Answer answer;
  static_cast<SolveReport&>(answer) = solution;
  answer.shares = program_.Shares(solution);
  TopUpShares(shares_, needs_, answer.shares);
  answer.bound = scale * BoundOf(solution, &objective, scale);
  return answer;
}

// Solves max-min with the floors as targets. All deadlines can be met, and jobs
// whose deadlines have passed can run at their fastest, if and only if the
// level reaches 1.
bool DeadlineProgram::SettleFloors() {
  if (!known_.empty()) return true;
  if (floors_.empty()) {
    known_.assign(shares_.cells.size(), 0.0);
    return true;
  }
  const std::vector<double> fastest = LargestThroughputs(shares_);
  PriceDemand demand;
  demand.a = needs_;
  double most = kInfinity;
  for (const DeadlineFloor& floor : floors_) {
    most = std::min(most, fastest[floor.job] / floor.needs);
  }
  // A job needs more than its fastest throughput. WhoFallsShort names it, and
  // no proof by prices is needed.
  if (most < 1 - kShortfallMax) return false;
  most = std::min(most, 2.0);
  PriceProgram::Answer level = prices_->Highest(std::move(demand), most);
  if (level.bound < 1 - kShortfallMax) {
    proof_ = Proof(level.prices, level.bound);
    return false;
  }
  TopUpShares(shares_, needs_, level.shares);
  if (!KeepsFloors(level.shares, kShortfallMax)) return false;
  known_ = std::move(level.shares);
  return true;
}

// Returns whether the shares keep all floors, each with the relative slack
// `slack`. Empty `shares` keep none.
bool DeadlineProgram::KeepsFloors(std::span<const double> shares,
                                  double slack) const {
  return !shares.empty() &&
         std::ranges::all_of(floors_, [&](const DeadlineFloor& floor) {
           return Throughput(shares_, floor.job, shares) >=
                  floor.needs * (1 - slack);
         });
}

// Returns the name of a limit: a type, or the part of a type on which gangs of
// one size fit.
std::string DeadlineProgram::NameOf(size_t limit) const {
  if (limit < shares_.types) return problem_.types[limit];
  const auto cell =
      std::ranges::find(shares_.cells, limit, &ShareCell::placement);
  return StrCat(problem_.types[cell->type], " for gangs of ",
                cell->scale_factor, " on one server");
}

// Returns the text that says which part of their needs the jobs can all have at
// most, and the prices that prove it.
std::string DeadlineProgram::Proof(std::span<const double> prices,
                                   double level) const {
  std::string text;
  for (size_t r = 0; r < prices.size(); ++r) {
    if (prices[r] <= 0) continue;
    StrAppend(&text, text.empty() ? "" : ", ", NameOf(r),
              absl::StrFormat(" %.4g", prices[r]));
  }
  return absl::StrFormat(
      "no allocation gives all of them more than %.4g of what they need%s",
      level, text.empty() ? "" : StrCat(" (proved by the prices ", text, ")"));
}

DeadlineProgram::Answer DeadlineProgram::ByPrices(const SumObjective& objective,
                                                  double gap_max) {
  Answer answer;
  if (prices_ == nullptr || !SettleFloors()) {
    prices_ = nullptr;
    return answer;
  }
  PriceProgram::Answer found =
      prices_->MostGain(needs_, objective, known_, gap_max);
  if (!found.converged) {
    answer.detail = "prices: no closer to the bound";
  } else {
    TopUpShares(shares_, needs_, found.shares);
    answer.detail =
        CheckSum(CellValues(shares_, objective), found.shares, &found.bound);
  }
  const bool proved = answer.detail.empty();
  if (!proved && problem_.solver == SolverChoice::kAuto) return answer;
  answer.outcome =
      proved ? SolveOutcome::kOptimal : SolveOutcome::kIterationLimit;
  answer.shares = std::move(found.shares);
  answer.bound = found.bound;
  answer.solver = kPricesSolver;
  answer.iterations = found.passes;
  TellWhoFallsShort(&answer);
  return answer;
}

DeadlineProgram::Answer DeadlineProgram::Maximize(const SumObjective& objective,
                                                  double gap_max) {
  const bool tried = prices_ != nullptr;
  if (tried) {
    Answer answer = ByPrices(objective, gap_max);
    if (!answer.shares.empty()) return answer;
  }
  Answer answer = ByHighs(objective);
  if (tried) answer.solver += kAfterPrices;
  return answer;
}

DeadlineProgram::Answer DeadlineProgram::ByHighs(
    const SumObjective& objective) {
  const std::vector<double> value = CellValues(shares_, objective);
  if (solver_ == nullptr) {
    solver_ = std::make_unique<HighsSolver>(program_.lp, options_);
  }
  double scale = 0;
  for (const double one : value) scale = std::max(scale, std::abs(one));
  if (scale == 0) scale = 1;
  LpSolution solution;
  int iterations = 0;
  if (!relaxed_) {
    solution = Relax();
    iterations = solution.iterations;
  }
  if (relaxed_) {
    // The costs are divided by `scale`, because the solver's tolerances are
    // absolute.
    std::vector<double>& costs = program_.lp.column_cost;
    std::fill(costs.begin(), costs.end(), 0.0);
    for (size_t i = 0; i < value.size(); ++i) costs[i] = value[i] / scale;
    solver_->ChangeCosts(costs);
    solution = solver_->Solve();
  }
  Answer answer = AnswerOf(solution, objective, scale);
  answer.iterations += iterations;
  // The caller lists the pairs that were found and solves again.
  if (PairsFound(options_)) return answer;
  const double reached = std::inner_product(
      answer.shares.begin(), answer.shares.end(), value.begin(), 0.0);
  if (relaxed_ &&
      answer.bound - reached > kGapMax * std::max(scale, std::abs(reached))) {
    // The needs differ much in size, which interior point handles better.
    Answer second = AnswerOf(
        HighsSolver(program_.lp, {.method = LpMethod::kInteriorPoint}).Solve(),
        objective, scale);
    second.iterations += answer.iterations;
    if (second.outcome == SolveOutcome::kOptimal) answer = std::move(second);
  }
  TellWhoFallsShort(&answer);
  return answer;
}

void DeadlineProgram::TellWhoFallsShort(Answer* answer) const {
  if (!infeasible_ || answer->outcome != SolveOutcome::kOptimal) return;
  answer->outcome = SolveOutcome::kInfeasible;
  answer->detail = WhoFallsShort(answer->shares);
}

}  // namespace gavel::policy
