#include "tests/policy/policy_kit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/share_program.h"
#include "coordinator/policy/share/share_problem.h"
#include "core/text.h"

namespace gavel::testing {
namespace {

constexpr double kTolerance = 1e-9;  // of limits
constexpr double kEqual = 1e-6;      // relative, of throughputs
// What jobs may lose when another allocation is looked for, as parts of their
// fastest throughput: the solver needs some room.
constexpr double kGivenUp = 1e-9;
// Gains up to this, summed over jobs, are what that room makes of tolerances.
constexpr double kMore = 1e-5;

constexpr PolicyView kTime = PolicyView::kTime;
constexpr PolicyView kReferenceType = PolicyView::kReferenceType;

// What each policy promises. Nothing: to be feasible, to leave out those jobs
// that fit nowhere, to give the same answer again, a bound that holds.
constexpr PolicyPromises kPromises[] = {
    {.name = "allox", .minimises = true},
    {.name = "drf",
     .view = kTime,
     .pareto = true,
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "fifo"},
    {.name = "fifo_packed"},
    {.name = "fifo_perf"},
    {.name = "finish_time_fairness",
     .view = kReferenceType,
     .minimises = true,
     .pareto = true,
     .sharing_incentive = true},
    {.name = "finish_time_fairness_packed",
     .minimises = true,
     .pareto = true,
     .sharing_incentive = true},
    {.name = "finish_time_fairness_perf",
     .minimises = true,
     .pareto = true,
     .sharing_incentive = true},
    {.name = "gandiva"},
    {.name = "isolated",
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "max_min_fairness",
     .view = kTime,
     .pareto = true,
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "max_min_fairness_packed",
     .pareto = true,
     .sharing_incentive = true},
    {.name = "max_min_fairness_perf",
     .pareto = true,
     .sharing_incentive = true},
    {.name = "max_min_fairness_strategy_proof",
     .view = kTime,
     .strategy_proof = true},
    {.name = "max_min_fairness_strategy_proof_perf", .strategy_proof = true},
    {.name = "max_min_fairness_water_filling",
     .view = kTime,
     .pareto = true,
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "max_min_fairness_water_filling_packed",
     .pareto = true,
     .sharing_incentive = true},
    {.name = "max_min_fairness_water_filling_perf",
     .pareto = true,
     .sharing_incentive = true},
    {.name = "max_sum_throughput_normalized_by_cost_packed_SLOs"},
    {.name = "max_sum_throughput_normalized_by_cost_perf"},
    {.name = "max_sum_throughput_normalized_by_cost_perf_SLOs"},
    {.name = "max_sum_throughput_perf", .pareto = true},
    {.name = "max_throughput_per_cost"},
    {.name = "min_total_duration",
     .view = kReferenceType,
     .minimises = true,
     .pareto = true,
     .limits_gangs = true},
    {.name = "min_total_duration_packed", .minimises = true, .pareto = true},
    {.name = "min_total_duration_perf",
     .minimises = true,
     .pareto = true,
     .limits_gangs = true},
    {.name = "priority", .work_conserving = true},
    {.name = "proportional",
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "sjf", .work_conserving = true},
    {.name = "strategy_proof", .view = kTime, .strategy_proof = true},
    {.name = "strategy_proof_perf", .strategy_proof = true},
};

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  size_t Below(size_t end) { return random_() % end; }
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool OneIn(size_t count) { return Below(count) == 0; }

 private:
  std::mt19937_64 random_;
};

void AddTypes(Random& random, int least, int most, PolicyProblem* problem) {
  problem->types = {"k80", "p100", "v100"};
  for (size_t j = 0; j < problem->types.size(); ++j) {
    const auto range = static_cast<size_t>(most - least + 1);
    problem->capacity.push_back(least + static_cast<int>(random.Below(range)));
    problem->cost.push_back(random.Between(0.1, 3));
  }
}

PolicyJob MakeJob(Random& random, size_t place) {
  PolicyJob job;
  job.id = JobId(2 * place + 1);
  job.arrival_s = static_cast<double>(place);
  job.steps_remaining = random.Between(1e3, 1e6);
  return job;
}

void AddThroughputs(Random& random, bool with_zeros, PolicyProblem* problem) {
  const double speed = random.Between(0.1, 100);
  for (size_t j = 0; j < problem->types.size(); ++j) {
    const bool zero = with_zeros && random.OneIn(8);
    problem->throughputs.push_back(zero ? 0 : speed * random.Between(0.2, 5));
  }
}

void AddPairs(Random& random, PolicyProblem* problem) {
  for (size_t a = 0; a < problem->jobs.size(); ++a) {
    for (size_t b = a + 1; b < problem->jobs.size(); ++b) {
      if (problem->jobs[a].scale_factor != problem->jobs[b].scale_factor) {
        continue;
      }
      problem->pairs.push_back({a, b});
      for (size_t j = 0; j < problem->types.size(); ++j) {
        for (const size_t job : {a, b}) {
          problem->pair_throughputs.push_back(problem->Row(job)[j] *
                                              random.Between(0.1, 0.95));
        }
      }
    }
  }
}

// `problem` as the view sees it.
PolicyProblem Seen(PolicyProblem problem, PolicyView view) {
  if (view == PolicyView::kReal) return problem;
  const size_t columns = problem.columns();
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    double* const row = problem.throughputs.data() + m * columns;
    double reference = 0;
    for (size_t c = 0; c < columns; ++c) {
      const size_t type = problem.TypeOfColumn(c);
      if (problem.capacity[type] < problem.jobs[m].scale_factor) row[c] = 0;
      reference = std::max(reference, row[c]);
    }
    for (size_t c = 0; c < columns; ++c) {
      const bool v100 = problem.types[problem.TypeOfColumn(c)] == "v100";
      if (v100 && row[c] > 0) reference = row[c];
    }
    if (view == PolicyView::kTime) reference = 1;
    for (size_t c = 0; c < columns; ++c) row[c] = row[c] > 0 ? reference : 0;
  }
  return problem;
}

// Shares by unit and column, of an assignment too.
std::map<ShareUnit, std::vector<double>> SharesOf(const PolicyProblem& problem,
                                                  const PolicyResult& result) {
  std::map<ShareUnit, std::vector<double>> shares;
  for (const TypeAssignment& entry : result.assignment) {
    shares[entry.unit].resize(problem.columns());
    shares[entry.unit][entry.type] += 1;
  }
  for (const ShareUnit& unit : result.allocation.units()) {
    shares[unit] = result.allocation.Row(unit);
  }
  return shares;
}

size_t Index(const PolicyProblem& problem, JobId id) {
  size_t m = 0;
  while (m < problem.jobs.size() && problem.jobs[m].id != id) ++m;
  return m;
}

// Steps/s of the unit's job and partner in a column; 0: they can't run there.
std::pair<double, double> UnitThroughputs(const PolicyProblem& problem,
                                          const ShareUnit& unit,
                                          size_t column) {
  const size_t first = Index(problem, unit.job);
  const size_t type = problem.TypeOfColumn(column);
  if (problem.capacity[type] < problem.jobs[first].scale_factor) return {0, 0};
  if (!unit.packed()) return {problem.Row(first)[column], 0};
  const size_t second = Index(problem, unit.partner);
  for (size_t p = 0; p < problem.pairs.size(); ++p) {
    const PolicyPair& pair = problem.pairs[p];
    if (pair.first != first || pair.second != second) continue;
    const std::span<const double> row = problem.PairRow(p);
    if (row[2 * column] <= 0 || row[2 * column + 1] <= 0) return {0, 0};
    return {row[2 * column], row[2 * column + 1]};
  }
  return {0, 0};
}

bool RunsNowhere(const PolicyProblem& problem, size_t m) {
  for (size_t c = 0; c < problem.columns(); ++c) {
    const ShareUnit alone = {problem.jobs[m].id, JobId()};
    if (UnitThroughputs(problem, alone, c).first > 0) return false;
  }
  return true;
}

std::string UsageErrors(const PolicyProblem& problem,
                        const PolicyResult& result) {
  std::string errors;
  std::vector<double> used(problem.types.size(), 0.0);
  std::map<JobId, double> time;
  for (const auto& [unit, row] : SharesOf(problem, result)) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (!(row[c] >= 0)) StrAppend(&errors, "a negative share; ");
      if (row[c] > 0 && UnitThroughputs(problem, unit, c).first <= 0) {
        StrAppend(&errors, "job ", unit.job.value(), " can't run there; ");
      }
      const int gang = problem.jobs[Index(problem, unit.job)].scale_factor;
      used[problem.TypeOfColumn(c)] += gang * row[c];
      time[unit.job] += row[c];
      if (unit.packed()) time[unit.partner] += row[c];
    }
  }
  for (const auto& [job, sum] : time) {
    if (sum <= 1 + kTolerance) continue;
    StrAppend(&errors, "job ", job.value(), " has ", sum, "; ");
  }
  for (size_t j = 0; j < used.size(); ++j) {
    if (used[j] <= problem.capacity[j] * (1 + kTolerance)) continue;
    StrAppend(&errors, problem.types[j], " is given ", used[j], "; ");
  }
  return errors;
}

std::string LeftOutErrors(const PolicyProblem& problem,
                          const PolicyResult& result) {
  std::vector<JobId> left_out;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const JobId id = problem.jobs[m].id;
    const bool nowhere = RunsNowhere(problem, m);
    if (nowhere) left_out.push_back(id);
    if (result.is_assignment || nowhere != result.allocation.Contains(id)) {
      continue;
    }
    return StrCat("job ", id.value(), " is wrongly in the allocation or not");
  }
  return left_out == result.left_out ? "" : "wrong jobs are left out";
}

// Deadlines that can't be met are the only excuse, and are told.
std::string OutcomeErrors(const PolicyResult& result) {
  if (result.outcome == SolveOutcome::kOptimal) return result.detail;
  const bool told = result.detail.find("deadline") != std::string::npos;
  return result.outcome == SolveOutcome::kInfeasible && told ? ""
                                                             : result.detail;
}

std::string CertificateErrors(const PolicyResult& result, bool minimises) {
  if (!std::isfinite(result.objective) || !std::isfinite(result.bound)) {
    return StrCat("objective ", result.objective, ", bound ", result.bound);
  }
  const double sign = minimises ? -1 : 1;
  if (sign * result.objective > sign * result.bound) {
    return StrCat("objective ", result.objective, " beyond its bound ",
                  result.bound);
  }
  const double gap = std::abs(result.bound - result.objective) /
                     std::max(1.0, std::abs(result.bound));
  if (std::abs(gap - result.gap) > 1e-12) return StrCat("gap ", result.gap);
  return gap > 1e-7 ? StrCat("a gap of ", gap) : "";
}

double Isolated(const PolicyProblem& problem, size_t m) {
  const auto jobs = static_cast<double>(problem.jobs.size());
  double throughput = 0;
  for (size_t j = 0; j < problem.types.size(); ++j) {
    throughput += problem.Row(m)[j] * problem.capacity[j] / jobs;
  }
  return throughput;
}

}  // namespace

std::span<const PolicyPromises> AllPromises() { return kPromises; }

PolicyProblem GeneralProblem(uint64_t seed) {
  Random random(seed);
  PolicyProblem problem;
  AddTypes(random, 0, 6, &problem);
  const size_t jobs = 1 + random.Below(9);
  for (size_t m = 0; m < jobs; ++m) {
    PolicyJob job = MakeJob(random, m);
    job.scale_factor = 1 << random.Below(3);
    if (random.OneIn(2)) job.weight = random.Between(0.3, 5);
    if (random.OneIn(6)) job.steps_remaining = 0;
    job.time_since_start_s = random.OneIn(2) ? random.Between(0, 1e5) : 0;
    job.isolated_s = job.time_since_start_s * random.Between(0.1, 1);
    job.time_received_s = job.time_since_start_s * random.Between(0, 1);
    if (random.OneIn(3)) job.deadline_s = random.Between(-1e3, 1e5);
    problem.jobs.push_back(job);
    AddThroughputs(random, /*with_zeros=*/true, &problem);
  }
  AddPairs(random, &problem);
  return problem;
}

PolicyProblem ExtremeProblem(uint64_t seed) {
  PolicyProblem problem = GeneralProblem(seed);
  Random random(~seed);
  const auto orders = [&](double most) {
    return std::pow(10, random.Between(-most, most));
  };
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    PolicyJob& job = problem.jobs[m];
    job.steps_remaining *= orders(3);
    job.time_since_start_s *= orders(3);
    job.isolated_s *= orders(3);
    job.deadline_s *= orders(2);
    job.weight *= orders(1);
    const double speed = orders(2);
    for (size_t c = 0; c < problem.columns(); ++c) {
      problem.throughputs[m * problem.columns() + c] *= speed * orders(0.5);
    }
  }
  problem.pairs.clear();
  problem.pair_throughputs.clear();
  AddPairs(random, &problem);
  return problem;
}

PolicyProblem EqualProblem(uint64_t seed) {
  Random random(seed);
  PolicyProblem problem;
  AddTypes(random, 1, 2, &problem);
  size_t jobs = random.Below(5);
  for (const int count : problem.capacity) jobs += static_cast<size_t>(count);
  for (size_t m = 0; m < jobs; ++m) {
    problem.jobs.push_back(MakeJob(random, m));
    AddThroughputs(random, /*with_zeros=*/false, &problem);
  }
  AddPairs(random, &problem);
  return problem;
}

std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const PolicyResult& result,
                                   PolicyView view) {
  const PolicyProblem seen = Seen(problem, view);
  std::vector<double> throughputs(problem.jobs.size(), 0.0);
  for (const auto& [unit, row] : SharesOf(problem, result)) {
    for (size_t c = 0; c < row.size(); ++c) {
      const auto [first, second] = UnitThroughputs(seen, unit, c);
      throughputs[Index(seen, unit.job)] += first * row[c];
      if (!unit.packed()) continue;
      throughputs[Index(seen, unit.partner)] += second * row[c];
    }
  }
  return throughputs;
}

std::string CheckAnswer(const PolicyProblem& problem,
                        const PolicyResult& result, bool minimises) {
  std::string errors = UsageErrors(problem, result);
  if (errors.empty()) errors = LeftOutErrors(problem, result);
  if (errors.empty()) errors = OutcomeErrors(result);
  if (errors.empty()) errors = CertificateErrors(result, minimises);
  return errors;
}

std::string CheckPareto(const PolicyProblem& problem,
                        const PolicyResult& result, PolicyView view,
                        bool packs) {
  const std::vector<double> has = JobThroughputs(problem, result, view);
  const PolicyProblem seen = Seen(problem, view);
  const ShareProblem shares = MakeShareProblem(seen, {.pairs = packs});
  if (shares.size() == 0) return "";
  const std::vector<double> fastest = LargestThroughputs(shares);
  ShareProgram program(shares);
  double now = 0;
  for (size_t m = 0; m < shares.size(); ++m) {
    const double part = has[shares.jobs[m]] / fastest[m];
    now += part;
    program.AddThroughputRow(m, 1 / fastest[m], {}, part - kGivenUp, kInfinity);
    program.AddThroughputCost(m, 1 / fastest[m], program.lp.column_cost);
  }
  const LpSolution solution =
      HighsSolver(program.lp, {.method = LpMethod::kInteriorPoint}).Solve();
  if (solution.outcome != SolveOutcome::kOptimal) return solution.detail;
  const double more = solution.objective - now;
  return more > kMore ? StrCat("all can have more: in total ", more,
                               " of what jobs have alone")
                      : "";
}

std::string CheckSharingIncentive(const PolicyProblem& problem,
                                  const PolicyResult& result, PolicyView view) {
  const std::vector<double> has = JobThroughputs(problem, result, view);
  const PolicyProblem seen = Seen(problem, view);
  for (size_t m = 0; m < has.size(); ++m) {
    const double isolated = Isolated(seen, m);
    if (has[m] >= isolated * (1 - kEqual)) continue;
    return StrCat("job ", problem.jobs[m].id.value(), " has ", has[m],
                  ", an nth of the cluster gives it ", isolated);
  }
  return "";
}

std::string CheckEnvy(const PolicyProblem& problem, const PolicyResult& result,
                      PolicyView view) {
  const PolicyProblem seen = Seen(problem, view);
  const std::vector<double> has = JobThroughputs(problem, result, view);
  for (size_t m = 0; m < has.size(); ++m) {
    for (const PolicyJob& other : problem.jobs) {
      const std::vector<double> row = result.allocation.Row(other.id);
      double there = 0;
      for (size_t c = 0; c < row.size(); ++c) there += seen.Row(m)[c] * row[c];
      if (there <= has[m] * (1 + kEqual)) continue;
      return StrCat("job ", problem.jobs[m].id.value(), " has ", has[m],
                    ", and would have ", there, " in the place of job ",
                    other.id.value());
    }
  }
  return "";
}

std::string CheckMisreports(const Policy& policy, const PolicyProblem& problem,
                            const PolicyResult& result, PolicyView view,
                            uint64_t seed) {
  Random random(seed);
  const std::vector<double> honest = JobThroughputs(problem, result, view);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    PolicyProblem told = problem;
    for (size_t c = 0; c < problem.columns(); ++c) {
      told.throughputs[m * problem.columns() + c] *= random.Between(0.3, 3);
    }
    const absl::StatusOr<PolicyResult> answer = policy.Solve(told);
    if (!answer.ok()) return std::string(answer.status().message());
    const double gain =
        JobThroughputs(problem, *answer, view)[m] / honest[m] - 1;
    if (gain <= kEqual) continue;
    return StrCat("job ", problem.jobs[m].id.value(), " gains ", gain,
                  " by telling wrong throughputs");
  }
  return "";
}

std::string CheckWorkConserving(const PolicyProblem& problem,
                                const PolicyResult& result) {
  std::vector<int> room = problem.capacity;
  std::vector<bool> runs(problem.jobs.size(), false);
  for (const TypeAssignment& entry : result.assignment) {
    const size_t m = Index(problem, entry.unit.job);
    room[entry.type] -= problem.jobs[m].scale_factor;
    runs[m] = true;
    if (entry.unit.packed()) runs[Index(problem, entry.unit.partner)] = true;
  }
  for (size_t m = 0; m < runs.size(); ++m) {
    for (size_t j = 0; j < room.size(); ++j) {
      if (runs[m] || problem.Row(m)[j] == 0) continue;
      if (room[j] < problem.jobs[m].scale_factor) continue;
      return StrCat("job ", problem.jobs[m].id.value(), " waits, ",
                    problem.types[j], " is free");
    }
  }
  return "";
}

}  // namespace gavel::testing
