// The policies that maximise throughput: the total, and the ratio to its cost.
// Both keep deadlines by a DeadlineProgram.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::policy {

// Linear programs over shares in which some jobs have deadlines (Gavel section
// 4.2, service-level objectives): T_m(X) >= rem_m / deadline_m for each of
// them. If no allocation meets all deadlines, the program allows the least
// total shortfall and names the jobs that fall short. Called by policies that
// keep deadlines. Not thread-safe.

namespace {

// The throughput that a job needs to meet its deadline.
struct DeadlineFloor {
  size_t job = 0;         // m, of the ShareProblem
  double needs = 0;       // rem_m / deadline_m, steps/s
  bool passed = false;    // then `needs` is the most it can have
  double in_program = 0;  // `needs`, limited to what a solver can handle
};

// Returns the floors of all jobs that have a deadline and work left.
std::vector<DeadlineFloor> DeadlineFloors(const PolicyProblem& problem,
                                          const ShareProblem& shares);

class DeadlineProgram {
 public:
  // `problem` and `shares` must outlive the program.
  DeadlineProgram(const PolicyProblem& problem, const ShareProblem& shares,
                  std::vector<DeadlineFloor> floors, LpOptions options = {});

  // Feasible shares, their report and their bound. kInfeasible: the deadlines
  // can't all be met, and `detail` names the jobs that fall short. `shares` is
  // set in this case, too: it has the least total shortfall, and the most of
  // the objective among all with that shortfall.
  struct Answer : SolveReport {
    std::vector<double> shares;  // one per cell; empty: the solver has none
    // Upper bound on the objective of every X whose total shortfall is no
    // larger, proved by the duals or prices.
    double bound = 0;
  };

  // Maximizes the objective. Uses prices if they serve the problem, all floors
  // can be kept, and the prices prove the answer optimal; otherwise HiGHS (see
  // PolicyProblem::solver). A later call starts from where the last one ended.
  // `gap_max` is the gap that prices have to reach, relative to the objective
  // without rent.
  Answer Maximize(const SumObjective& objective, double gap_max = kPriceGap);

 private:
  // Looks for shares that keep all floors and stores them in known_. Returns
  // false if it found none; if prices prove that there are none, the proof is
  // then in proof_.
  bool SettleFloors();
  bool KeepsFloors(std::span<const double> shares, double slack) const;
  std::string NameOf(size_t limit) const;
  std::string Proof(std::span<const double> prices, double level) const;
  // Returns empty shares if prices don't serve, or did not prove enough.
  Answer ByPrices(const SumObjective& objective, double gap_max);
  Answer ByHighs(const SumObjective& objective);
  LpSolution Relax();
  Answer AnswerOf(const LpSolution& solution, const SumObjective& objective,
                  double scale) const;
  // The bound of the program as it is now. It holds also for pairs that are not
  // listed yet.
  double BoundOf(const LpSolution& solution, const SumObjective* objective,
                 double scale) const;
  std::string WhoFallsShort(std::span<const double> shares) const;
  // Turns an optimal answer into kInfeasible, with the jobs that fall short in
  // `detail`, if the deadlines can't all be met.
  void TellWhoFallsShort(Answer* answer) const;

  const PolicyProblem& problem_;
  const ShareProblem& shares_;
  std::vector<DeadlineFloor> floors_;
  LpOptions options_;
  ShareProgram program_;
  std::vector<double> needs_;  // [k] steps/s from floors_; 0: no deadline
  // Column of the total shortfall that is allowed: the sum over m of max(0, 1 -
  // T_m(X) / floor_m).
  int budget_;
  std::unique_ptr<PriceProgram> prices_;  // null: they don't serve
  std::vector<double> known_;  // shares that keep all floors, by prices
  std::string proof_;          // text: the floors can't all be kept
  std::unique_ptr<HighsSolver> solver_;  // null: not needed so far
  bool relaxed_;                         // the least budget is known
  bool infeasible_;  // that budget is not 0, or a deadline has passed
};

// A total shortfall of at most this counts as none: it may be the solver's
// tolerance.
constexpr double kShortfallMax = 1e-9;
// The program limits a need to this many times the job's fastest throughput.
// Needs beyond that are all equally hopeless.
constexpr double kNeedMax = 1e4;
// If a solution is further from its bound than this, relative, the program is
// also solved by the interior point method.
constexpr double kDeadlineGapMax = 1e-8;
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
  if (relaxed_ && answer.bound - reached >
                      kDeadlineGapMax * std::max(scale, std::abs(reached))) {
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

}  // namespace

// Maximises the total throughput, the sum of T_m(X) over all jobs (Gavel
// section 4.2, "total throughput" and "minimise cost").
//
// As in the original, raw steps/s of all jobs are added, so that jobs with fast
// steps come first, and neither weights nor scale factors count. With
// `normalized_by_cost` a step on type j counts 1/cost_j. With `SLOs` every job
// with a deadline gets T_m(X) >= rem_m / deadline_m. If the deadlines can't all
// be met, the policy minimises the total of relative shortfalls first and
// maximises the objective second, and `detail` of the result names the jobs
// that fall short (the original drops all deadlines in this case).

namespace {

// The sum over m of T_m, with each step divided by the cost of its type.
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
  // With deadlines, an expensive type may be the only one that is fast enough
  // for a job.
  if (options.deadlines) {
    result.worth = TypeWorth::kAlike;
  } else {
    result.worth = options.by_cost ? TypeWorth::kThroughputPerCost
                                   : TypeWorth::kThroughput;
  }
  return Certified(Sense::kMaximum, answer, std::move(result));
}

// Maximises throughput per cost, N(X) / D(X) over all X, with
//
//   N = sum_m w_m s_m / prop_m T_m(X)    normalised throughput (section 4.1)
//   D = sum_uj cost_j s_u X[u][j]        cost per hour of all that runs
//
// This is "minimise cost" of Gavel section 4.2, where the original adds up T /
// cost instead. Jobs with a deadline get the throughput that they need to meet
// it, as in SolveMaxSumThroughput. Without any deadline only the jobs with the
// best ratio run, as time on all others would cost more for each step. Among
// allocations of equal ratio the policy takes the one with the highest
// throughput.
//
// The method is Dinkelbach's (1967): with the ratio r of the last X, maximise N
// - r D, and repeat until the maximum is 0.

namespace {

constexpr int kRatioStepsMax = 60;
// A relative rise of the ratio up to this counts as no rise.
constexpr double kRiseMin = 1e-12;
// The last step may lose this part of the ratio to gain throughput. It is above
// the solver's tolerance.
constexpr double kCostLossMax = 1e-7;
// Largest relative gap between an answer by prices and its bound for which the
// answer counts as optimal.
constexpr double kProvedGapMax = 1e-6;
// The smallest gap that prices can prove despite rounding. Used if kPriceGap is
// not enough.
constexpr double kSharpGap = 1e-12;

// The search, with the best shares so far and their certificate.
class RatioSearch {
 public:
  RatioSearch(const PolicyProblem& problem, const ShareProblem& shares,
              std::span<const double> cost)
      : shares_(shares),
        cost_(cost.begin(), cost.end()),
        floors_(DeadlineFloors(problem, shares)),
        program_(problem, shares, floors_) {
    throughput_.gain = WeightedNormalizers(shares);
    throughput_.worth.assign(cost.size(), 1.0);
    throughput_.rent.assign(cost.size(), 0.0);
    gain_ = CellValues(shares, throughput_);
    for (const ShareCell& cell : shares.cells) {
      price_.push_back(cost[cell.type] * cell.scale_factor);
    }
  }

  PolicyResult Run() {
    best_ = EvenShares(shares_);
    ratio_ = RatioOf(best_);
    // The first answer always counts: it keeps the deadlines.
    if (Take(program_.Maximize(throughput_), -kInfinity)) {
      for (int round = 0; round < kRatioStepsMax; ++round) {
        const double before = ratio_;
        if (!Improve() || ratio_ <= before * (1 + kRiseMin)) break;
      }
      BoundByDeadlines();
      if (bound_ > ratio_ * (1 + kCostLossMax)) {
        // The allocation spends much more than the deadlines require, so that a
        // small gap in the margin is a large gap in the ratio (see
        // BoundByDeadlines). Prove the margin more closely.
        Improve(kSharpGap);
        BoundByDeadlines();
      }
      const double enough = ratio_ * (1 - kCostLossMax);
      Take(program_.Maximize(Margins(enough)), enough);
    }
    return Result();
  }

 private:
  double RatioOf(std::span<const double> shares) const {
    const double price = Dot(price_, shares);
    return price > 0 ? Dot(gain_, shares) / price : 0;
  }

  // N - ratio D.
  SumObjective Margins(double ratio) const {
    SumObjective margins = throughput_;
    for (size_t j = 0; j < cost_.size(); ++j) {
      margins.rent[j] = ratio * cost_[j];
    }
    return margins;
  }

  // Keeps the answer if its ratio is at least `at_least`. Returns false if the
  // solver did not finish.
  bool Take(DeadlineProgram::Answer answer, double at_least) {
    answer.iterations += report_.iterations;
    report_ = answer;
    if (answer.shares.empty()) return false;
    const double ratio = RatioOf(answer.shares);
    if (ratio >= at_least) {
      ratio_ = ratio;
      best_ = std::move(answer.shares);
    }
    return report_.outcome == SolveOutcome::kOptimal ||
           report_.outcome == SolveOutcome::kInfeasible;
  }

  bool Improve(double gap_max = kPriceGap) {
    DeadlineProgram::Answer answer =
        program_.Maximize(Margins(ratio_), gap_max);
    margin_ = std::max(0.0, answer.bound);
    margin_ratio_ = ratio_;
    return Take(std::move(answer), ratio_);
  }

  // Bounds the ratio in two ways. No mixture of cells has a higher ratio than
  // the best cell. If deadlines must be met, D is at least some D_min, so that
  // N - r D <= margin implies N / D <= r + margin / D_min.
  void BoundByDeadlines() {
    for (size_t i = 0; i < gain_.size(); ++i) {
      bound_ = std::max(bound_, gain_[i] / price_[i]);
    }
    if (floors_.empty()) return;
    SumObjective cheap = throughput_;
    std::fill(cheap.gain.begin(), cheap.gain.end(), 0.0);
    cheap.rent = cost_;
    const double least = -program_.Maximize(cheap).bound;
    if (least <= 0) return;
    bound_ = std::min(bound_, margin_ratio_ + margin_ / least);
  }

  PolicyResult Result() const {
    PolicyResult result = ToResult(shares_, best_, ratio_, bound_);
    result.worth = TypeWorth::kThroughputPerCost;
    return Certified(Sense::kMaximum, report_, std::move(result));
  }

  const ShareProblem& shares_;
  std::vector<double> cost_;  // [J]
  SumObjective throughput_;   // N
  std::vector<DeadlineFloor> floors_;
  DeadlineProgram program_;
  std::vector<double> gain_;   // N, by cell
  std::vector<double> price_;  // D, by cell
  std::vector<double> best_;
  double ratio_ = 0;
  double margin_ = 0;  // N - margin_ratio D is at most this
  double margin_ratio_ = 0;
  double bound_ = 0;
  SolveReport report_;
};

}  // namespace

absl::StatusOr<PolicyResult> SolveMaxThroughputPerCost(
    const PolicyProblem& problem) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<double> cost, Costs(problem));
  const ShareProblem shares = MakeShareProblem(problem);
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  PolicyResult result = RatioSearch(problem, shares, cost).Run();
  if (result.solver != kPricesSolver) return result;
  if (result.objective < result.bound * (1 - kProvedGapMax)) {
    result.outcome = SolveOutcome::kIterationLimit;
    result.detail = "prices: no closer to the bound";
  }
  if (result.outcome != SolveOutcome::kIterationLimit ||
      problem.solver == SolverChoice::kPrices) {
    return result;
  }
  PolicyProblem other = problem;
  other.solver = SolverChoice::kHighs;
  result = RatioSearch(other, shares, cost).Run();
  result.solver += kAfterPrices;
  return result;
}

}  // namespace gavel::policy
