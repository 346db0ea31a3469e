// Minimises the makespan: max_m rem_m / T_m(X) over X, in seconds (Gavel
// section 4.2). With theta = 1 / makespan this is exactly the linear program
// max theta, T_m(X) >= rem_m theta, where the original bisects to 5 %. Water
// filling divides what the optimum leaves over: above the throughputs that the
// makespan needs, normalised throughputs rise in proportion to the weights, as
// in max-min fairness.
//
// A job of unknown length counts as being as long as the longest known one.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/price_water.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "coordinator/policy/water_filling.h"

namespace gavel::policy {
namespace {

// Water filling may undercut the floors that the makespan sets by this part,
// because rounding could otherwise make the floors infeasible.
constexpr double kFloorSlack = 1e-9;
// Water filling looks at every job in each of a few hundred passes. With more
// jobs than this, the leftovers stay as the sum of gains divides them.
constexpr size_t kFilledJobsMax = 20'000;
// Gangs get no limit if it would leave them less than this part of the time
// beyond what their floors need.
constexpr double kGangShareMin = 1e-6;

// [k] steps that each job has left.
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

// For one type: the largest share that the floors need for a single job, among
// the jobs that take at most half of the type, and the gangs that are too large
// to run beside that job.
struct Excluded {
  double share = 0;
  double gangs = 0;             // what the floors need for them, together
  double scale_factor_min = 0;  // of the gangs
  std::vector<size_t> cells;    // of the gangs
};

// `needs` [cells]: shares that meet the floors.
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

// Shares count accelerators, but a round runs whole gangs. A gang that needs
// nearly all of a type keeps all other jobs off the type, including the job
// that sets the makespan. Adds a limit on such gangs to each type, so that the
// gangs and that job together take at most all of the time. A type gets no
// limit if the floors themselves need more. nullopt: no type gets a limit.
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

// [cells] the shares in `given`, reduced to what the floors need.
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

// Divides the leftovers by water filling, above the floors that the makespan
// sets. Returns false, and leaves `answer` as it is, if water filling fails or
// its shares lose too much of the level.
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

// The sum of gains gives the leftovers of the optimum to gangs that keep the
// job that sets the makespan from running, and to the jobs that gain most.
// Water filling above the floors of the makespan gives them to all jobs. Unless
// HiGHS is chosen, only prices do this, and an answer that they cannot improve
// stays as it is.
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
