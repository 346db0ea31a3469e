// The policies that maximise throughput: the total, and the ratio to its cost.
// Both keep deadlines by a DeadlineProgram.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/bound.h"
#include "coordinator/policy/deadline_program.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "coordinator/policy/target_program.h"
#include "core/status.h"

namespace gavel::policy {

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

constexpr int kRoundsMax = 60;
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

double Dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The search, with the best shares so far and their certificate.
class Search {
 public:
  Search(const PolicyProblem& problem, const ShareProblem& shares,
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
      for (int round = 0; round < kRoundsMax; ++round) {
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
  PolicyResult result = Search(problem, shares, cost).Run();
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
  result = Search(other, shares, cost).Run();
  result.solver += kAfterPrices;
  return result;
}

}  // namespace gavel::policy
