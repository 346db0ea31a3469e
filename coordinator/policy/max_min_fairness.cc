#include "coordinator/policy/max_min_fairness.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/policy/lp/linear_program.h"
#include "coordinator/policy/problem.h"
#include "coordinator/policy/shares.h"
#include "core/status.h"

namespace gavel {
namespace {

// The second stage may take this part of the optimum: as much as the
// tolerance of the first.
constexpr double kFloorSlack = 1e-9;
// A second stage that lost more than this of it is not taken.
constexpr double kFloorLossMax = 1e-8;

MaxMinProblem Normalize(const PolicyProblem& problem, const UsableJobs& usable,
                        Heterogeneity heterogeneity) {
  MaxMinProblem max_min;
  max_min.limits.capacity.assign(problem.capacity.begin(),
                                 problem.capacity.end());
  const std::vector<double>& capacity = max_min.limits.capacity;
  double accelerators = 0;
  for (const double count : capacity) accelerators += count;
  for (size_t i = 0; i < usable.jobs.size(); ++i) {
    const PolicyJob& job = problem.jobs[usable.jobs[i]];
    std::vector<double> row(usable.Row(i).begin(), usable.Row(i).end());
    if (heterogeneity == Heterogeneity::kAgnostic) {
      for (double& throughput : row) throughput = throughput > 0 ? 1 : 0;
    }
    // Gavel section 4.1: divided by the throughput of an equal share of all
    // accelerators, so that steps of different models compare; times the scale
    // factor, so that a gang does not get more for being one.
    const double largest = *std::max_element(row.begin(), row.end());
    double proportional = 0;
    for (double& throughput : row) throughput /= largest;
    for (size_t j = 0; j < row.size(); ++j) {
      proportional += row[j] * capacity[j] / accelerators;
    }
    for (const double throughput : row) {
      max_min.values.push_back(throughput / proportional * job.scale_factor /
                               job.weight);
    }
    max_min.limits.scale_factor.push_back(job.scale_factor);
  }
  return max_min;
}

// The linear program: columns are the least value, as a multiple of `unit`,
// then the shares of (job, type) pairs that can run; rows are the jobs' values,
// then the types' capacities, then the jobs' time.
struct MaxMinProgram {
  LinearProgram lp;
  // By (job, type): the column of its share, -1 where the job cannot run.
  std::vector<int> column;
};

MaxMinProgram BuildProgram(const MaxMinProblem& problem, double unit) {
  const size_t types = problem.types();
  MaxMinProgram program;
  LinearProgram& lp = program.lp;
  const int least = lp.AddColumn(/*cost=*/1, 0, kInfinity);
  for (const double value : problem.values) {
    program.column.push_back(value > 0 ? lp.AddColumn(0, 0, 1) : -1);
  }
  std::vector<std::vector<LpEntry>> capacity(types);
  std::vector<std::vector<LpEntry>> time(problem.jobs());
  for (size_t m = 0; m < problem.jobs(); ++m) {
    std::vector<LpEntry> value = {{least, -1}};
    for (size_t j = 0; j < types; ++j) {
      const int column = program.column[m * types + j];
      if (column < 0) continue;
      // In units of `unit`, so that the solver's absolute tolerance is a
      // relative one of the objective, however many jobs share the cluster.
      value.push_back({column, problem.Row(m)[j] / unit});
      // Divided by the capacity: unscaled rows put the bound below the
      // objective.
      capacity[j].push_back({column, problem.limits.scale_factor[m] /
                                         problem.limits.capacity[j]});
      time[m].push_back({column, 1});
    }
    lp.AddRow(0, kInfinity, value);
  }
  for (const auto& row : capacity) lp.AddRow(-kInfinity, 1, row);
  for (const auto& row : time) lp.AddRow(-kInfinity, 1, row);
  return program;
}

// Shares of a solution, repaired; empty when it has none.
std::vector<double> SharesOf(const MaxMinProblem& problem,
                             const MaxMinProgram& program,
                             const LpSolution& solution) {
  if (solution.column_values.empty()) return {};
  std::vector<double> shares(program.column.size(), 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (program.column[i] < 0) continue;
    shares[i] = solution.column_values[static_cast<size_t>(program.column[i])];
  }
  RepairShares(problem.limits, shares);
  return shares;
}

// The bound by the solution's duals; without any, by equal weights.
double BoundOf(const MaxMinProblem& problem, double unit,
               const LpSolution& solution) {
  std::vector<double> weight(problem.jobs(), 1.0);
  std::vector<double> price(problem.types(), 0.0);
  const double trivial = UpperBound(problem, weight, price);
  if (solution.row_duals.empty()) return trivial;
  for (size_t m = 0; m < weight.size(); ++m) {
    weight[m] = -solution.row_duals[m];
  }
  for (size_t j = 0; j < price.size(); ++j) {
    if (problem.limits.capacity[j] == 0) continue;
    // Back from the scaled rows to accelerators.
    price[j] = unit * solution.row_duals[weight.size() + j] /
               problem.limits.capacity[j];
  }
  return std::min(trivial, UpperBound(problem, weight, price));
}

// Of all optimal allocations the one with the largest total of unweighted
// values, from the basis of the first stage.
std::vector<double> SpendTheRest(const MaxMinProblem& problem,
                                 const MaxMinProgram& program,
                                 const std::vector<double>& gain, double least,
                                 HighsSolver& solver) {
  const double largest = *std::max_element(gain.begin(), gain.end());
  std::vector<double> costs(static_cast<size_t>(program.lp.columns()), 0.0);
  for (size_t i = 0; i < gain.size(); ++i) {
    if (program.column[i] < 0) continue;
    costs[static_cast<size_t>(program.column[i])] = gain[i] / largest;
  }
  solver.ChangeCosts(costs);
  solver.ChangeColumnBounds(0, least * (1 - kFloorSlack), kInfinity);
  const LpSolution solution = solver.Solve();
  if (solution.outcome != SolveOutcome::kOptimal) return {};
  return SharesOf(problem, program, solution);
}

// What the two stages decided. `gain`: [k x J], values without the weights.
struct Decision {
  std::vector<double> shares;
  double bound = 0;
  LpSolution solution;
};

Decision Decide(const MaxMinProblem& problem, const std::vector<double>& gain,
                LpOptions options) {
  // The even split is there if the solver stops early, and its objective is
  // the unit in which the program counts.
  Decision decision;
  decision.shares = EvenShares(problem);
  const double unit = SmallestValue(problem, decision.shares);
  const MaxMinProgram program = BuildProgram(problem, unit);
  HighsSolver solver(program.lp, options);
  decision.solution = solver.Solve();
  decision.bound = BoundOf(problem, unit, decision.solution);

  const auto take = [&](std::vector<double> shares, double at_least) {
    if (shares.empty() || SmallestValue(problem, shares) < at_least) return;
    decision.shares = std::move(shares);
  };
  take(SharesOf(problem, program, decision.solution), unit);
  if (decision.solution.outcome != SolveOutcome::kOptimal) return decision;
  const double least = decision.solution.column_values[0];
  const double objective = SmallestValue(problem, decision.shares);
  take(SpendTheRest(problem, program, gain, least, solver),
       objective * (1 - kFloorLossMax));
  return decision;
}

Allocation ToAllocation(const PolicyProblem& problem, const UsableJobs& usable,
                        std::vector<double> shares) {
  std::vector<JobId> jobs;
  for (const size_t m : usable.jobs) jobs.push_back(problem.jobs[m].id);
  return Allocation::FromRows(std::move(jobs), usable.types, std::move(shares));
}

}  // namespace

std::string_view MaxMinFairness::name() const {
  return heterogeneity_ == Heterogeneity::kAware ? "max_min_fairness_perf"
                                                 : "max_min_fairness";
}

absl::StatusOr<PolicyResult> MaxMinFairness::Solve(
    const PolicyProblem& problem) const {
  GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
  const UsableJobs usable = FindUsableJobs(problem);
  PolicyResult result;
  result.left_out = usable.left_out;
  if (usable.jobs.empty()) {
    result.outcome = SolveOutcome::kOptimal;
    result.allocation = ToAllocation(problem, usable, {});
    result.solver = "none";
    return result;
  }
  const MaxMinProblem max_min = Normalize(problem, usable, heterogeneity_);
  std::vector<double> gain = max_min.values;
  for (size_t i = 0; i < gain.size(); ++i) {
    gain[i] *= problem.jobs[usable.jobs[i / usable.types]].weight;
  }
  Decision decision = Decide(max_min, gain, options_);
  result.outcome = decision.solution.outcome;
  result.detail = std::move(decision.solution.detail);
  result.solver = std::move(decision.solution.solver);
  result.objective = SmallestValue(max_min, decision.shares);
  // An exact optimum and its bound may differ by a rounding either way.
  result.bound = std::max(decision.bound, result.objective);
  result.gap = (result.bound - result.objective) / std::max(1.0, result.bound);
  result.allocation = ToAllocation(problem, usable, std::move(decision.shares));
  return result;
}

std::unique_ptr<Policy> MakeMaxMinFairness();
std::unique_ptr<Policy> MakeMaxMinFairness() {
  return std::make_unique<MaxMinFairness>(Heterogeneity::kAgnostic);
}

std::unique_ptr<Policy> MakeMaxMinFairnessPerf();
std::unique_ptr<Policy> MakeMaxMinFairnessPerf() {
  return std::make_unique<MaxMinFairness>(Heterogeneity::kAware);
}

}  // namespace gavel
