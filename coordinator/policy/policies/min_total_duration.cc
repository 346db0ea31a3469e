// Makespan: min over X of max_m rem_m / T_m(X), seconds (Gavel section 4.2).
// Exactly: with theta = 1 / makespan it is the linear program max theta,
// T_m(X) >= rem_m theta, where the original bisects to 5 %. What the optimum
// leaves over is filled like water: equally in normalised throughput by weight,
// as max-min fairness, above what the makespan needs.
//
// A job of unknown length counts as long as the longest known one.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/price_program.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/demands.h"
#include "coordinator/policy/share/share_problem.h"
#include "coordinator/policy/share/water_filling.h"

namespace gavel::policy {
namespace {

// The part of the makespan's floors that water filling may do without, so that
// rounding does not make them more than there is.
constexpr double kFloorSlack = 1e-9;
// Water filling looks at every job in every pass, a few hundred times; with
// more jobs than this what is left goes by the sum of gains.
constexpr size_t kFilledJobsMax = 20'000;
// Gangs that could have less than this part of the time are not limited to it.
constexpr double kGangShareMin = 1e-6;

// [k] steps left.
std::vector<double> Remaining(const PolicyProblem& problem,
                              const ShareProblem& shares) {
  const std::vector<double> fastest = LargestThroughputs(shares);
  std::vector<double> remaining;
  double longest_s = 0;
  for (size_t m = 0; m < shares.size(); ++m) {
    remaining.push_back(problem.jobs[shares.jobs[m]].steps_remaining);
    longest_s = std::max(longest_s, remaining[m] / fastest[m]);
  }
  if (longest_s == 0) longest_s = 1;
  for (size_t m = 0; m < shares.size(); ++m) {
    if (remaining[m] <= 0) remaining[m] = longest_s * fastest[m];
  }
  return remaining;
}

// Of one type: the share that the floors need of it for the job that needs the
// most, and the gangs that cannot run beside that job.
struct Excluded {
  double share = 0;
  double gangs = 0;             // what the floors need for them, together
  double scale_factor_min = 0;  // of the gangs
  std::vector<size_t> cells;    // of the gangs
};

// `needs` [cells] shares that keep the floors.
Excluded ExcludedOn(const ShareProblem& shares, size_t type,
                    std::span<const double> needs) {
  const double capacity = shares.capacity[type];
  Excluded excluded;
  double job = 0;  // its scale factor
  for (size_t i = 0; i < shares.cells.size(); ++i) {
    const ShareCell& cell = shares.cells[i];
    if (cell.type != type || needs[i] <= excluded.share ||
        cell.scale_factor > capacity / 2) {
      continue;
    }
    excluded.share = needs[i];
    job = cell.scale_factor;
  }
  if (job == 0) return excluded;
  for (size_t i = 0; i < shares.cells.size(); ++i) {
    const ShareCell& cell = shares.cells[i];
    if (cell.type != type || cell.scale_factor <= capacity - job) {
      continue;
    }
    excluded.gangs += needs[i];
    excluded.scale_factor_min =
        excluded.cells.empty()
            ? cell.scale_factor
            : std::min(excluded.scale_factor_min, cell.scale_factor);
    excluded.cells.push_back(i);
  }
  return excluded;
}

// Shares count accelerators, and rounds are of whole gangs: one that needs
// nearly all of a type keeps all other jobs off it, and so the job that sets
// the makespan. With a limit on such gangs, for each type, the two together
// have no more than all of the time. None where the floors themselves need
// more. nullopt: no gang is limited.
std::optional<ShareProblem> WithGangLimits(const ShareProblem& shares,
                                           std::span<const double> needs) {
  if (shares.limits.size() > shares.types) return std::nullopt;  // parts of it
  ShareProblem limited = shares;
  for (size_t type = 0; type < shares.types; ++type) {
    const Excluded excluded = ExcludedOn(shares, type, needs);
    const double rest = 1 - excluded.share;
    if (excluded.cells.empty() || rest < excluded.gangs + kGangShareMin) {
      continue;
    }
    for (const size_t i : excluded.cells) {
      limited.cells[i].placement = static_cast<uint32_t>(limited.limits.size());
    }
    limited.limits.push_back(excluded.scale_factor_min * rest);
  }
  if (limited.limits.size() == shares.limits.size()) return std::nullopt;
  return limited;
}

// [cells] the shares, as far as the floors need them.
std::vector<double> NeedsOf(const ShareProblem& shares,
                            std::span<const double> floors,
                            std::span<const double> given) {
  std::vector<double> needs(given.begin(), given.end());
  for (size_t m = 0; m < shares.size(); ++m) {
    const double part = floors[m] / Throughput(shares, m, given);
    for (const JobCell& cell : shares.Cells(m)) {
      needs[cell.cell] *= std::min(1.0, part);
    }
  }
  return needs;
}

// False: that was not found, and the answer is as it was.
bool FillAbove(const ShareProblem& shares, const std::vector<double>& remaining,
               SolverChoice choice, TargetAnswer* answer) {
  const std::vector<double> factor = Normalizers(shares);
  std::vector<double> floors = remaining;
  for (size_t m = 0; m < floors.size(); ++m) {
    floors[m] *= factor[m] * answer->level * (1 - kFloorSlack);
  }
  const Demands demands = Demands::Flat(
      shares.weight, LargestAmounts(shares, factor), std::move(floors));
  WaterLevels levels = FillWater(shares, factor, demands, choice);
  if (levels.outcome != SolveOutcome::kOptimal) return false;
  if (Level(shares, remaining, levels.shares) <
      answer->level * (1 - TargetProgram::kLossMax)) {
    return false;
  }
  answer->shares = std::move(levels.shares);
  answer->iterations += levels.iterations;
  return true;
}

// The sum of gains gives what the optimum leaves over to gangs that keep the
// job that sets the makespan from running, and to the jobs that gain most.
// Water filling above what the makespan needs gives it to all jobs. By prices;
// what they do not solve stays as it is.
void FillTheRest(const ShareProblem& shares,
                 const std::vector<double>& remaining, SolverChoice choice,
                 TargetAnswer* answer) {
  const bool pairs = shares.units.size() != shares.size();
  if (pairs || shares.size() > kFilledJobsMax) return;
  if (choice != SolverChoice::kHighs) {
    if (!PriceProgram::Serves(shares)) return;
    choice = SolverChoice::kPrices;
  }
  std::vector<double> floors = remaining;
  for (double& steps_per_s : floors) steps_per_s *= answer->level;
  const std::vector<double> needs = NeedsOf(shares, floors, answer->shares);
  const auto limited = WithGangLimits(shares, needs);
  const bool by_prices = limited.has_value() && PriceProgram::Serves(*limited);
  if (by_prices && FillAbove(*limited, remaining, choice, answer)) return;
  FillAbove(shares, remaining, choice, answer);
}

}  // namespace

PolicyResult SolveMinTotalDuration(const PolicyProblem& problem,
                                   PolicyForm form) {
  if (form == PolicyForm::kAgnostic) {
    return SolveMinTotalDuration(WithReferenceType(problem),
                                 PolicyForm::kAware);
  }
  ShareProblem shares =
      MakeShareProblem(problem, OptionsOf(form, problem.solver));
  const std::vector<double> remaining = Remaining(problem, shares);
  const auto makespan_s = [&](std::span<const double> of) {
    return 1 / Level(shares, remaining, of);
  };
  if (auto result = ResultIfNoneScarce(shares, makespan_s)) return *result;
  const std::vector<double> gain = WeightedNormalizers(shares);
  TargetAnswer answer =
      SolveWithPairs(&shares, {}, [&](const LpOptions& options) {
        return SolveTargets(shares, remaining, gain, problem.solver, options);
      });
  if (answer.outcome == SolveOutcome::kOptimal) {
    FillTheRest(shares, remaining, problem.solver, &answer);
  }
  SpreadEvenly(shares, answer.shares);
  return Certified(Sense::kMinimum, answer,
                   ToResult(shares, answer.shares, makespan_s(answer.shares),
                            1 / answer.bound));
}

}  // namespace gavel::policy
