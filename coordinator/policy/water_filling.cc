#include "coordinator/policy/water_filling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "coordinator/policy/job_classes.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_program.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

// Demands are met if no job is short of more than this part of its unit.
constexpr double kShortMax = 1e-11;
// The duals of the cut sum to 1. A job freezes if its dual is at least this. A
// smaller dual may only reflect the solver's tolerance; the next stage finds it
// again if it is real.
constexpr double kDualMin = 1e-7;
// Earlier cuts are tried again as long as at least this part of their weight,
// in units, is on jobs that are not frozen. With less, rounding would decide.
constexpr double kWeightMin = 1e-3;
// The most that may be missing at the end of a stage, in units; a stage that
// misses more is reported as imprecise. If the weight of the last cut times
// kRoundingOfWeight is larger, that is the limit, up to kOptimalGapMax:
// rounding of the frozen jobs' amounts takes so much if they weigh a million
// times as much as the free jobs.
constexpr double kMissingMax = 1e-7;
constexpr double kRoundingOfWeight = 1e-14;
// Frozen jobs keep all of their amounts but this part. The filling moves to the
// next value each time the solver gives up, which it does on rows that can be
// met only exactly. The slack is no larger than necessary, because frozen jobs
// may weigh a hundred million times as much as the free ones.
constexpr std::array<double, 5> kFloorSlacks = {0, 1e-12, 1e-11, 1e-10, 1e-9};
// The solver meets demands to its tolerance divided by this. The shortfall of
// one job adds up over the jobs that pay for it.
constexpr double kMagnification = 1024;
// The most cuts that one stage may take; three to five are usual.
constexpr int kCutsMax = 200;

// For every feasible X: sum_m weight[m] a_m(X) <= bound, with weight >= 0.
struct Cut {
  std::vector<double> weight;  // [k]
  double bound = 0;
};

// Any weights make a cut, with one price for all accelerators. Good weights say
// how many accelerators a unit of the amount costs.
Cut FirstCut(const ShareProblem& problem, std::span<const double> factor) {
  Cut cut;
  std::vector<double> worth(problem.cells.size(), 0.0);
  const std::vector<double> most = LargestThroughputs(problem);
  for (size_t m = 0; m < problem.size(); ++m) {
    // The scale factor is the same in all cells in which the job is alone.
    const size_t any = problem.Cells(m).front().cell;
    const double worth_of_step = problem.cells[any].scale_factor / most[m];
    cut.weight.push_back(worth_of_step / factor[m]);
    for (const JobCell& cell : problem.Cells(m)) {
      worth[cell.cell] += worth_of_step * cell.throughput;
    }
  }
  // A pair that is not listed may give both jobs their largest throughputs.
  double price = problem.pairs == nullptr ? 0 : 2;
  for (size_t i = 0; i < worth.size(); ++i) {
    price = std::max(price, worth[i] / problem.cells[i].scale_factor);
  }
  cut.bound = price * problem.accelerators();
  return cut;
}

// The largest level in [0, top] whose demands satisfy the cut, to rounding.
double RootOf(const Cut& cut, const Demands& demands, double top) {
  std::vector<double> amounts(cut.weight.size());
  const auto excess = [&](double level) {
    demands.At(level, amounts);
    return Dot(cut.weight, amounts) - cut.bound;
  };
  double low = 0;
  double high = top;
  double below = excess(low);
  double above = excess(high);
  if (above <= 0) return top;
  if (below >= 0) return 0;
  const double tolerance = 1e-15 * std::abs(cut.bound);
  // The excess is piecewise linear and rising. False position hits the root
  // once both ends are on its piece; bisection every other time brings them
  // there.
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double part = i % 2 == 0 ? -below / (above - below) : 0.5;
    const double level = low + part * (high - low);
    const double value = excess(level);
    if (std::abs(value) <= tolerance) return level;
    (value < 0 ? low : high) = level;
    (value < 0 ? below : above) = value;
  }
  return high;
}

class Filling {
 public:
  Filling(const ShareProblem& problem, std::span<const double> factor,
          Demands demands, LpOptions options)
      : problem_(problem),
        factor_(factor),
        demands_(std::move(demands)),
        options_(options),
        program_(problem),
        share_lp_(program_.lp),
        amounts_(problem.size()) {
    result_.shares = EvenShares(problem);
    cuts_.push_back(FirstCut(problem, factor));
    const double top = demands_.TopLevel();
    BuildProgram(RootOf(cuts_.back(), demands_, top));
    options.magnification = kMagnification;
    solver_.emplace(program_.lp, options);
  }

  WaterLevels Run() {
    result_.outcome = SolveOutcome::kOptimal;
    bool first = true;
    while (demands_.unfrozen() > 0) {
      const double level = RunStage();
      if (std::exchange(first, false)) result_.first_level_bound = level;
      if (failed_) break;
      Freeze(level);
    }
    return std::move(result_);
  }

 private:
  // The rows are a_m(X) / unit_m + sigma >= d_m / unit_m. The units are the
  // demands at the first level that is tried, so that 1 - sigma at that level
  // is the part of their demands that all jobs can have.
  void BuildProgram(double level) {
    const std::vector<double> even = Throughputs(problem_, result_.shares);
    demands_.At(level, amounts_);
    for (size_t m = 0; m < problem_.size(); ++m) {
      unit_.push_back(amounts_[m] > 0 ? amounts_[m] : factor_[m] * even[m]);
      row_scale_.push_back(std::max(unit_[m], demands_.cap(m) / kRowValueMax));
    }
    // sigma is never above the largest demand in its unit.
    double most = 1;
    for (size_t m = 0; m < unit_.size(); ++m) {
      most = std::max(most, demands_.cap(m) / unit_[m]);
    }
    short_column_ = program_.lp.AddColumn(-1, 0, most);
    for (size_t m = 0; m < unit_.size(); ++m) {
      const LpEntry entry = {short_column_, unit_[m] / row_scale_[m]};
      program_.AddThroughputRow(m, factor_[m] / row_scale_[m], {&entry, 1},
                                amounts_[m] / row_scale_[m], kInfinity);
    }
  }

  // Solves the program for the demands in amounts_.
  LpSolution Solve() {
    for (;;) {
      LpSolution solution = SolveOnce();
      const bool gave_up = solution.outcome != SolveOutcome::kOptimal &&
                           solution.outcome != SolveOutcome::kIterationLimit;
      if (!gave_up || floor_slack_ + 1 == kFloorSlacks.size()) return solution;
      ++floor_slack_;
    }
  }

  LpSolution SolveOnce() {
    std::vector<double> lower = amounts_;
    for (size_t m = 0; m < unit_.size(); ++m) {
      if (demands_.frozen(m)) lower[m] *= 1 - kFloorSlacks[floor_slack_];
      lower[m] /= row_scale_[m];
    }
    solver_->ChangeRowBounds(share_lp_.rows(), lower,
                             std::vector<double>(lower.size(), kInfinity));
    ++result_.programs;
    LpSolution solution = solver_->Solve(Restart::kDual);
    result_.iterations += solution.iterations;
    return solution;
  }

  // The cut that the duals prove: the weighted sum of the demand rows, bounded
  // over all feasible X by the duals of the other rows.
  Cut CutOf(const LpSolution& solution) {
    Cut cut;
    std::vector<double> row_duals = solution.row_duals;
    const double rise = PricePairs(options_, program_, nullptr, 1, &row_duals);
    const auto duals = std::span(row_duals);
    const auto share_rows = static_cast<size_t>(share_lp_.rows());
    std::vector<double>& worth = share_lp_.column_cost;
    std::fill(worth.begin(), worth.end(), 0.0);
    for (size_t m = 0; m < unit_.size(); ++m) {
      cut.weight.push_back(std::max(0.0, -duals[share_rows + m]) /
                           row_scale_[m]);
      program_.AddThroughputCost(m, cut.weight[m] * factor_[m], worth);
    }
    cut.bound = DualBound(share_lp_, duals.first(share_rows)) + rise;
    return cut;
  }

  // The part of the cut's weight that is on jobs that are not frozen.
  double FreeWeight(const Cut& cut) const {
    double all = 0;
    double free = 0;
    for (size_t m = 0; m < unit_.size(); ++m) {
      all += cut.weight[m] * unit_[m];
      if (!demands_.frozen(m)) free += cut.weight[m] * unit_[m];
    }
    return free / all;
  }

  // Lowers the level until its demands are met, and returns it. cuts_[proof_]
  // proves the level; if proof_ is -1, the caps of all jobs do.
  double RunStage() {
    double level = demands_.TopLevel();
    proof_ = -1;
    for (size_t i = 0; i < cuts_.size(); ++i) {
      if (FreeWeight(cuts_[i]) >= kWeightMin) Tighten(i, &level);
    }
    for (int i = 0; i < kCutsMax; ++i) {
      demands_.At(level, amounts_);
      const LpSolution solution = Solve();
      result_.solver = solution.solver;
      if (solution.outcome != SolveOutcome::kOptimal) {
        // The shares found so far are feasible, and the bound holds.
        failed_ = true;
        result_.outcome = SolveOutcome::kIterationLimit;
        result_.detail = solution.detail;
        return level;
      }
      const double missing =
          solution.column_values[static_cast<size_t>(short_column_)];
      if (missing > kShortMax) {
        cuts_.push_back(CutOf(solution));
        if (Tighten(cuts_.size() - 1, &level)) continue;
      }
      result_.shares = program_.Shares(solution);
      TopUp();
      if (missing > MissingMax()) Imprecise(missing);
      return level;
    }
    Imprecise(1);
    return level;
  }

  // How much may be missing at the end of a stage. The last cut is the one that
  // did not lower the level.
  double MissingMax() const {
    const double weight = Dot(cuts_.back().weight, unit_);
    return std::clamp(kRoundingOfWeight * weight, kMissingMax, kOptimalGapMax);
  }

  // Raises jobs to the amounts that they should have, amounts_.
  void TopUp() {
    std::vector<double> wanted = amounts_;
    for (size_t m = 0; m < wanted.size(); ++m) wanted[m] /= factor_[m];
    TopUpShares(problem_, wanted, result_.shares);
  }

  // Reports that the level is a bound but is not met. Freeze then freezes jobs
  // at the amounts that they really have.
  void Imprecise(double missing) {
    result_.outcome = SolveOutcome::kIterationLimit;
    result_.detail = StrCat("water filling: ", missing,
                            " missing of the demands of a stage");
  }

  // Lowers the level to what the cut allows. Returns false if the level is that
  // low already.
  bool Tighten(size_t cut, double* level) {
    const double root = RootOf(cuts_[cut], demands_, *level);
    if (root >= *level) return false;
    *level = root;
    proof_ = static_cast<int>(cut);
    return true;
  }

  // Ends the stage at `level`, which result_.shares meet.
  void Freeze(double level) {
    demands_.At(level, amounts_);
    std::vector<bool> was_free(unit_.size());
    for (size_t m = 0; m < unit_.size(); ++m) {
      was_free[m] = !demands_.frozen(m);
    }
    std::vector<bool> freeze(unit_.size(), proof_ < 0);
    if (proof_ >= 0) {
      const Cut& cut = cuts_[static_cast<size_t>(proof_)];
      double most = 0;
      for (size_t m = 0; m < freeze.size(); ++m) {
        if (!demands_.frozen(m)) {
          most = std::max(most, cut.weight[m] * unit_[m]);
        }
      }
      // This freezes at least one job, whatever the duals are.
      for (size_t m = 0; m < freeze.size(); ++m) {
        freeze[m] = cut.weight[m] * unit_[m] >= std::min(most, kDualMin);
      }
    }
    // The floors of later stages are the amounts that this allocation really
    // gives. Jobs frozen earlier keep their floors if the floors have slack,
    // because the slack would add up over the stages.
    for (size_t m = 0; m < unit_.size(); ++m) {
      if (demands_.frozen(m) && floor_slack_ > 0) continue;
      amounts_[m] = std::min(
          amounts_[m], factor_[m] * Throughput(problem_, m, result_.shares));
    }
    demands_.Advance(level, amounts_, freeze);
    // Removes sigma from the rows of jobs that have just been frozen, because
    // these jobs must keep their amounts in full.
    for (size_t m = 0; m < unit_.size(); ++m) {
      if (was_free[m] && demands_.frozen(m)) {
        solver_->ChangeValue(share_lp_.rows() + static_cast<int>(m),
                             short_column_, 0);
      }
    }
  }

  const ShareProblem& problem_;
  std::span<const double> factor_;
  Demands demands_;
  LpOptions options_;
  ShareProgram program_;
  LinearProgram share_lp_;  // only the rows that make X feasible
  std::optional<HighsSolver> solver_;
  int short_column_ = 0;
  std::vector<double> unit_;       // [k]
  std::vector<double> row_scale_;  // [k] divisor of the row
  std::vector<double> amounts_;    // [k], reused
  std::vector<Cut> cuts_;
  int proof_ = -1;
  size_t floor_slack_ = 0;  // index into kFloorSlacks
  bool failed_ = false;     // the solver failed, so filling ends
  WaterLevels result_;
};

std::optional<WaterLevels> AllAtBest(const ShareProblem& problem,
                                     const Demands& demands) {
  std::optional<std::vector<double>> best = EveryoneAtBest(problem);
  if (!best) return std::nullopt;
  WaterLevels levels;
  levels.outcome = SolveOutcome::kOptimal;
  levels.solver = "all-at-best";
  levels.shares = *std::move(best);
  levels.first_level_bound = demands.TopLevel();
  return levels;
}

WaterLevels LevelsOf(PriceProgram::Answer answer) {
  WaterLevels levels;
  levels.outcome =
      answer.converged ? SolveOutcome::kOptimal : SolveOutcome::kIterationLimit;
  if (!answer.converged) levels.detail = "prices: a stage without its proof";
  levels.solver = kPricesSolver;
  levels.shares = std::move(answer.shares);
  levels.first_level_bound = answer.bound;
  levels.iterations = answer.passes;
  return levels;
}

// HiGHS solves a problem in which one job's throughputs differ by more than
// this factor. Prices could let a frozen job hold whole accelerators for the
// last digit of its amount, and keep off them the jobs that still rise.
constexpr double kRatioMax = 1e6;

bool HasExtremeRatios(const ShareProblem& problem) {
  for (size_t m = 0; m < problem.size(); ++m) {
    const auto [slow, fast] =
        std::ranges::minmax(problem.Cells(m), {}, &JobCell::throughput);
    if (fast.throughput > kRatioMax * slow.throughput) return true;
  }
  return false;
}

// Solves by `prices` if the problem has their shape and they prove all stages,
// else by HiGHS.
template <class Prices>
WaterLevels FillEither(const ShareProblem& problem,
                       std::span<const double> factor, const Demands& demands,
                       SolverChoice choice, const LpOptions& options,
                       Prices prices) {
  const bool serves =
      PriceProgram::Serves(problem) &&
      (choice == SolverChoice::kPrices || !HasExtremeRatios(problem));
  return ByPricesOrHighs(
      choice, serves, [&] { return LevelsOf(prices()); },
      [&] { return Filling(problem, factor, demands, options).Run(); });
}

// Solves with one job for each class of equal jobs. Adds the pairs that get
// shares to `problem`.
WaterLevels FillByClasses(std::span<const double> factor, SolverChoice choice,
                          const LpOptions& options, ShareProblem* problem) {
  JobClasses classes = ClassifyJobs(*problem);
  std::vector<double> class_factor(classes.members.size());
  for (size_t m = 0; m < problem->size(); ++m) {
    class_factor[classes.class_of[m]] = factor[m];
  }
  WaterLevels levels = SolveWithPairs(
      &classes.problem, options, [&](const LpOptions& with_pairs) {
        const ShareProblem& of = classes.problem;
        const Demands demands =
            Demands::Flat(of.weight, LargestAmounts(of, class_factor));
        return FillEither(of, class_factor, demands, choice, with_pairs, [&] {
          std::vector<double> rates = of.weight;
          for (size_t m = 0; m < rates.size(); ++m) rates[m] /= class_factor[m];
          return PriceProgram(of).FillWater(rates, LargestThroughputs(of));
        });
      });
  levels.shares = SharesOfMembers(classes, levels.shares, problem);
  return levels;
}

}  // namespace

std::vector<double> LargestAmounts(const ShareProblem& problem,
                                   std::span<const double> factor) {
  std::vector<double> amounts = LargestThroughputs(problem);
  for (size_t m = 0; m < amounts.size(); ++m) amounts[m] *= factor[m];
  return amounts;
}

WaterLevels FillWater(const ShareProblem& problem,
                      std::span<const double> factor, const Demands& demands,
                      SolverChoice choice, LpOptions options) {
  assert(problem.size() > 0 && factor.size() == problem.size());
  if (const auto best = AllAtBest(problem, demands)) return *best;
  // With entities on servers that gangs do not fill, jobs can exchange time in
  // more ways than price_water.cc follows: an entity may get less than HiGHS
  // gives it, by up to 0.4 % in random problems.
  const bool parts = problem.limits.size() > problem.types;
  if (parts && choice == SolverChoice::kAuto) choice = SolverChoice::kHighs;
  return FillEither(problem, factor, demands, choice, options, [&] {
    return PriceProgram(problem).FillWater(factor, demands);
  });
}

namespace {

PolicyResult FlatResult(ShareProblem problem, std::span<const double> factor,
                        SolverChoice choice, const LpOptions& options) {
  const auto least = [&](std::span<const double> shares) {
    double level = std::numeric_limits<double>::infinity();
    for (size_t m = 0; m < problem.size(); ++m) {
      const double amount = factor[m] * Throughput(problem, m, shares);
      level = std::min(level, amount / problem.weight[m]);
    }
    return level;
  };
  if (auto result = ResultIfNoneScarce(problem, least)) return *result;
  const std::vector<double> caps = LargestAmounts(problem, factor);
  WaterLevels levels = FillByClasses(factor, choice, options, &problem);
  SpreadEvenly(problem, levels.shares);
  double bound = levels.first_level_bound;
  for (size_t m = 0; m < problem.size(); ++m) {
    // No level above the least cap makes the worst-off job better off.
    bound = std::min(bound, caps[m] / problem.weight[m]);
  }
  return Certified(
      Sense::kMaximum, levels,
      ToResult(problem, levels.shares, least(levels.shares), bound));
}

}  // namespace

PolicyResult SolveFlatWaterFilling(ShareProblem problem,
                                   std::span<const double> factor,
                                   SolverChoice choice, LpOptions options) {
  PolicyResult result = FlatResult(problem, factor, choice, options);
  const bool refused = result.outcome != SolveOutcome::kOptimal &&
                       result.solver == kPricesSolver;
  if (!refused || choice == SolverChoice::kPrices) return result;
  result =
      FlatResult(std::move(problem), factor, SolverChoice::kHighs, options);
  result.solver += kAfterPrices;
  return result;
}

}  // namespace gavel::policy
