// The policies that give each job a fair share of the cluster: the even splits,
// dominant resource fairness, max-min fairness, water filling and its
// hierarchical form, and finish-time fairness. strategy_proof.cc has a solver
// of its own.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policy/job_classes.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "coordinator/policy/water_filling.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::policy {

// Two splits of the cluster that look at no throughput; what others are
// compared with (Gavel sections 4.1 and 7). Only usable jobs count, and no job
// is given time on a type that it can't use. Nothing is optimised: the
// objective, and the bound, are the jobs that run at a time, sum_mj X[m][j].
//
// isolated: each of n jobs has an nth of every type, X[m][j] = N_j / (n s_m),
// its row scaled down to 1 where it is more.
//
// proportional: each job's time is split as the accelerators are, X[m][j] =
// N_j / sum_k N_k, and all jobs' time on a type scaled down to what there is of
// it (the original gives out more than there is).

namespace {

// The job's cell of each type; of its columns the faster one.
std::vector<int> CellsByType(const ShareProblem& problem, size_t m) {
  std::vector<int> cells(problem.types, -1);
  std::vector<double> fastest(problem.types, 0.0);
  for (const JobCell& entry : problem.Cells(m)) {
    const auto type = problem.cells[entry.cell].type;
    if (entry.throughput <= fastest[type]) continue;
    fastest[type] = entry.throughput;
    cells[type] = static_cast<int>(entry.cell);
  }
  return cells;
}

// The share of a type that a gang of `scale_factor` is given.
using Share = std::function<double(double scale_factor, size_t type)>;

PolicyResult DivideBy(const ShareProblem& problem, const Share& share) {
  std::vector<double> shares(problem.cells.size(), 0.0);
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::vector<int> cells = CellsByType(problem, m);
    const auto given = [&](size_t type) {
      return cells[type] < 0 ? 0 : share(problem.scale_factor[m], type);
    };
    double sum = 0;
    for (size_t type = 0; type < cells.size(); ++type) sum += given(type);
    for (size_t type = 0; type < cells.size(); ++type) {
      if (cells[type] < 0) continue;
      shares[static_cast<size_t>(cells[type])] =
          given(type) / std::max(1.0, sum);
    }
  }
  RepairShares(problem, shares);  // down to what there is of each type
  const double running = std::accumulate(shares.begin(), shares.end(), 0.0);
  PolicyResult result =
      ToResult(problem, shares, running, running, "closed-form");
  result.worth = TypeWorth::kAlike;
  return result;
}

}  // namespace

PolicyResult SolveIsolated(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  const auto jobs = static_cast<double>(shares.size());
  return DivideBy(shares, [&](double scale_factor, size_t type) {
    return shares.capacity[type] / (jobs * scale_factor);
  });
}

PolicyResult SolveProportional(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  return DivideBy(shares, [&](double, size_t type) {
    return shares.capacity[type] / shares.accelerators();
  });
}

// Dominant resource fairness (Ghodsi et al., NSDI 2011): the resource is
// accelerators of any type that a job can use, and its dominant share is the
// part of all accelerators that it holds over time. The least of
//   s_m sum_c X[m][c] / (w_m sum_j N_j)
// is made as large as it can be, then the second least, and so on: progressive
// filling, whatever the throughputs.

PolicyResult SolveDrf(const PolicyProblem& problem) {
  const ShareProblem shares = MakeShareProblem(problem, {.agnostic = true});
  // With T = 1 the throughput is the time that the job runs.
  std::vector<double> factor = shares.scale_factor;
  for (double& value : factor) value /= shares.accelerators();
  return SolveFlatWaterFilling(shares, factor, problem.solver);
}

// Max-min fairness, Gavel section 4.1: the least normalised throughput of all
// jobs is made as large as it can be. The objective is min over jobs of
//   v_m = s_m / (w_m prop_m) * T_m(X),
// prop_m = sum_j T[m][j] N_j / sum_j N_j, with T = 0 where the job cannot run.
// The leftovers then go where they gain most, with no job below the optimum:
// the total of s_m / prop_m * T_m(X) is made as large as it can be.

namespace {

// T_m(X) at v_m = 1, by job.
std::vector<double> Targets(const ShareProblem& shares,
                            const std::vector<double>& normalizers) {
  std::vector<double> targets(shares.size());
  for (size_t m = 0; m < targets.size(); ++m) {
    targets[m] = shares.weight[m] / normalizers[m];
  }
  return targets;
}

// On classes of equal jobs. Shares are those of the classes.
TargetAnswer SolveStages(const ShareProblem& shares,
                         std::span<const double> members, SolverChoice choice,
                         const LpOptions& options) {
  std::vector<double> gains = Normalizers(shares);
  const std::vector<double> targets = Targets(shares, gains);
  for (size_t m = 0; m < gains.size(); ++m) gains[m] *= members[m];
  TargetAnswer answer = SolveTargets(shares, targets, gains, choice, options);
  if (answer.outcome != SolveOutcome::kOptimal) return answer;
  std::vector<double> wanted = targets;
  for (double& throughput : wanted) throughput *= answer.bound;
  TopUpShares(shares, wanted, answer.shares);
  return answer;
}

// min_m v_m.
double LeastValue(const ShareProblem& shares, std::span<const double> of) {
  return Level(shares, Targets(shares, Normalizers(shares)), of);
}

// Jobs that run alone. Equal ones have equal shares, unless all jobs are
// in their best cells: then maybe on different types.
PolicyResult SolveAlone(const PolicyProblem& problem,
                        const ShareOptions& share_options,
                        const LpOptions& options) {
  const JobClasses classes = ClassesOf(problem, share_options);
  const ShareProblem& shares = classes.problem;
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  if (MayAllBeAtBest(shares)) {
    const ShareProblem all = MakeShareProblem(problem, share_options);
    const auto value = [&](std::span<const double> of) {
      return LeastValue(all, of);
    };
    if (auto result = ResultIfNoneScarce(all, value)) return *result;
  }
  TargetAnswer answer =
      SolveStages(shares, classes.members, problem.solver, options);
  SpreadEvenly(shares, answer.shares);
  return Certified(Sense::kMaximum, answer,
                   ToResult(problem, classes, answer.shares,
                            LeastValue(shares, answer.shares), answer.bound));
}

PolicyResult SolvePacked(const PolicyProblem& problem,
                         const ShareOptions& share_options,
                         const LpOptions& options) {
  ShareProblem shares = MakeShareProblem(problem, share_options);
  const std::vector<double> targets = Targets(shares, Normalizers(shares));
  const auto value = [&](std::span<const double> of) {
    return Level(shares, targets, of);
  };
  if (auto result = ResultIfNoneScarce(shares, value)) return *result;
  JobClasses classes = ClassifyJobs(shares);
  const TargetAnswer answer = SolveWithPairs(
      &classes.problem, options, [&](const LpOptions& with_pairs) {
        return SolveStages(classes.problem, classes.members, problem.solver,
                           with_pairs);
      });
  std::vector<double> all = SharesOfMembers(classes, answer.shares, &shares);
  SpreadEvenly(shares, all);
  return Certified(Sense::kMaximum, answer,
                   ToResult(shares, all, value(all), answer.bound));
}

}  // namespace

PolicyResult SolveMaxMinFairness(const PolicyProblem& problem, PolicyForm form,
                                 const LpOptions& options) {
  const ShareOptions share_options = OptionsOf(form, problem.solver);
  return share_options.pairs && !problem.pairs.empty()
             ? SolvePacked(problem, share_options, options)
             : SolveAlone(problem, share_options, options);
}

// Max-min fairness by water filling: as max_min_fairness, and when the least
// job can have no more, the second least is made as large as it can be, and so
// on (Gavel section 4.3). With entities (organisations with weights, each with
// a policy inside) the hierarchical form of the same section.
//
// The objective is min over jobs of v_m = s_m / (w_m prop_m) T_m(X); the sorted
// vector of all v_m is the lexicographically largest one. With entities it is
// the first level, see below.

absl::StatusOr<PolicyResult> SolveWaterFilling(const PolicyProblem& problem,
                                               PolicyForm form) {
  ShareProblem shares =
      MakeShareProblem(problem, OptionsOf(form, problem.solver));
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  const std::vector<double> normalizers = Normalizers(shares);
  if (problem.entities.empty()) {
    return SolveFlatWaterFilling(std::move(shares), normalizers,
                                 problem.solver);
  }
  return SolveHierarchy(problem, std::move(shares), normalizers);
}

// Hierarchical fairness (Gavel section 4.3): entities with weights share the
// cluster by water filling, and each divides its part among its jobs by a
// policy of its own.
//
// An entity of weight w has w times the level of normalised throughput s_m /
// prop_m T_m(X), all its jobs together. Inside it, by PolicyEntity::policy:
// - "fairness": its jobs rise together, in proportion to their weights; what
//   one can't use, as it is at its most or no allocation gives it more, goes to
//   the others;
// - "fifo": all of it to the job that arrived first (ties by id) until that job
//   can have no more, then to the next;
// - the name of any policy: the policy divides a cluster of the entity's part
//   (each type's accelerators times w / sum of weights, rounded up, and never
//   fewer than the largest gang that fits the whole type) among the entity's
//   jobs alone; the entity's jobs then rise together in proportion to the
//   normalised throughputs that they have there. Jobs that have none come after
//   those, by their weights.
// A job without an entity is an entity of its own, with the job's weight.
//
// The objective is the level up to which no job is short of its demand: the
// first level at which some job can have no more. `bound` is above it in every
// feasible allocation.

namespace {

// One entity while its demands are worked out.
struct Entity {
  std::string name;
  std::string policy;
  DemandGroup group;
  std::vector<size_t> jobs;  // indices into the share problem
};

// The entities that have jobs.
std::vector<Entity> EntitiesOf(const PolicyProblem& problem,
                               const ShareProblem& shares) {
  std::vector<Entity> entities(problem.entities.size());
  for (size_t e = 0; e < entities.size(); ++e) {
    entities[e].name = problem.entities[e].name;
    entities[e].policy = problem.entities[e].policy;
    entities[e].group.weight = problem.entities[e].weight;
  }
  for (size_t m = 0; m < shares.size(); ++m) {
    const PolicyJob& job = problem.jobs[shares.jobs[m]];
    if (job.entity >= 0) {
      entities[static_cast<size_t>(job.entity)].jobs.push_back(m);
    } else {
      entities.push_back({"", "fairness", {job.weight, {}}, {m}});
    }
  }
  std::erase_if(entities, [](const Entity& e) { return e.jobs.empty(); });
  return entities;
}

// The part of a type that an entity's own policy divides.
int PartOf(int accelerators, double part, int largest_gang) {
  const double rounded = std::ceil(accelerators * part * (1 - 1e-12));
  return std::clamp(static_cast<int>(rounded), largest_gang, accelerators);
}

// The problem of one entity's jobs alone, on its part of the cluster, without
// pairs and placement.
PolicyProblem OwnProblem(const PolicyProblem& problem,
                         const ShareProblem& shares, const Entity& entity,
                         double part) {
  PolicyProblem own;
  own.types = problem.types;
  own.cost = problem.cost;
  const size_t types = own.types.size();
  std::vector<int> largest(types, 0);  // gang that can use the type
  for (const size_t m : entity.jobs) {
    PolicyJob job = problem.jobs[shares.jobs[m]];
    job.entity = -1;
    job.running_with = JobId();
    const std::span<const double> row = shares.Row(m);
    for (size_t j = 0; j < types; ++j) {
      const double spread = row[row.size() - types + j];
      own.throughputs.push_back(std::max(row[j], spread));
      if (own.throughputs.back() <= 0) continue;
      largest[j] = std::max(largest[j], job.scale_factor);
    }
    own.jobs.push_back(std::move(job));
  }
  for (size_t j = 0; j < types; ++j) {
    own.capacity.push_back(PartOf(problem.capacity[j], part, largest[j]));
  }
  return own;
}

// [own jobs] steps/s that a policy gives them.
std::vector<double> ThroughputsOf(const PolicyProblem& own,
                                  const PolicyResult& result) {
  std::vector<double> throughputs(own.jobs.size(), 0.0);
  for (size_t i = 0; i < throughputs.size(); ++i) {
    const JobId id = own.jobs[i].id;
    std::vector<double> time(own.types.size(), 0.0);
    if (!result.is_assignment && result.allocation.Contains(id)) {
      time = result.allocation.Row(id);
    }
    for (const TypeAssignment& entry : result.assignment) {
      if (entry.unit.Holds(id)) time[entry.type] = 1;
    }
    for (size_t j = 0; j < time.size(); ++j) {
      throughputs[i] += own.Row(i)[j] * time[j];
    }
  }
  return throughputs;
}

std::vector<std::vector<size_t>> FifoTiers(const PolicyProblem& problem,
                                           const ShareProblem& shares,
                                           std::vector<size_t> jobs) {
  std::stable_sort(jobs.begin(), jobs.end(), [&](size_t a, size_t b) {
    return problem.jobs[shares.jobs[a]].arrival_s <
           problem.jobs[shares.jobs[b]].arrival_s;
  });
  std::vector<std::vector<size_t>> tiers;
  for (const size_t m : jobs) tiers.push_back({m});
  return tiers;
}

// Sets the tiers of an entity that names a policy, and its jobs' rates.
absl::Status AskPolicy(const PolicyProblem& problem, const ShareProblem& shares,
                       std::span<const double> normalizers, double part,
                       Entity& entity, std::vector<double>& rates) {
  const absl::StatusOr<std::unique_ptr<Policy>> policy =
      MakePolicy(entity.policy);
  if (!policy.ok()) {
    return absl::InvalidArgumentError(StrCat("entity ", entity.name, ": ",
                                             ToStd(policy.status().message()),
                                             "; or fairness, or fifo"));
  }
  const PolicyProblem own = OwnProblem(problem, shares, entity, part);
  GAVEL_ASSIGN_OR_RETURN(const PolicyResult result, (*policy)->Solve(own));
  const std::vector<double> throughputs = ThroughputsOf(own, result);
  std::vector<size_t> served;
  std::vector<size_t> others;
  for (size_t i = 0; i < entity.jobs.size(); ++i) {
    const size_t m = entity.jobs[i];
    const double amount = normalizers[m] * throughputs[i];
    (amount > 0 ? served : others).push_back(m);
    if (amount > 0) rates[m] = amount;
  }
  entity.group.tiers = {std::move(served), std::move(others)};
  return absl::OkStatus();
}

absl::StatusOr<Demands> DemandsOf(const PolicyProblem& problem,
                                  const ShareProblem& shares,
                                  std::span<const double> normalizers) {
  std::vector<Entity> entities = EntitiesOf(problem, shares);
  double weights = 0;
  for (const Entity& entity : entities) weights += entity.group.weight;
  std::vector<double> rates = shares.weight;
  std::vector<DemandGroup> groups;
  for (Entity& entity : entities) {
    if (entity.policy == "fairness") {
      entity.group.tiers = {entity.jobs};
    } else if (entity.policy == "fifo") {
      entity.group.tiers = FifoTiers(problem, shares, entity.jobs);
    } else {
      GAVEL_RETURN_IF_ERROR(AskPolicy(problem, shares, normalizers,
                                      entity.group.weight / weights, entity,
                                      rates));
    }
    groups.push_back(std::move(entity.group));
  }
  return Demands(std::move(rates), LargestAmounts(shares, normalizers),
                 std::move(groups));
}

// The highest level whose demands the amounts meet, to the solver's precision:
// with less tolerance, a job a hair below its cap would count as short from
// there on. A level is not raised above the bound by that tolerance alone.
double LevelOf(const Demands& demands, std::span<const double> amounts,
               double bound) {
  constexpr double kRounding = 1e-7;
  std::vector<double> wanted(amounts.size());
  const auto met = [&](double level) {
    demands.At(level, wanted);
    for (size_t m = 0; m < wanted.size(); ++m) {
      if (amounts[m] < wanted[m] * (1 - kRounding)) return false;
    }
    return true;
  };
  double high = demands.TopLevel();
  double low = 0;
  if (met(high)) low = high;
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = (low + high) / 2;
    (met(middle) ? low : high) = middle;
  }
  return low <= bound * (1 + 2 * kRounding) ? std::min(low, bound) : low;
}

}  // namespace

absl::StatusOr<PolicyResult> SolveHierarchy(
    const PolicyProblem& problem, ShareProblem shares,
    std::span<const double> normalizers) {
  GAVEL_ASSIGN_OR_RETURN(const Demands demands,
                         DemandsOf(problem, shares, normalizers));
  WaterLevels levels =
      SolveWithPairs(&shares, {}, [&](const LpOptions& options) {
        return FillWater(shares, normalizers, demands, problem.solver, options);
      });
  SpreadEvenly(shares, levels.shares);
  std::vector<double> amounts = Throughputs(shares, levels.shares);
  for (size_t m = 0; m < amounts.size(); ++m) amounts[m] *= normalizers[m];
  const double bound = levels.first_level_bound;
  const double objective = LevelOf(demands, amounts, bound);
  return Certified(Sense::kMaximum, levels,
                   ToResult(shares, levels.shares, objective, bound));
}

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

namespace {

constexpr int kRhoStepsMax = 60;
// Relative distance of the bounds at which the search ends.
constexpr double kRhoGapMax = 1e-11;
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
class RhoSearch {
 public:
  RhoSearch(const ShareProblem& shares, std::vector<Finish> finishes,
            const LpOptions& options)
      : shares_(shares), finishes_(std::move(finishes)), options_(options) {
    best_ = EvenShares(shares);
    high_ = RhoOf(best_);
    low_ = LargestRho(finishes_, LargestThroughputs(shares));
  }

  void Run() {
    double rho = high_;
    for (int round = 0; round < kRhoStepsMax && !Done(); ++round) {
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
  bool Done() const { return high_ - low_ <= kRhoGapMax * high_; }
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
          RhoSearch search(shares, finishes, options);
          search.Run();
          if (search.optimal()) search.SpendTheRest(gain);
          search.Spread();
          return search.Result();
        });
      });
}

}  // namespace gavel::policy
