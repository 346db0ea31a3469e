#include <cmath>

#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// Equal jobs of 1000 steps that have just started.
PolicyProblem Jobs(std::vector<int> capacity,
                   const std::vector<std::vector<double>>& throughputs) {
  PolicyProblem problem = MakeProblem(std::move(capacity), throughputs);
  for (PolicyJob& job : problem.jobs) job.steps_remaining = 1000;
  return problem;
}

TEST(FinishTimeFairness, AJobAloneIsAsFastAsItsPartOfTheCluster) {
  const PolicyResult result =
      Solved("finish_time_fairness_perf", Jobs({1}, {{4}}));
  EXPECT_NEAR(result.objective, 1, 1e-9);
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
}

TEST(FinishTimeFairness, EqualJobsOnOneTypeHaveEqualTime) {
  const PolicyResult result =
      Solved("finish_time_fairness_perf", Jobs({1}, {{4}, {40}}));
  EXPECT_NEAR(result.objective, 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-8);
}

TEST(FinishTimeFairness, TypesThatSuitDifferentJobsMakeAllFinishEarlier) {
  const PolicyResult result =
      Solved("finish_time_fairness_perf", Jobs({1, 1}, {{10, 2}, {2, 10}}));
  EXPECT_NEAR(result.objective, 0.6, 1e-9);
}

TEST(FinishTimeFairness, WhoHasWaitedGetsMore) {
  // Both have 1000 s of work left; job 1 has waited for 1000 s.
  PolicyProblem problem = Jobs({1}, {{1}, {1}});
  problem.jobs[0].time_since_start_s = 1000;
  const PolicyResult result = Solved("finish_time_fairness_perf", problem);
  // x: (1000 + 1000 / x) / 2000 = (1000 / (1 - x)) / 2000, x = 0.618.
  const double golden = (std::sqrt(5.0) - 1) / 2;
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], golden, 1e-8);
  EXPECT_NEAR(result.objective, (1 + 1 / golden) / 2, 1e-8);
  EXPECT_NEAR(result.bound, result.objective, 1e-8);
}

TEST(FinishTimeFairness, TheWorkDoneCountsForTheFairTime) {
  // The times are the same, but a fair part of the cluster would have needed
  // 1000 s for the work that job 1 has done.
  PolicyProblem problem = Jobs({1}, {{1}, {1}});
  problem.jobs[0].time_since_start_s = 1000;
  problem.jobs[0].isolated_s = 1000;
  const PolicyResult result = Solved("finish_time_fairness_perf", problem);
  EXPECT_NEAR(result.objective, 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-8);
}

TEST(FinishTimeFairness, WeightsDecideOnlyWhatIsLeft) {
  // Job 1 has waited for so long that it must have all it can use.
  PolicyProblem problem = Jobs({2}, {{1}, {1}, {1}});
  problem.jobs[0].time_since_start_s = 1e5;
  const PolicyResult equal = Solved("finish_time_fairness_perf", problem);
  EXPECT_NEAR(equal.allocation.Row(JobId(1))[0], 1, 1e-7);
  problem.jobs[2].weight = 3;
  const PolicyResult weighted = Solved("finish_time_fairness_perf", problem);
  EXPECT_NEAR(weighted.objective, equal.objective, 1e-7 * equal.objective);
  EXPECT_GT(weighted.allocation.Row(JobId(3))[0], 0.9);
  EXPECT_GT(weighted.allocation.Row(JobId(2))[0], 0);
}

TEST(FinishTimeFairness, AJobOfUnknownLengthIsOneWithoutEnd) {
  PolicyProblem problem = Jobs({1}, {{1}, {1}});
  problem.jobs[0].steps_remaining = 0;
  problem.jobs[0].time_since_start_s = 1e6;
  const PolicyResult result = Solved("finish_time_fairness_perf", problem);
  EXPECT_NEAR(result.objective, 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-8);
}

TEST(FinishTimeFairness, TheAgnosticFormLooksAtTheV100) {
  PolicyProblem problem = Jobs({1, 1}, {{1, 10}, {4, 10}});
  problem.types = {"k80", "v100"};
  const PolicyResult result = Solved("finish_time_fairness", problem);
  EXPECT_NEAR(result.objective, 1, 1e-9);
  for (uint64_t id = 1; id <= 2; ++id) {
    const std::vector<double> row = result.allocation.Row(JobId(id));
    EXPECT_NEAR(row[0] + row[1], 1, 1e-8);
  }
}

TEST(FinishTimeFairness, PairsNeverHurt) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed, SmallShape());
    const double alone = Solved("finish_time_fairness_perf", problem).objective;
    EXPECT_LE(Solved("finish_time_fairness_packed", problem).objective,
              alone * (1 + 1e-8));
  }
}

TEST(FinishTimeFairness, TimesMayDifferByManyOrders) {
  PolicyProblem problem = Jobs({2, 1}, {{3, 1}, {7, 2}, {5, 5}});
  problem.jobs[0].steps_remaining = 1e-3;
  problem.jobs[1].steps_remaining = 1e9;
  problem.jobs[1].time_since_start_s = 1e7;
  problem.jobs[2].isolated_s = 1e5;
  const PolicyResult result = Solved("finish_time_fairness_perf", problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_LE(result.gap, 1e-8);
}

}  // namespace
}  // namespace gavel::testing
