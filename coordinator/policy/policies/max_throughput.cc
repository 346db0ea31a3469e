// The policies of the most throughput, in all and for the money. Both keep
// deadlines by a DeadlineProgram.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/deadline_program.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/share_problem.h"
#include "core/status.h"

namespace gavel::policy {

// The most throughput: max sum over jobs of T_m(X) (Gavel section 4.2, "total
// throughput" and "minimise cost").
//
// As in the original, raw steps/s of all jobs are added, so that jobs with fast
// steps come first, and neither weights nor scale factors count. With
// `normalized_by_cost` a step on type j counts 1/cost_j. With `SLOs` every job
// with a deadline gets T_m(X) >= rem_m / deadline_m; where that can't be, the
// least total of relative shortfalls comes first, then the objective, and the
// outcome says whose deadline it is (the original drops all of them).

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

// The most throughput for the money: max over X of N(X) / D(X), with
//
//   N = sum_m w_m s_m / prop_m T_m(X)    normalised throughput (section 4.1)
//   D = sum_uj cost_j s_u X[u][j]        cost per hour of all that runs
//
// ("minimise cost", Gavel section 4.2, where the original adds up T / cost
// instead.) Jobs with a deadline get what they need to meet it, as in
// SolveMaxSumThroughput. Without any deadline only the jobs of the best ratio
// run: time on all others would cost more for each step. Among equal ratios the
// highest throughput is taken.
//
// Dinkelbach's method (1967): for the ratio r of the last X maximise N - r D,
// until that is 0.

namespace {

constexpr int kRoundsMax = 60;
// A relative rise of the ratio that is none.
constexpr double kRiseMin = 1e-12;
// The last step may lose this part of the ratio for the sake of throughput:
// above the solver's tolerance.
constexpr double kCostLossMax = 1e-7;
// An answer of prices that is called optimal is this close to its bound,
// relative.
constexpr double kProvedGapMax = 1e-6;
// As far as rounding lets prices prove a margin, where 1e-9 is not enough.
constexpr double kSharpGap = 1e-12;

double Dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The search; what is best so far, and its certificate.
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
        // Much more is spent than the deadlines take: what a margin leaves open
        // of the throughput is more of the ratio.
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

  // Keeps the answer if it is better than `at_least`; false when there is none.
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

  // No mixture of cells has a higher ratio than the best of them; and where
  // deadlines must be met D is at least some D_min, so that N - r D <= margin
  // gives N / D <= r + margin / D_min.
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
