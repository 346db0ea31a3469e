#include "tests/policy/checker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "core/text.h"

namespace gavel::testing {

using namespace policy;
namespace {

size_t IndexOf(const PolicyProblem& problem, JobId id) {
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    if (problem.jobs[m].id == id) return m;
  }
  return problem.jobs.size();
}

// Whether a gang of the job has a place in the column.
bool HasRoom(const PolicyProblem& problem, size_t job, size_t column) {
  const size_t type = problem.TypeOfColumn(column);
  const int gang = problem.jobs[job].scale_factor;
  if (problem.capacity[type] < gang) return false;
  if (!problem.placement_sensitive() || column >= problem.types.size()) {
    return true;
  }
  const std::vector<int>& servers = problem.servers[type];
  return std::any_of(servers.begin(), servers.end(),
                     [&](int size) { return size >= gang; });
}

// Steps/s of job m in the unit; 0 where the unit can't run.
double UnitThroughput(const PolicyProblem& problem, const ShareUnit& unit,
                      size_t m, size_t column) {
  if (!HasRoom(problem, m, column)) return 0;
  if (!unit.packed()) return problem.Row(m)[column];
  const size_t first = IndexOf(problem, unit.job);
  const size_t second = IndexOf(problem, unit.partner);
  const std::optional<size_t> pair = FindPair(problem, first, second);
  if (!pair.has_value()) return 0;
  const double a = problem.PairRow(*pair)[2 * column];
  const double b = problem.PairRow(*pair)[2 * column + 1];
  if (a <= 0 || b <= 0) return 0;
  const bool turned = problem.KindOf(first) > problem.KindOf(second);
  return (m == first) != turned ? a : b;
}

bool RunsSomewhere(const PolicyProblem& problem, size_t m) {
  for (size_t c = 0; c < problem.columns(); ++c) {
    if (HasRoom(problem, m, c) && problem.Row(m)[c] > 0) return true;
  }
  return false;
}

// The sum over all units: the time of each job, the accelerators of each type,
// and those of consolidated gangs by (type, scale factor).
struct Usage {
  std::vector<double> time;
  std::vector<double> type;
  std::map<std::pair<size_t, int>, double> consolidated;
};

Usage UsageOf(const PolicyProblem& problem, const Allocation& allocation,
              std::string* errors) {
  Usage usage{std::vector<double>(problem.jobs.size(), 0.0),
              std::vector<double>(problem.types.size(), 0.0),
              {}};
  for (const ShareUnit& unit : allocation.units()) {
    const size_t m = IndexOf(problem, unit.job);
    const std::vector<double> row = allocation.Row(unit);
    for (size_t c = 0; c < row.size(); ++c) {
      if (!(row[c] >= 0)) StrAppend(errors, "negative share; ");
      if (row[c] == 0) continue;
      if (UnitThroughput(problem, unit, m, c) <= 0) {
        StrAppend(errors, "job ", unit.job.value(), " and ",
                  unit.partner.value(), " can't run on ", c, "; ");
      }
      const int gang = problem.jobs[m].scale_factor;
      const size_t type = problem.TypeOfColumn(c);
      usage.time[m] += row[c];
      if (unit.packed()) usage.time[IndexOf(problem, unit.partner)] += row[c];
      usage.type[type] += gang * row[c];
      if (problem.placement_sensitive() && c < problem.types.size()) {
        usage.consolidated[{type, gang}] += gang * row[c];
      }
    }
  }
  return usage;
}

}  // namespace

Allocation AllocationOf(const PolicyProblem& problem,
                        const PolicyResult& result) {
  if (!result.is_assignment) return result.allocation;
  std::map<ShareUnit, std::vector<double>> rows;
  for (const TypeAssignment& entry : result.assignment) {
    rows[entry.unit].resize(problem.columns());
    rows[entry.unit][entry.type] += 1;
  }
  std::vector<ShareUnit> units;
  std::vector<double> shares;
  for (const auto& [unit, row] : rows) {
    units.push_back(unit);
    shares.insert(shares.end(), row.begin(), row.end());
  }
  return Allocation::FromRows(std::move(units), problem.columns(),
                              std::move(shares));
}

std::string ShareErrors(const PolicyProblem& problem,
                        const PolicyResult& result) {
  std::string errors;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const JobId id = problem.jobs[m].id;
    const bool left_out =
        std::count(result.left_out.begin(), result.left_out.end(), id) == 1;
    const bool in =
        result.is_assignment ? !left_out : result.allocation.Contains(id);
    if (left_out == RunsSomewhere(problem, m) || left_out == in) {
      StrAppend(&errors, "job ", id.value(), " wrongly left out or in; ");
    }
  }
  const Usage usage = UsageOf(problem, AllocationOf(problem, result), &errors);
  for (const double time : usage.time) {
    if (time > 1 + kFeasibility) StrAppend(&errors, "time ", time, "; ");
  }
  for (size_t j = 0; j < usage.type.size(); ++j) {
    if (usage.type[j] > problem.capacity[j] * (1 + kFeasibility)) {
      StrAppend(&errors, "type ", j, ": ", usage.type[j], "; ");
    }
  }
  for (const auto& [key, used] : usage.consolidated) {
    int room = 0;
    for (const int size : problem.servers[key.first]) {
      room += size / key.second * key.second;
    }
    if (used > room * (1 + kFeasibility)) {
      StrAppend(&errors, "gangs of ", key.second, " on type ", key.first,
                " hold ", used, " of ", room, "; ");
    }
  }
  return errors;
}

std::string AnswerErrors(const PolicyProblem& problem,
                         const PolicyResult& result, bool minimises) {
  std::string errors = ShareErrors(problem, result);
  const bool late = result.outcome == SolveOutcome::kInfeasible &&
                    result.detail.find("deadline") != std::string::npos;
  if (result.outcome != SolveOutcome::kOptimal && !late) {
    StrAppend(&errors, "not optimal: ", result.detail, "; ");
  }
  const double sign = minimises ? -1 : 1;
  const double gap = std::abs(result.bound - result.objective) /
                     std::max(1.0, std::abs(result.bound));
  if (!std::isfinite(gap) || gap > kOptimality ||
      sign * result.objective > sign * result.bound ||
      std::abs(gap - result.gap) > 1e-12) {
    StrAppend(&errors, "objective ", result.objective, ", bound ", result.bound,
              ", gap ", result.gap, "; ");
  }
  return errors;
}

std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const Allocation& allocation,
                                   bool agnostic) {
  std::vector<double> throughputs(problem.jobs.size(), 0.0);
  for (const ShareUnit& unit : allocation.units()) {
    const std::vector<double> row = allocation.Row(unit);
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      if (!unit.Holds(problem.jobs[m].id)) continue;
      for (size_t c = 0; c < row.size(); ++c) {
        throughputs[m] +=
            row[c] * (agnostic ? 1 : UnitThroughput(problem, unit, m, c));
      }
    }
  }
  return throughputs;
}

namespace {

// [n] Throughputs with an equal part of the time on each accelerator, Gavel
// section 4.1; with `agnostic`, that time itself.
std::vector<double> Proportional(const PolicyProblem& problem, bool agnostic) {
  std::vector<double> values(problem.jobs.size());
  double accelerators = 0;
  for (const int count : problem.capacity) accelerators += count;
  for (size_t m = 0; m < values.size(); ++m) {
    const ShareUnit alone{problem.jobs[m].id, JobId()};
    for (size_t j = 0; j < problem.types.size(); ++j) {
      double best = UnitThroughput(problem, alone, m, j);
      if (best <= 0 && problem.placement_sensitive()) {
        best = UnitThroughput(problem, alone, m, problem.types.size() + j);
      }
      if (agnostic && best > 0) best = 1;
      values[m] += best * problem.capacity[j] / accelerators;
    }
  }
  return values;
}

}  // namespace

std::vector<double> JobValues(const PolicyProblem& problem,
                              const Allocation& allocation, bool agnostic) {
  std::vector<double> values = JobThroughputs(problem, allocation, agnostic);
  const std::vector<double> proportional = Proportional(problem, agnostic);
  for (size_t m = 0; m < values.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    values[m] *= RunsSomewhere(problem, m)
                     ? job.scale_factor / (job.weight * proportional[m])
                     : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

namespace {

// [n] Each job's part of all accelerators, over its weight; NaN for jobs that
// run nowhere.
std::vector<double> AcceleratorParts(const PolicyProblem& problem,
                                     const Allocation& allocation) {
  double accelerators = 0;
  for (const int count : problem.capacity) accelerators += count;
  std::vector<double> parts = JobThroughputs(problem, allocation, true);
  for (size_t m = 0; m < parts.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    parts[m] *= RunsSomewhere(problem, m)
                    ? job.scale_factor / (job.weight * accelerators)
                    : std::numeric_limits<double>::quiet_NaN();
  }
  return parts;
}

double Makespan(const PolicyProblem& problem,
                const std::vector<double>& throughputs) {
  // A job of unknown length is as long as the longest known one.
  std::vector<double> fastest(throughputs.size(), 0.0);
  double longest_s = 0;
  for (size_t m = 0; m < fastest.size(); ++m) {
    if (!RunsSomewhere(problem, m)) continue;
    const ShareUnit alone{problem.jobs[m].id, JobId()};
    for (size_t c = 0; c < problem.columns(); ++c) {
      fastest[m] = std::max(fastest[m], UnitThroughput(problem, alone, m, c));
    }
    longest_s =
        std::max(longest_s, problem.jobs[m].steps_remaining / fastest[m]);
  }
  double makespan_s = 0;
  for (size_t m = 0; m < fastest.size(); ++m) {
    if (!RunsSomewhere(problem, m)) continue;
    double steps = problem.jobs[m].steps_remaining;
    if (steps <= 0) steps = (longest_s > 0 ? longest_s : 1) * fastest[m];
    makespan_s = std::max(makespan_s, steps / throughputs[m]);
  }
  return makespan_s;
}

double LargestRho(const PolicyProblem& problem,
                  const std::vector<double>& throughputs) {
  double accelerators = 0;
  for (const int count : problem.capacity) accelerators += count;
  double sharing = 0;  // the n of an nth
  for (size_t m = 0; m < throughputs.size(); ++m) {
    sharing += RunsSomewhere(problem, m) ? 1 : 0;
  }
  const std::vector<double> proportional =
      Proportional(problem, /*agnostic=*/false);
  double largest = 0;
  for (size_t m = 0; m < throughputs.size(); ++m) {
    if (!RunsSomewhere(problem, m)) continue;
    const PolicyJob& job = problem.jobs[m];
    const double isolated =
        proportional[m] *
        std::min(1.0, accelerators / (sharing * job.scale_factor));
    const double steps = job.steps_remaining;
    const double rho = steps > 0
                           ? (job.time_since_start_s + steps / throughputs[m]) /
                                 (job.isolated_s + steps / isolated)
                           : isolated / throughputs[m];
    largest = std::max(largest, rho);
  }
  return largest;
}

// Steps/s of all jobs together, those on each type over its `cost`.
double TotalThroughput(const PolicyProblem& problem,
                       const Allocation& allocation,
                       const std::vector<double>& cost) {
  double total = 0;
  for (const ShareUnit& unit : allocation.units()) {
    const std::vector<double> row = allocation.Row(unit);
    for (const JobId id : {unit.job, unit.partner}) {
      if (!id.valid()) continue;
      const size_t m = IndexOf(problem, id);
      for (size_t c = 0; c < row.size(); ++c) {
        if (row[c] == 0) continue;
        total += row[c] * UnitThroughput(problem, unit, m, c) /
                 cost[problem.TypeOfColumn(c)];
      }
    }
  }
  return total;
}

// Normalised steps per cost of the time that is used.
double StepsPerCost(const PolicyProblem& problem, const Allocation& allocation,
                    const std::vector<double>& throughputs,
                    const std::vector<double>& cost) {
  const std::vector<double> proportional =
      Proportional(problem, /*agnostic=*/false);
  double steps = 0;
  double spent = 0;
  for (size_t m = 0; m < throughputs.size(); ++m) {
    if (!RunsSomewhere(problem, m)) continue;
    const PolicyJob& job = problem.jobs[m];
    steps += job.weight * job.scale_factor / proportional[m] * throughputs[m];
    const std::vector<double> row = allocation.Row(job.id);
    for (size_t c = 0; c < row.size(); ++c) {
      spent += cost[problem.TypeOfColumn(c)] * job.scale_factor * row[c];
    }
  }
  return steps / spent;
}

std::string LateJobs(const PolicyProblem& problem,
                     const Allocation& allocation) {
  const std::vector<double> throughputs =
      JobThroughputs(problem, allocation, false);
  std::string late;
  for (size_t m = 0; m < throughputs.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    if (!(job.deadline_s > 0) || job.deadline_s == PolicyJob::kNoDeadline ||
        !RunsSomewhere(problem, m)) {
      continue;
    }
    const double needed = job.steps_remaining / job.deadline_s;
    if (throughputs[m] >= needed * (1 - kOptimality)) continue;
    StrAppend(&late, "job ", job.id.value(), " has ", throughputs[m], " of ",
              needed, "; ");
  }
  return late;
}

}  // namespace

// The policy's objective: the least value, the least share of all accelerators,
// the makespan, the largest rho, the sum of steps/s (each over the cost of its
// type where the name says so), or normalised steps per cost.
double ObjectiveOf(std::string_view policy, const PolicyProblem& problem,
                   const Allocation& allocation) {
  if (policy == "min_total_duration" || policy == "finish_time_fairness") {
    return ObjectiveOf(StrCat(policy, "_perf"), WithReferenceType(problem),
                       allocation);
  }
  if (policy.starts_with("max_min_fairness")) {
    const bool agnostic = policy == "max_min_fairness" ||
                          policy == "max_min_fairness_water_filling";
    return LeastValue(JobValues(problem, allocation, agnostic));
  }
  if (policy == "drf") {
    return LeastValue(AcceleratorParts(problem, allocation));
  }
  const std::vector<double> throughputs =
      JobThroughputs(problem, allocation, false);
  if (policy.starts_with("min_total_duration")) {
    return Makespan(problem, throughputs);
  }
  if (policy.starts_with("finish_time_fairness")) {
    return LargestRho(problem, throughputs);
  }
  std::vector<double> cost = problem.cost;
  if (cost.empty() || policy == "max_sum_throughput_perf") {
    cost.assign(problem.types.size(), 1.0);
  }
  return policy == "max_throughput_per_cost"
             ? StepsPerCost(problem, allocation, throughputs, cost)
             : TotalThroughput(problem, allocation, cost);
}

std::string FormulaErrors(std::string_view policy, const PolicyProblem& problem,
                          const PolicyResult& result) {
  std::string errors;
  const double objective = ObjectiveOf(policy, problem, result.allocation);
  if (!(std::abs(result.objective - objective) <= 1e-9 * std::abs(objective))) {
    StrAppend(&errors, "objective ", result.objective, " for ", objective,
              "; ");
  }
  const bool deadlines =
      policy.ends_with("SLOs") || policy == "max_throughput_per_cost";
  if (deadlines && result.outcome == SolveOutcome::kOptimal) {
    StrAppend(&errors, LateJobs(problem, result.allocation));
  }
  return errors;
}

double LeastValue(const std::vector<double>& values) {
  double least = std::numeric_limits<double>::infinity();
  for (const double value : values) {
    if (value < least) least = value;
  }
  return least;
}

std::vector<double> Sorted(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::ranges::sort(values);
  return values;
}

std::string LexicographicErrors(const PolicyProblem& problem,
                                const Allocation& allocation,
                                const std::vector<double>& values, bool packs,
                                bool agnostic) {
  const ShareProblem shares =
      MakeShareProblem(problem, {.pairs = packs, .agnostic = agnostic});
  const std::vector<double> now = JobThroughputs(problem, allocation, agnostic);
  std::string errors;
  for (size_t m = 0; m < shares.size(); ++m) {
    const double value = values[shares.jobs[m]];
    ShareProgram program(shares);
    program.AddThroughputCost(m, 1 / now[shares.jobs[m]],
                              program.lp.column_cost);
    for (size_t k = 0; k < shares.size(); ++k) {
      const size_t other = shares.jobs[k];
      if (k == m || values[other] > value * (1 + kOptimality)) continue;
      // The solver needs some room.
      program.AddThroughputRow(k, 1 / now[other], {}, 1 - 1e-12, kInfinity);
    }
    const LpSolution solution =
        HighsSolver(program.lp, {.tolerance = 1e-10}).Solve(Restart::kDual);
    if (solution.outcome == SolveOutcome::kOptimal &&
        solution.objective <= 1 + kOptimality) {
      continue;
    }
    StrAppend(&errors, "job index ", m, " at ", value, " can rise by ",
              solution.objective - 1, " ", solution.detail, "; ");
  }
  return errors;
}

}  // namespace gavel::testing
