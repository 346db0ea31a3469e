// Checks every named policy for its promises on random problems. A new policy
// is one line in the table.
#include <ostream>
#include <random>
#include <string_view>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "core/text.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

// The throughputs that a policy compares: the real ones, none (all time counts
// alike), or those of one type.
enum class PolicyView : uint8_t { kReal, kTime, kReferenceType };

struct PolicyPromises {
  std::string_view name;
  PolicyView view = PolicyView::kReal;
  // The policy minimises its objective, and the bound lies below it.
  bool minimises = false;
  // No allocation gives all jobs as much and one of them more.
  bool pareto = false;
  // `pareto` holds only without gangs: a gang leaves time unused that other
  // jobs could need.
  bool limits_gangs = false;
  // Each job has at least what an nth of the cluster would give it. This is
  // promised for equal jobs of one accelerator, if there are at least as many
  // jobs as accelerators.
  bool sharing_incentive = false;
  // No job would rather have another one's accelerators, under the same
  // conditions.
  bool envy_free = false;
  // No job gains by reporting wrong throughputs, under the same conditions.
  bool strategy_proof = false;
  // No job waits for accelerators that are free and that it could use.
  bool work_conserving = false;
};

// Makes GoogleTest print a policy's name.
inline void PrintTo(const PolicyPromises& promises, std::ostream* stream) {
  *stream << promises.name;
}

constexpr PolicyView kTime = PolicyView::kTime;
constexpr PolicyView kReferenceType = PolicyView::kReferenceType;

// The promises of each policy. A policy with no further promise still gives a
// feasible answer, leaves out exactly the jobs that fit nowhere, gives the same
// answer again, and gives a bound that holds.
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
    {.name = "gandiva_reactive"},
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
    {.name = "optimus", .work_conserving = true},
    {.name = "priority", .work_conserving = true},
    {.name = "proportional",
     .sharing_incentive = true,
     .envy_free = true,
     .strategy_proof = true},
    {.name = "sjf", .work_conserving = true},
    {.name = "slaq", .work_conserving = true},
    {.name = "srtf", .work_conserving = true},
    {.name = "strategy_proof", .view = kTime, .strategy_proof = true},
    {.name = "strategy_proof_perf", .strategy_proof = true},
    {.name = "strawman", .work_conserving = true},
    {.name = "themis", .work_conserving = true},
    {.name = "tiresias", .work_conserving = true},
    {.name = "tiresias_gittins", .work_conserving = true},
};

// The part of its fastest throughput that each job may lose in the search for a
// better allocation. The solver needs this room.
constexpr double kGivenUp = 1e-9;
// Gains up to this, summed over jobs, can come from that room and from the
// solver's tolerances.
constexpr double kMore = 1e-5;

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

// [n] steps/s of all jobs, as `view` sees them.
std::vector<double> ThroughputsSeen(const PolicyProblem& problem,
                                    const PolicyResult& result,
                                    PolicyView view) {
  return JobThroughputs(Seen(problem, view), AllocationOf(problem, result),
                        false);
}

size_t JobIndex(const PolicyProblem& problem, JobId id) {
  return static_cast<size_t>(
      std::ranges::find(problem.jobs, id, &PolicyJob::id) -
      problem.jobs.begin());
}

double Isolated(const PolicyProblem& problem, size_t m) {
  const auto jobs = static_cast<double>(problem.jobs.size());
  double throughput = 0;
  for (size_t j = 0; j < problem.types.size(); ++j) {
    throughput += problem.Row(m)[j] * problem.capacity[j] / jobs;
  }
  return throughput;
}

std::string CheckPareto(const PolicyProblem& problem,
                        const PolicyResult& result, PolicyView view,
                        bool packs) {
  const std::vector<double> has = ThroughputsSeen(problem, result, view);
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
  const std::vector<double> has = ThroughputsSeen(problem, result, view);
  const PolicyProblem seen = Seen(problem, view);
  for (size_t m = 0; m < has.size(); ++m) {
    const double isolated = Isolated(seen, m);
    if (has[m] >= isolated * (1 - kOptimality)) continue;
    return StrCat("job ", problem.jobs[m].id.value(), " has ", has[m],
                  ", an nth of the cluster gives it ", isolated);
  }
  return "";
}

std::string CheckEnvy(const PolicyProblem& problem, const PolicyResult& result,
                      PolicyView view) {
  const PolicyProblem seen = Seen(problem, view);
  const std::vector<double> has = ThroughputsSeen(problem, result, view);
  for (size_t m = 0; m < has.size(); ++m) {
    for (const PolicyJob& other : problem.jobs) {
      const std::vector<double> row = result.allocation.Row(other.id);
      double there = 0;
      for (size_t c = 0; c < row.size(); ++c) there += seen.Row(m)[c] * row[c];
      if (there <= has[m] * (1 + kOptimality)) continue;
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
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> part(0.3, 3);
  const std::vector<double> honest = ThroughputsSeen(problem, result, view);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    PolicyProblem told = problem;
    for (size_t c = 0; c < problem.columns(); ++c) {
      told.throughputs[m * problem.columns() + c] *= part(random);
    }
    const absl::StatusOr<PolicyResult> answer = policy.Solve(told);
    if (!answer.ok()) return std::string(answer.status().message());
    const double gain =
        ThroughputsSeen(problem, *answer, view)[m] / honest[m] - 1;
    if (gain <= kOptimality) continue;
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
    const size_t m = JobIndex(problem, entry.unit.job);
    room[entry.type] -= problem.jobs[m].scale_factor;
    runs[m] = true;
    if (entry.unit.packed()) runs[JobIndex(problem, entry.unit.partner)] = true;
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

// New jobs of one accelerator and equal weights on types that all can use, at
// least as many as there are accelerators.
PolicyProblem EqualProblem(uint64_t seed) {
  PolicyProblem problem = RandomProblem(seed, {.types_min = 3,
                                               .types_max = 3,
                                               .jobs_max = 4,
                                               .capacity_min = 1,
                                               .capacity_more = 1,
                                               .crowded = true,
                                               .gang_log_max = 0,
                                               .weights = false,
                                               .unusable = false,
                                               .pairs = true});
  for (PolicyJob& job : problem.jobs) {
    job.time_since_start_s = job.isolated_s = job.time_received_s = 0;
  }
  return problem;
}

PolicyProblem WideProblem(uint64_t seed) {
  ProblemShape shape = SmallShape();
  shape.wide = true;
  return RandomProblem(seed, shape);
}

constexpr uint64_t kGeneralProblems = 150;
constexpr uint64_t kWideProblems = 100;
constexpr uint64_t kEqualProblems = 40;

std::string NameOf(const ::testing::TestParamInfo<PolicyPromises>& promises) {
  return std::string(promises.param.name);
}

class Promises : public ::testing::TestWithParam<PolicyPromises> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(policy_, MakePolicy(GetParam().name));
  }
  PolicyResult Solve(const PolicyProblem& problem) const {
    absl::StatusOr<PolicyResult> result = policy_->Solve(problem);
    EXPECT_OK(result.status());
    return result.ok() ? *std::move(result) : PolicyResult();
  }
  // Run `check` on a family of problems. It returns an error, or "".
  template <class Check>
  void OnGeneralProblems(Check check) const {
    for (uint64_t seed = 0; seed < kGeneralProblems; ++seed) {
      const PolicyProblem problem = RandomProblem(seed, SmallShape());
      ASSERT_EQ(check(problem, Solve(problem)), "") << "general, seed " << seed;
    }
  }
  template <class Check>
  void OnWideProblems(Check check) const {
    for (uint64_t seed = 0; seed < kWideProblems; ++seed) {
      const PolicyProblem problem = WideProblem(seed);
      ASSERT_EQ(check(problem, Solve(problem)), "") << "wide, seed " << seed;
    }
  }
  template <class Check>
  void OnEqualProblems(Check check) const {
    for (uint64_t seed = 0; seed < kEqualProblems; ++seed) {
      const PolicyProblem problem = EqualProblem(seed);
      ASSERT_EQ(check(problem, Solve(problem)), "") << "equal, seed " << seed;
    }
  }

  std::unique_ptr<Policy> policy_;
};

TEST_P(Promises, AnswersAreFeasibleAndTheirBoundsHold) {
  const auto check = [&](const PolicyProblem& problem,
                         const PolicyResult& result) {
    return AnswerErrors(problem, result, GetParam().minimises);
  };
  OnGeneralProblems(check);
  OnWideProblems(check);
  OnEqualProblems(check);
}

TEST_P(Promises, TheSameProblemHasTheSameAnswer) {
  OnGeneralProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        const PolicyResult again = Solve(problem);
        const PolicyView view = PolicyView::kReal;
        return ThroughputsSeen(problem, again, view) ==
                           ThroughputsSeen(problem, result, view) &&
                       again.assignment == result.assignment &&
                       again.objective == result.objective
                   ? ""
                   : "another answer";
      });
}

// The policies of the table that make `promise`.
std::vector<PolicyPromises> ThosePromising(bool PolicyPromises::*promise) {
  std::vector<PolicyPromises> those;
  for (const PolicyPromises& promises : kPromises) {
    if (promises.*promise) those.push_back(promises);
  }
  return those;
}

class ParetoPromise : public Promises {};
TEST_P(ParetoPromise, NoAllocationIsBetterForAll) {
  const auto check = [&](const PolicyProblem& problem,
                         const PolicyResult& result) {
    if (!GetParam().limits_gangs) {
      return CheckPareto(problem, result, GetParam().view, policy_->packs());
    }
    PolicyProblem alone = problem;
    for (PolicyJob& job : alone.jobs) job.scale_factor = 1;
    return CheckPareto(alone, Solve(alone), GetParam().view, policy_->packs());
  };
  OnGeneralProblems(check);
  OnEqualProblems(check);
}

class SharingIncentivePromise : public Promises {};
TEST_P(SharingIncentivePromise, EachJobHasWhatAnNthOfTheClusterGives) {
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckSharingIncentive(problem, result, GetParam().view);
      });
}

class EnvyFreePromise : public Promises {};
TEST_P(EnvyFreePromise, NoJobWouldRatherBeAnother) {
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckEnvy(problem, result, GetParam().view);
      });
}

class StrategyProofPromise : public Promises {};
TEST_P(StrategyProofPromise, WrongThroughputsGainNothing) {
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckMisreports(*policy_, problem, result, GetParam().view,
                               /*seed=*/problem.jobs.size());
      });
}

class WorkConservingPromise : public Promises {};
TEST_P(WorkConservingPromise, NoJobWaitsForWhatIsFree) {
  OnGeneralProblems(CheckWorkConserving);
  OnEqualProblems(CheckWorkConserving);
}

INSTANTIATE_TEST_SUITE_P(Policies, Promises, ::testing::ValuesIn(kPromises),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    Policies, ParetoPromise,
    ::testing::ValuesIn(ThosePromising(&PolicyPromises::pareto)), NameOf);
INSTANTIATE_TEST_SUITE_P(
    Policies, SharingIncentivePromise,
    ::testing::ValuesIn(ThosePromising(&PolicyPromises::sharing_incentive)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Policies, EnvyFreePromise,
    ::testing::ValuesIn(ThosePromising(&PolicyPromises::envy_free)), NameOf);
INSTANTIATE_TEST_SUITE_P(
    Policies, StrategyProofPromise,
    ::testing::ValuesIn(ThosePromising(&PolicyPromises::strategy_proof)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Policies, WorkConservingPromise,
    ::testing::ValuesIn(ThosePromising(&PolicyPromises::work_conserving)),
    NameOf);

TEST(PromisesTable, EveryPolicyHasALine) {
  std::vector<std::string> names;
  for (const PolicyPromises& promises : kPromises) {
    names.emplace_back(promises.name);
  }
  EXPECT_EQ(names, PolicyNames());
}

}  // namespace
}  // namespace gavel::testing
