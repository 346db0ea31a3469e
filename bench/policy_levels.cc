#include "bench/policy_levels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "bench/table.h"
#include "coordinator/policy/highs_solver.h"
#include "tests/policy/checker.h"

namespace gavel::bench {

using namespace policy;
namespace {

double Accelerators(const PolicyProblem& problem) {
  double all = 0;
  for (const int count : problem.capacity) all += count;
  return all;
}

// With an equal part of the time on each accelerator, steps/s.
double Proportional(const PolicyProblem& problem, size_t m) {
  double rate = 0;
  for (size_t j = 0; j < problem.types.size(); ++j) {
    rate += problem.Row(m)[j] * problem.capacity[j];
  }
  return rate / Accelerators(problem);
}

}  // namespace

double Question::Level(size_t m, double steps_per_s) const {
  if (demand.curve == DemandCurve::kRamp) return steps_per_s / demand.a[m];
  return -(demand.c[m] + demand.a[m] / steps_per_s) / demand.b[m];
}

double Question::Rate(size_t m, double level) const {
  if (demand.curve == DemandCurve::kRamp) return level * demand.a[m];
  const double left_s = -level * demand.b[m] - demand.c[m];
  return left_s > 0 ? demand.a[m] / left_s
                    : std::numeric_limits<double>::infinity();
}

std::vector<double> Fastest(const PolicyProblem& problem) {
  std::vector<double> fastest;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    fastest.push_back(*std::ranges::max_element(problem.Row(m)));
  }
  return fastest;
}

std::vector<double> FairTargets(const PolicyProblem& problem) {
  std::vector<double> targets;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    targets.push_back(job.weight / job.scale_factor * Proportional(problem, m));
  }
  return targets;
}

Question Proportional(const PolicyProblem& problem,
                      std::vector<double> targets) {
  Question question{{DemandCurve::kRamp, std::move(targets), {}, {}},
                    kInfinity};
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    question.level_max =
        std::min(question.level_max,
                 question.Level(m, *std::ranges::max_element(problem.Row(m))));
  }
  return question;
}

Question Finishing(const PolicyProblem& problem) {
  Question question{{DemandCurve::kFinish, {}, {}, {}}, 0};
  const double all = Accelerators(problem);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    const double isolated =
        Proportional(problem, m) *
        std::min(1.0, all / (static_cast<double>(problem.jobs.size()) *
                             job.scale_factor));
    question.demand.a.push_back(job.steps_remaining);
    question.demand.b.push_back(job.isolated_s +
                                job.steps_remaining / isolated);
    question.demand.c.push_back(job.time_since_start_s);
    question.level_max =
        std::min(question.level_max,
                 question.Level(m, *std::ranges::max_element(problem.Row(m))));
  }
  return question;
}

PriceJobs JobsOf(const PolicyProblem& problem) {
  PriceJobs jobs = MakePriceJobs(
      problem.jobs.size(), {problem.capacity.begin(), problem.capacity.end()});
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    jobs.accelerators[m] = problem.jobs[m].scale_factor;
    const std::span<const double> row = problem.Row(m);
    for (size_t j = 0; j < row.size(); ++j) jobs.Throughput(m, j) = row[j];
  }
  return jobs;
}

namespace {

// max t, T_m(X) >= t target_m.
LinearProgram ProgramOf(const PolicyProblem& problem,
                        const Question& question) {
  LinearProgram program;
  const size_t count = problem.types.size();
  std::vector<std::vector<LpEntry>> types(count);
  for (const PolicyJob& job : problem.jobs) {
    for (size_t j = 0; j < count; ++j) {
      const int column = program.AddColumn(0, 0, 1);
      types[j].push_back({column, static_cast<double>(job.scale_factor) /
                                      problem.capacity[j]});
    }
  }
  // Levels of about 1 for the solver.
  const double unit = question.level_max;
  const int level = program.AddColumn(1, 0, kInfinity);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    std::vector<LpEntry> time;
    std::vector<LpEntry> rate;
    for (size_t j = 0; j < count; ++j) {
      const auto column = static_cast<int>(m * count + j);
      time.push_back({column, 1});
      rate.push_back({column, question.Level(m, problem.Row(m)[j]) / unit});
    }
    rate.push_back({level, -1});
    program.AddRow(-kInfinity, 1, time);
    program.AddRow(0, kInfinity, rate);
  }
  for (const std::vector<LpEntry>& row : types) {
    program.AddRow(-kInfinity, 1, row);
  }
  return program;
}

double LeastLevel(const PolicyProblem& problem, const Question& question,
                  std::span<const double> shares) {
  const std::vector<double> rates =
      testing::FittingThroughputs(problem, shares);
  double least = kInfinity;
  for (size_t m = 0; m < rates.size(); ++m) {
    least = std::min(least, question.Level(m, rates[m]));
  }
  return least;
}

}  // namespace

void Verify(const PolicyProblem& problem, const Question& question,
            const PriceLevel& level, std::span<const double> shares,
            Solved* solved) {
  solved->level = LeastLevel(problem, question, shares);
  solved->bound = level.bound;
  // A rounding above the bound: there a job costs more than all that already
  // had all it can have.
  const double above = level.bound + 1e-10 * std::abs(level.bound);
  solved->cost = testing::CheapestCost(
      problem, level.prices, [&](size_t m) { return question.Rate(m, above); });
}

Solved ByPrices(const PolicyProblem& problem, const Question& question) {
  const double start_s = CpuSeconds();
  const PriceJobs jobs = JobsOf(problem);
  PriceDemand demand = question.demand;
  PadDemand(jobs, &demand);
  Solved solved;
  solved.building_s = CpuSeconds() - start_s;
  const PriceLevel level =
      HighestLevel(jobs, demand, question.level_max, kGapMax);
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture);
  solved.seconds = CpuSeconds() - start_s;
  Verify(problem, question, level, shares, &solved);
  return solved;
}

namespace {

Solved ByMethod(const PolicyProblem& problem, const Question& question,
                LpMethod method, double seconds_max) {
  const double start_s = CpuSeconds();
  const LinearProgram program = ProgramOf(problem, question);
  HighsSolver solver(program, {.method = method, .seconds_max = seconds_max});
  const LpSolution solution = solver.Solve();
  Solved solved;
  solved.seconds = CpuSeconds() - start_s;
  if (solution.outcome == SolveOutcome::kOptimal) {
    solved.level = LeastLevel(problem, question, solution.column_values);
  }
  return solved;
}

}  // namespace

Solved ByHighs(const PolicyProblem& problem, const Question& question) {
  struct {
    LpMethod method;
    const char* name;
  } constexpr kMethods[] = {
      {LpMethod::kInteriorPoint, "interior point"},
      {LpMethod::kSimplex, "primal simplex"},
      {LpMethod::kPresolvedDual, "dual simplex after presolve"}};
  Solved best;
  LpMethod fastest = LpMethod::kAutomatic;
  for (const auto& [method, name] : kMethods) {
    const bool found = best.level > 0;
    // Another is stopped where it is slower. Its clock is the wall's: as long
    // again for what else runs.
    const double seconds_max =
        found ? std::clamp(2 * best.seconds, 0.01, kHighsSeconds)
              : kHighsSeconds;
    const Solved run = ByMethod(problem, question, method, seconds_max);
    std::printf("  HiGHS, %s: %.2f ms%s\n", name, run.seconds * 1e3,
                run.level > 0 ? "" : ", stopped");
    if (best.seconds == 0 ||
        (run.level > 0 && (!found || run.seconds < best.seconds))) {
      best = run;
      fastest = method;
    }
  }
  if (best.level <= 0 || problem.jobs.size() > kHighsMedianJobs) return best;
  return MedianOf(
      [&] { return ByMethod(problem, question, fastest, kHighsSeconds); });
}

}  // namespace gavel::bench
