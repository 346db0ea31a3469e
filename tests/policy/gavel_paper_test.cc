// Statements of Gavel (Narayanan et al., OSDI'20), section 4.1: max-min
// fairness as an optimisation problem. Each test is one of them.

#include "coordinator/policy/policy.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// Least attained service is max-min fairness over the accelerator hours that
// jobs have consumed: with equal jobs, equal time, whatever their throughputs.
TEST(GavelPaper41, LeastAttainedServiceSharesAcceleratorTimeEqually) {
  const PolicyProblem problem = MakeProblem({2}, {{5}, {1}, {30}, {2}});
  const PolicyResult result = Solved("max_min_fairness", problem);
  for (const PolicyJob& job : problem.jobs) {
    EXPECT_NEAR(result.allocation.Row(job.id)[0], 0.5, 1e-8);
  }
}

// With weights w_m it is weighted max-min fairness.
TEST(GavelPaper41, AJobOfTwiceTheWeightGetsTwiceTheTime) {
  PolicyProblem problem = MakeProblem({1}, {{5}, {5}});
  problem.jobs[1].weight = 2;
  const PolicyResult result = Solved("max_min_fairness", problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 1.0 / 3, 1e-8);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 2.0 / 3, 1e-8);
}

// Throughputs of different models do not compare: they are divided by
// throughput(m, X^equal), that of an equal time share on each accelerator.
TEST(GavelPaper41, ThroughputsAreNormalisedSoUnitsDoNotMatter) {
  PolicyProblem problem =
      MakeProblem({1, 1, 1}, {{4, 2, 1}, {3, 2, 1}, {5, 4, 3}});
  const double objective = Solved("max_min_fairness_perf", problem).objective;
  for (size_t j = 0; j < 3; ++j) problem.throughputs[j] *= 1000;
  EXPECT_NEAR(Solved("max_min_fairness_perf", problem).objective, objective,
              1e-8);
}

// Three jobs on one V100, one P100 and one K80: every job gets a higher
// throughput than with 1/n of the time on each accelerator (n = 3), the
// isolated allocation.
TEST(GavelPaper41, EveryJobGainsOverTheIsolatedAllocation) {
  const PolicyProblem problem =
      MakeProblem({1, 1, 1}, {{40, 20, 10}, {12, 8, 4}, {100, 50, 2}});
  const PolicyResult result = Solved("max_min_fairness_perf", problem);
  for (size_t m = 0; m < 3; ++m) {
    double isolated = 0;
    for (const double steps_per_s : problem.Row(m)) isolated += steps_per_s / 3;
    EXPECT_GT(JobThroughputs(problem, result.allocation, false)[m],
              1.02 * isolated);
  }
}

// Jobs that need several workers: the objective is multiplied by
// scale_factor_m, so that a gang gets the same accelerator time as others, not
// the same wall-clock time.
TEST(GavelPaper41, AGangOfTwoGetsHalfTheTimeOnTwiceTheAccelerators) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {1}, {1}, {1}, {2}});
  problem.jobs[4].scale_factor = 2;
  const PolicyResult result = Solved("max_min_fairness_perf", problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.4, 1e-8);
  EXPECT_NEAR(result.allocation.Row(JobId(5))[0], 0.2, 1e-8);
}

// Section 2: heterogeneity-aware allocations leave the fast type to the jobs
// that gain most from it, and all of them gain.
TEST(GavelPaper41, TheSlowTypeGoesToWhoLosesLeastOnIt) {
  const PolicyProblem problem =
      MakeProblem({1, 1}, {{10, 1}, {10, 1}, {2, 1.9}, {2, 1.9}});
  const PolicyResult result = Solved("max_min_fairness_perf", problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[1], 0, 1e-8);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[1], 0, 1e-8);
  EXPECT_GT(result.objective, 0.6);  // 0.5 with equal shares
}

// Being aware of throughputs never lowers the least normalised throughput.
TEST(GavelPaper41, BeingAwareNeverHurtsTheWorstOff) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const PolicyProblem problem = RandomProblem(seed, 25);
    const PolicyResult aware = Solved("max_min_fairness_perf", problem);
    const PolicyResult agnostic = Solved("max_min_fairness", problem);
    if (aware.allocation.units().empty()) continue;
    EXPECT_GE(aware.objective,
              LeastValue(JobValues(problem, agnostic.allocation, false)) *
                  (1 - 1e-7));
  }
}

}  // namespace
}  // namespace gavel::testing
