// Finish-time fairness (Themis' metric in the form of Gavel section 4.2): min
// over X of max_m rho_m,
//
//   rho_m = (t_m + rem_m / T_m(X)) / D_m,   D_m = c_m + rem_m / iso_m.
//
// t_m is the time since the job started. c_m is the time that an nth of the
// cluster would have taken for the work done so far. iso_m is the job's
// throughput with an nth of each type: X[m][j] = N_j / (n s_m), scaled down
// where the sum over j exceeds 1.
//
// rho is reached if and only if T_m(X) >= d_m(rho) = rem_m / (rho D_m - t_m)
// for all m. Each round finds the X with the largest common level of
// T_m(X) / d_m(rho). The rho of this X is an upper bound. The duals give an
// inequality sum_m a_m T_m(X) <= b that holds for all X, so no rho with
// sum_m a_m d_m(rho) > b can be reached. Because d is convex and decreasing,
// the root of sum_m a_m d_m(rho) = b is a lower bound, and it is the next rho.
// This is Newton's method; it ends where the bounds meet.
//
// Weights do not affect rho (as in the original, where jobs of all weights have
// the same right to 1/n). Time that the fairest allocation leaves over is given
// to the jobs by weight and normalised throughput. A job of unknown length is
// treated as one without end: rho_m = iso_m / T_m(X).
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/bound.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "coordinator/policy/target_program.h"

namespace gavel::policy {
namespace {

constexpr int kRoundsMax = 60;
// Relative distance of the bounds at which the search ends.
constexpr double kGapMax = 1e-11;
constexpr int kBisectionsMax = 200;

// One job's rho as a function of its throughput.
struct Finish {
  double started_s = 0;  // t_m
  double steps = 0;      // rem_m
  double fair_s = 0;     // D_m

  double Rho(double throughput) const {
    return (started_s + steps / throughput) / fair_s;
  }
  // Returns the throughput needed to reach `rho`; infinite if none suffices.
  double Target(double rho) const {
    const double left_s = rho * fair_s - started_s;
    return left_s > 0 ? steps / left_s
                      : std::numeric_limits<double>::infinity();
  }
};

std::vector<Finish> Finishes(const PolicyProblem& problem,
                             const ShareProblem& shares) {
  const std::vector<double> proportional = ProportionalThroughputs(shares);
  std::vector<Finish> finishes;
  for (size_t m = 0; m < shares.size(); ++m) {
    const PolicyJob& job = problem.jobs[shares.jobs[m]];
    // The row's sum is accelerators / (n s), if that is below 1.
    const double time = std::min(
        1.0, shares.accelerators() /
                 (static_cast<double>(shares.size()) * job.scale_factor));
    const double isolated = proportional[m] * time;
    Finish finish{0, isolated, 1};
    if (job.steps_remaining > 0) {
      finish = {job.time_since_start_s, job.steps_remaining,
                job.isolated_s + job.steps_remaining / isolated};
    }
    finishes.push_back(finish);
  }
  return finishes;
}

double LargestRho(std::span<const Finish> finishes,
                  std::span<const double> throughputs) {
  double largest = 0;
  for (size_t m = 0; m < finishes.size(); ++m) {
    largest = std::max(largest, finishes[m].Rho(throughputs[m]));
  }
  return largest;
}

std::vector<double> Targets(std::span<const Finish> finishes, double rho) {
  std::vector<double> targets;
  for (const Finish& finish : finishes) targets.push_back(finish.Target(rho));
  return targets;
}

// The search for rho. `low_` and `high_` bound it from both sides throughout.
class Search {
 public:
  Search(const ShareProblem& shares, std::vector<Finish> finishes,
         const LpOptions& options)
      : shares_(shares), finishes_(std::move(finishes)), options_(options) {
    best_ = EvenShares(shares);
    high_ = RhoOf(best_);
    low_ = LargestRho(finishes_, LargestThroughputs(shares));
  }

  void Run() {
    double rho = high_;
    for (int round = 0; round < kRoundsMax && !Done(); ++round) {
      const double low = low_;
      if (!Round(rho)) return;
      // Newton's step, or a bisection step if the lower bound has not moved.
      rho = low_ > low ? low_ : (low_ + high_) / 2;
    }
  }

  // Gives time that the fairest allocation leaves over to the jobs by `gain`.
  // The shares stay as they are if the solver fails or if rho would rise by
  // more than rounding (TargetProgram::kLossMax).
  void SpendTheRest(std::span<const double> gain) {
    TargetProgram program(shares_, Targets(finishes_, high_), options_);
    const TargetAnswer answer = program.Solve();
    if (answer.outcome != SolveOutcome::kOptimal) return;
    const std::vector<double> more =
        program.SpendTheRest(std::min(1.0, answer.level), gain);
    if (more.empty() || RhoOf(more) > high_ * (1 + TargetProgram::kLossMax))
      return;
    best_ = more;
  }

  void Spread() { SpreadEvenly(shares_, best_); }

  PolicyResult Result() const {
    return Certified(Sense::kMinimum, report_,
                     ToResult(shares_, best_, RhoOf(best_), low_));
  }
  bool optimal() const { return report_.outcome == SolveOutcome::kOptimal; }

 private:
  bool Done() const { return high_ - low_ <= kGapMax * high_; }
  double RhoOf(std::span<const double> shares) const {
    return LargestRho(finishes_, Throughputs(shares_, shares));
  }

  // Tightens both bounds at `rho`. Returns false if the solver fails or its
  // bound is invalid.
  bool Round(double rho) {
    TargetAnswer answer =
        TargetProgram(shares_, Targets(finishes_, rho), options_).Solve();
    answer.iterations += report_.iterations;
    report_ = answer;
    const double reached = RhoOf(answer.shares);
    if (reached < high_) {
      high_ = reached;
      best_ = std::move(answer.shares);
    }
    if (report_.outcome != SolveOutcome::kOptimal || answer.slope.empty()) {
      return false;
    }
    if (Done()) return true;
    // The shares found so far reach the targets of `high_`, so a valid bound is
    // at least the left side of the inequality at `high_`.
    double bound = answer.slope_bound;
    report_.detail =
        CheckBound(Sense::kMaximum, Taken(answer.slope, high_), &bound);
    if (!report_.detail.empty()) {
      report_.outcome = SolveOutcome::kIterationLimit;
      return false;
    }
    low_ = std::max(low_, Root(answer.slope, bound));
    return true;
  }

  // Returns the left side of the inequality, sum_m a_m d_m(rho).
  double Taken(std::span<const double> slope, double rho) const {
    double taken = 0;
    for (size_t m = 0; m < slope.size(); ++m) {
      if (slope[m] > 0) taken += slope[m] * finishes_[m].Target(rho);
    }
    return taken;
  }

  // Returns a lower bound on rho: the largest value in [low_, high_] at which
  // the inequality is still violated, found by bisection, or low_ if it is
  // violated nowhere.
  double Root(std::span<const double> slope, double slope_bound) const {
    double below = low_;
    double above = high_;
    if (Taken(slope, below) <= slope_bound) return below;
    for (int i = 0; i < kBisectionsMax; ++i) {
      const double middle = (below + above) / 2;
      if (middle <= below || middle >= above) break;
      (Taken(slope, middle) > slope_bound ? below : above) = middle;
    }
    return below;
  }

  const ShareProblem& shares_;
  std::vector<Finish> finishes_;
  LpOptions options_;
  std::vector<double> best_;
  double low_ = 0;
  double high_ = 0;
  SolveReport report_ = {SolveOutcome::kOptimal, "", "none"};
};

// Solves with prices instead of HiGHS (see LevelByPrices). The level is -rho,
// and the rates at a level are d_m(rho).
PolicyResult SolveByPrices(const ShareProblem& shares,
                           std::span<const Finish> finishes,
                           std::span<const double> gain) {
  const auto level_of = [&](std::span<const double> of) {
    return -LargestRho(finishes, Throughputs(shares, of));
  };
  LevelQuestion question;
  question.demand.curve = DemandCurve::kFinish;
  for (const Finish& finish : finishes) {
    question.demand.a.push_back(finish.steps);
    question.demand.b.push_back(finish.fair_s);
    question.demand.c.push_back(finish.started_s);
  }
  question.level_max = -LargestRho(finishes, LargestThroughputs(shares));
  question.level_of = level_of;
  question.rates = [&](double level) { return Targets(finishes, -level); };
  TargetAnswer answer = LevelByPrices(shares, std::move(question), gain);
  SpreadEvenly(shares, answer.shares);
  return Certified(
      Sense::kMinimum, answer,
      ToResult(shares, answer.shares, -level_of(answer.shares), -answer.bound));
}

}  // namespace

PolicyResult SolveFinishTimeFairness(const PolicyProblem& problem,
                                     PolicyForm form) {
  if (form == PolicyForm::kAgnostic) {
    return SolveFinishTimeFairness(WithReferenceType(problem),
                                   PolicyForm::kAware);
  }
  ShareProblem shares =
      MakeShareProblem(problem, OptionsOf(form, problem.solver));
  const std::vector<Finish> finishes = Finishes(problem, shares);
  const auto rho_of = [&](std::span<const double> of) {
    return LargestRho(finishes, Throughputs(shares, of));
  };
  if (auto result = ResultIfNoneScarce(shares, rho_of)) return *result;
  const std::vector<double> gain = WeightedNormalizers(shares);
  return ByPricesOrHighs(
      problem.solver, PriceProgram::Serves(shares),
      [&] { return SolveByPrices(shares, finishes, gain); },
      [&] {
        return SolveWithPairs(&shares, {}, [&](const LpOptions& options) {
          Search search(shares, finishes, options);
          search.Run();
          if (search.optimal()) search.SpendTheRest(gain);
          search.Spread();
          return search.Result();
        });
      });
}

}  // namespace gavel::policy
