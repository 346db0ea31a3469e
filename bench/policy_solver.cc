// Measures how fast the price method finds allocations, against HiGHS on the
// same linear program: from the same arrays in memory to a feasible X, on one
// core, both in one run. The time of the price method includes its own
// preparation (jobs in blocks, classes), which is also shown separately. Then
// it measures whole policies with each solver. All times are processor time.
// Code of neither solver verifies the results (tests/policy/checker.h). If a
// gap is too large or a value differs from that of HiGHS, the program exits
// with code 3.
//
// HiGHS is stopped after kHighsSeconds (policy_levels.h). Its row says so, and
// the ratio is then a lower bound.
//
//   bench_policy_solver [--out FILE.json] [--jobs-max N] [--check]
//
// --jobs-max N measures no problem of more than N jobs. --check verifies the
// results but does not judge the times.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "bench/policy_levels.h"
#include "bench/table.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_water.h"
#include "core/text.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"

namespace gavel::bench {

using namespace policy;
namespace {

constexpr double kPolicyGapMax = 1e-6;
// Relative differences allowed between solvers, for an objective and for one
// job's rate.
constexpr double kAgreeMax = 1e-6;
constexpr double kRatesAgreeMax = 1e-6;
// When HiGHS takes this long for a policy, it does not get the next size, which
// has ten times the jobs.
constexpr double kPolicySeconds = 0.6;
// HiGHS verifies results without a timed peer for at most this many jobs.
constexpr size_t kRefereeJobs = 1000;
constexpr size_t kSizes[] = {100, 1000, 10'000, 100'000, 1'000'000};

struct Options {
  std::string out;
  size_t jobs_max = 1'000'000;
  bool check = false;
};

// The results. Add prints each row at once.
struct Findings {
  std::vector<Row> rows;
  Checks checks;

  void Add(Row row) { bench::Add(&rows, std::move(row)); }
};

std::vector<size_t> SizesUpTo(size_t jobs_max) {
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  std::erase_if(sizes, [&](size_t jobs) { return jobs > jobs_max; });
  return sizes;
}

void SetPeer(const Solved& highs, Row* row) {
  row->peer = highs.level > 0 ? "HiGHS" : "HiGHS, stopped";
  row->peer_value = highs.seconds * 1e3;
}

void Check(const std::string& what, const Solved& prices, const Solved& highs,
           Checks* checks) {
  checks->Certified(what, prices.level, prices.bound, prices.cost, kGapMax);
  if (highs.level > 0) {
    checks->Agree(what + ", HiGHS", highs.level, prices.level, kAgreeMax);
  }
}

// Far fewer accelerators than jobs: at most about one for every ten jobs, plus
// 8 of each type.
testing::ProblemShape Crowded(size_t jobs, size_t types) {
  return {.types_min = types,
          .types_max = types,
          .jobs_min = jobs,
          .jobs_max = jobs,
          .capacity_min = 8 + static_cast<int>(jobs / 50 / types),
          .capacity_more = 0,
          .capacity_per_job = 0.08 / static_cast<double>(types)};
}

PolicyProblem CrowdedProblem(size_t jobs, size_t types) {
  PolicyProblem problem =
      testing::RandomProblem(jobs + types, Crowded(jobs, types));
  // Every job can use the first type.
  for (size_t m = 0; m < jobs; ++m) {
    double& first = problem.throughputs[m * types];
    first = first > 0 ? first : 1;
  }
  return problem;
}

std::string Jobs(std::string_view what, size_t jobs) {
  return StrCat(what, ", ", jobs, " jobs");
}

void MaxMin(const Options& options, Findings* findings) {
  double highs_1e4_ms = 0;
  for (const size_t jobs : SizesUpTo(options.jobs_max)) {
    const PolicyProblem problem = CrowdedProblem(jobs, 5);
    const Question question = Proportional(problem, FairTargets(problem));
    const Solved prices = MedianOf([&] { return ByPrices(problem, question); });
    Row row{Jobs("max-min", jobs), prices.seconds * 1e3, "ms"};
    Solved highs;
    if (jobs <= 100'000) {
      highs = ByHighs(problem, question);
      SetPeer(highs, &row);
    } else {
      row.peer = "HiGHS, 10000 jobs";
      row.peer_value = highs_1e4_ms;
      row.goal = AtMost(1);
    }
    if (jobs == 10'000) highs_1e4_ms = row.peer_value;
    if (jobs == 100'000) row.goal = AtMost(1.0 / 300);
    Check(row.name, prices, highs, &findings->checks);
    findings->Add(std::move(row));
    if (jobs == 1'000'000) {
      findings->Add(
          {"  building of its blocks", prices.building_s * 1e3, "ms"});
    }
  }
}

void Memory(const Options& options, Findings* findings) {
  if (options.jobs_max < 1'000'000) return;
  constexpr size_t kJobs = 1'000'000;
  const PolicyProblem problem = CrowdedProblem(kJobs, 10);
  const Solved prices =
      ByPrices(problem, Proportional(problem, FairTargets(problem)));
  const std::string name = Jobs("max-min, 10 types", kJobs);
  Check(name, prices, {}, &findings->checks);
  findings->Add({name, prices.seconds * 1e3, "ms", "", 0, ValueAtMost(2000)});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  findings->Add({"  peak memory with its input",
                 static_cast<double>(usage.ru_maxrss) / 1024, "MiB", "", 0,
                 ValueAtMost(400)});
}

// Makespan over few kinds of jobs.
void Makespan(const Options& options, Findings* findings) {
  for (const size_t jobs : SizesUpTo(options.jobs_max)) {
    testing::ProblemShape shape = Crowded(jobs, 3);
    shape.kinds = 83;  // as many as the published table has
    shape.weights = shape.unusable = false;
    const PolicyProblem problem = testing::RandomProblem(jobs, shape);
    std::vector<double> steps;
    for (const PolicyJob& job : problem.jobs) {
      steps.push_back(job.steps_remaining);
    }
    const Question question = Proportional(problem, std::move(steps));
    const Solved prices = MedianOf([&] { return ByPrices(problem, question); });
    Row row{Jobs("makespan, 83 kinds", jobs), prices.seconds * 1e3, "ms"};
    Solved highs;
    if (jobs <= kHighsMedianJobs) {
      highs = ByHighs(problem, question);
      SetPeer(highs, &row);
    }
    if (jobs == 10'000) row.goal = AtMost(1.0 / 500);
    Check(row.name, prices, highs, &findings->checks);
    findings->Add(std::move(row));
  }
}

PolicyResult Demanded(absl::StatusOr<PolicyResult> result,
                      std::string_view policy) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s: %s\n", std::string(policy).c_str(),
               result.status().ToString().c_str());
  std::exit(2);
}

// The policy's result with HiGHS as its only solver.
PolicyResult Referee(const char* policy, PolicyProblem problem) {
  problem.solver = SolverChoice::kHighs;
  return Demanded((*MakePolicy(policy))->Solve(problem), policy);
}

void FinishTime(const Options& options, Findings* findings) {
  for (const size_t jobs : SizesUpTo(options.jobs_max)) {
    const PolicyProblem problem = CrowdedProblem(jobs, 5);
    const Question question = Finishing(problem);
    const Solved prices = MedianOf([&] { return ByPrices(problem, question); });
    Row row{Jobs("finish-time fairness", jobs), prices.seconds * 1e3, "ms"};
    if (jobs == 1'000'000) row.goal = ValueAtMost(1000);
    Check(row.name, prices, {}, &findings->checks);
    if (jobs <= kRefereeJobs) {
      findings->checks.Agree(
          row.name + ", HiGHS",
          -Referee("finish_time_fairness_perf", problem).objective,
          prices.level, kAgreeMax);
    }
    findings->Add(std::move(row));
  }
}

// Verifies the first level, the stages, and, where HiGHS is quick enough, the
// rate of every job.
void CheckWater(const std::string& name, const PolicyProblem& problem,
                const PriceWater& water, Checks* checks) {
  const Question question = Proportional(problem, FairTargets(problem));
  const PriceJobs jobs = JobsOf(problem);
  PriceDemand demand = question.demand;
  PadDemand(jobs, &demand);
  const PriceLevel first =
      HighestLevel(jobs, demand, question.level_max, kGapMax);
  Solved solved;
  Verify(problem, question, first, water.shares, &solved);
  Check(name + ", first level", solved, {}, checks);
  checks->Holds(name + ", all stages proved", water.converged);
  checks->Holds(name + ", at most a stage for each type",
                water.stages <= static_cast<int>(jobs.types));
  if (jobs.size > kRefereeJobs) return;
  const std::vector<double> ours =
      testing::FittingThroughputs(problem, water.shares);
  const std::vector<double> highs = testing::FittingThroughputs(
      problem,
      testing::SharesOf(
          Referee("max_min_fairness_water_filling_perf", problem).allocation,
          problem));
  double worst = 0;
  for (size_t m = 0; m < ours.size(); ++m) {
    worst = std::max(worst, std::abs(highs[m] / ours[m] - 1));
  }
  checks->Agree(name + ", HiGHS, the rate that differs most", 1 + worst, 1,
                kRatesAgreeMax);
}

void WaterFilling(const Options& options, Findings* findings) {
  for (const bool tiers : {false, true}) {
    for (const size_t jobs : SizesUpTo(options.jobs_max)) {
      PolicyProblem problem = CrowdedProblem(jobs, 5);
      if (tiers) testing::RestrictToTiers(&problem);
      const std::vector<double> targets = FairTargets(problem);
      const std::vector<double> fastest = Fastest(problem);
      PriceWater water;
      const Solved prices = MedianOf([&] {
        Solved solved;
        const double start_s = CpuSeconds();
        water = FillByPrices(JobsOf(problem), targets, fastest);
        solved.seconds = CpuSeconds() - start_s;
        return solved;
      });
      const bool goal = jobs == 100'000;
      Row row{Jobs(tiers ? "water filling, tiers" : "water filling", jobs),
              prices.seconds * 1e3, "ms"};
      if (goal) row.goal = ValueAtMost(500);
      CheckWater(row.name, problem, water, &findings->checks);
      if (tiers && jobs > 100) {
        findings->checks.Holds(row.name + ", several stages", water.stages > 2);
      }
      findings->Add(std::move(row));
      findings->Add({"  its stages", static_cast<double>(water.stages), "", "",
                     0, goal ? ValueAtMost(5) : Goal()});
    }
  }
}

// A policy's answer, and the median of the processor times of its runs.
struct PolicyRun {
  PolicyResult result;
  double ms = 0;
};
PolicyRun Timed(const Policy& policy, const PolicyProblem& problem, int runs) {
  PolicyRun run;
  std::vector<double> ms;
  for (int i = 0; i < runs; ++i) {
    const double start_s = CpuSeconds();
    auto result = policy.Solve(problem);
    ms.push_back((CpuSeconds() - start_s) * 1e3);
    run.result = Demanded(std::move(result), policy.name());
  }
  run.ms = Median(ms);
  return run;
}

// Times a whole policy, from a problem to a result. With `placed`, the problem
// has servers that gangs do not fill.
void WholePolicy(const std::string& name, const Options& options, bool placed,
                 Findings* findings) {
  const std::unique_ptr<Policy> policy = *MakePolicy(name);
  double highs_ms = 0;
  for (const size_t jobs : {100, 1000, 10'000, 100'000, 1'000'000}) {
    if (jobs > options.jobs_max) break;
    testing::ProblemShape shape = Crowded(jobs, 5);
    shape.servers = placed;
    PolicyProblem problem = testing::RandomProblem(jobs + 5, shape);
    problem.solver = SolverChoice::kPrices;
    const PolicyRun prices = Timed(*policy, problem, 3);
    Row row{Jobs(placed ? name + ", servers" : name, jobs), prices.ms, "ms"};
    if (prices.result.outcome != SolveOutcome::kOptimal) {
      row.name += " (not proved)";
    }
    Checks& checks = findings->checks;
    if (!placed) {  // these checks know only types
      checks.Holds(
          row.name + ", X fits",
          testing::Excess(problem, testing::SharesOf(prices.result.allocation,
                                                     problem)) <= 1 + 1e-9);
    }
    checks.Agree(row.name + ", its bound", prices.result.objective,
                 prices.result.bound, kPolicyGapMax);
    if (highs_ms < kPolicySeconds * 1e3) {
      problem.solver = SolverChoice::kHighs;
      const PolicyRun highs =
          Timed(*policy, problem, jobs <= kHighsMedianJobs ? 3 : 1);
      highs_ms = highs.ms;
      if (highs.result.outcome == SolveOutcome::kOptimal) {
        row.peer = "HiGHS";
        row.peer_value = highs.ms;
        checks.Agree(row.name + ", HiGHS", highs.result.objective,
                     prices.result.objective, kAgreeMax);
      }
    }
    findings->Add(std::move(row));
  }
}

Options Parse(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--out", &options.out},
             {"--jobs-max", &options.jobs_max},
             {"--check", &options.check}});
  if (options.jobs_max < kSizes[0]) Die("--jobs-max is 100 or more");
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const Options options = Parse(argc, argv);
  Findings findings;
  // Memory runs first, because the peak that it reads counts everything that
  // the process has done before.
  Memory(options, &findings);
  MaxMin(options, &findings);
  Makespan(options, &findings);
  FinishTime(options, &findings);
  WaterFilling(options, &findings);
  for (const char* policy :
       {"max_min_fairness_perf", "min_total_duration_perf",
        "finish_time_fairness_perf", "max_min_fairness_water_filling_perf",
        "max_sum_throughput_perf", "max_throughput_per_cost"}) {
    WholePolicy(policy, options, /*placed=*/false, &findings);
  }
  for (const char* policy :
       {"max_min_fairness_perf", "finish_time_fairness_perf",
        "max_min_fairness_water_filling_perf"}) {
    WholePolicy(policy, options, /*placed=*/true, &findings);
  }
  std::printf("\n");
  const int code = Report(findings.rows, options.out);
  if (findings.checks.wrong() > 0) {
    std::fprintf(stderr, "%d of what was found is wrong: see WRONG above\n",
                 findings.checks.wrong());
    return 3;
  }
  return options.check ? 0 : code;
}
