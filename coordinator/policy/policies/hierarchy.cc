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
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/pair_columns.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/water_filling.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

// One entity while its demands are worked out.
struct Entity {
  std::string name;
  std::string policy;
  DemandGroup group;
  std::vector<size_t> jobs;  // indices into the share problem
};

// Those that have jobs.
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
// with less room, a job a hair below its cap would count as short from there
// on. What that room alone puts above the bound is not counted.
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

}  // namespace gavel::policy
