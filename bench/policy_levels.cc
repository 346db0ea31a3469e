#include "bench/policy_levels.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "bench/policy_checks.h"
#include "bench/table.h"
#include "coordinator/policy/lp/highs_solver.h"

namespace gavel::bench {

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

Question Proportional(const Arrays& arrays) {
  return {{DemandCurve::kRamp, arrays.target, {}, {}}, LevelMax(arrays)};
}

Question Finishing(const Arrays& arrays, const PolicyProblem& problem) {
  Question question{{DemandCurve::kFinish, {}, {}, {}}, 0};
  double all = 0;
  for (const double one : arrays.capacity) all += one;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const PolicyJob& job = problem.jobs[m];
    double isolated = 0;
    for (size_t j = 0; j < arrays.types; ++j) {
      isolated +=
          arrays.throughputs[m * arrays.types + j] * arrays.capacity[j] / all;
    }
    isolated *= std::min(
        1.0, all / (static_cast<double>(arrays.jobs) * arrays.gang[m]));
    question.demand.a.push_back(job.steps_remaining);
    question.demand.b.push_back(job.isolated_s +
                                job.steps_remaining / isolated);
    question.demand.c.push_back(job.time_since_start_s);
    question.level_max =
        std::min(question.level_max, question.Level(m, arrays.fastest[m]));
  }
  return question;
}

PriceOptions OfBench() {
  PriceOptions options;
  options.gap_max = kGapMax;
  return options;
}

void Verify(const Arrays& arrays, const Question& question,
            const PriceLevel& level, std::span<const double> shares,
            Solved* solved) {
  solved->level = LeastValue(arrays, shares, [&](size_t m, double rate) {
    return question.Level(m, rate);
  });
  solved->bound = level.bound;
  // A rounding above the bound: there a job costs more than all that already
  // had all it can have.
  const double above = level.bound + kRounding * std::abs(level.bound);
  solved->cost = LeastCost(arrays, level.prices,
                           [&](size_t m) { return question.Rate(m, above); });
}

Solved ByPrices(const Arrays& arrays, const Question& question) {
  const double start_s = CpuSeconds();
  const PriceJobs jobs = JobsOf(arrays);
  PriceDemand demand = question.demand;
  PadDemand(jobs, &demand);
  Solved solved;
  solved.building_s = CpuSeconds() - start_s;
  const PriceLevel level =
      HighestLevel(jobs, demand, question.level_max, OfBench());
  const std::vector<double> shares =
      SharesOf(jobs, PassOf(jobs, demand), level.mixture, OfBench().version);
  solved.seconds = CpuSeconds() - start_s;
  Verify(arrays, question, level, shares, &solved);
  return solved;
}

void VerifyClasses(const Arrays& arrays, const PriceClasses& classes,
                   std::span<const size_t> class_of, const PriceLevel& level,
                   Solved* solved) {
  std::vector<double> shares;
  for (size_t m = 0; m < arrays.jobs; ++m) {
    const std::vector<double> row =
        classes.Shares({class_of[m], arrays.target[m]}, level.mixture);
    shares.insert(shares.end(), row.begin(), row.end());
  }
  Verify(arrays, Proportional(arrays), level, shares, solved);
}

namespace {

Solved ByMethod(const Arrays& arrays, LpMethod method, double seconds_max) {
  const double start_s = CpuSeconds();
  const LinearProgram program = ProgramOf(arrays);
  HighsSolver solver(program, {.method = method, .seconds_max = seconds_max});
  const LpSolution solution = solver.Solve();
  Solved solved;
  solved.seconds = CpuSeconds() - start_s;
  if (solution.outcome == SolveOutcome::kOptimal) {
    const Question question = Proportional(arrays);
    solved.level = LeastValue(
        arrays, solution.column_values,
        [&](size_t m, double rate) { return question.Level(m, rate); });
  }
  return solved;
}

}  // namespace

Solved ByHighs(const Arrays& arrays) {
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
    const Solved run = ByMethod(arrays, method, seconds_max);
    std::printf("  HiGHS, %s: %.2f ms%s\n", name, run.seconds * 1e3,
                run.level > 0 ? "" : ", stopped");
    if (best.seconds == 0 ||
        (run.level > 0 && (!found || run.seconds < best.seconds))) {
      best = run;
      fastest = method;
    }
  }
  if (best.level <= 0 || arrays.jobs > kHighsMedianJobs) return best;
  return MedianOf([&] { return ByMethod(arrays, fastest, kHighsSeconds); });
}

}  // namespace gavel::bench
