#include <cmath>

#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

PolicyProblem Jobs(std::vector<int> capacity,
                   const std::vector<std::vector<double>>& throughputs,
                   const std::vector<double>& steps) {
  PolicyProblem problem = MakeProblem(std::move(capacity), throughputs);
  for (size_t m = 0; m < steps.size(); ++m) {
    problem.jobs[m].steps_remaining = steps[m];
  }
  return problem;
}

TEST(MinTotalDuration, OnOneAcceleratorItIsTheSumOfAllTimes) {
  const PolicyResult result =
      Solved("min_total_duration_perf", Jobs({1}, {{2}, {5}}, {20, 100}));
  EXPECT_NEAR(result.objective, 30, 1e-7);
  EXPECT_NEAR(result.bound, 30, 1e-7);
  EXPECT_LE(result.bound, result.objective);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 1.0 / 3, 1e-8);
}

TEST(MinTotalDuration, NeitherAreTheLowestDurationsRoundedUp) {
  // The original searches in [100 s, 1e6 s] and stops within 5 %.
  EXPECT_NEAR(
      Solved("min_total_duration_perf", Jobs({1}, {{1}}, {0.5})).objective, 0.5,
      1e-8);
  EXPECT_NEAR(
      Solved("min_total_duration_perf", Jobs({1}, {{1}}, {1e9})).objective, 1e9,
      10);
}

TEST(MinTotalDuration, EachJobRunsWhereItGainsMost) {
  const PolicyProblem problem = Jobs({1, 1}, {{10, 1}, {2, 1.9}}, {100, 19});
  EXPECT_NEAR(Solved("min_total_duration_perf", problem).objective, 10, 1e-7);
}

TEST(MinTotalDuration, TheAgnosticFormCountsAllTypesAsTheV100) {
  PolicyProblem problem = Jobs({1, 1}, {{1, 10}}, {100});
  problem.types = {"k80", "v100"};
  EXPECT_NEAR(Solved("min_total_duration", problem).objective, 10, 1e-7);
  // Without one, as the job's fastest.
  problem.types = {"k80", "p100"};
  problem.throughputs = {20, 10};
  EXPECT_NEAR(Solved("min_total_duration", problem).objective, 5, 1e-7);
}

TEST(MinTotalDuration, PairsShortenIt) {
  PolicyProblem problem = Jobs({1}, {{1}, {1}}, {100, 100});
  AddPair(0, 1, 0.8, 0.8, &problem);
  EXPECT_NEAR(Solved("min_total_duration_perf", problem).objective, 200, 1e-5);
  EXPECT_NEAR(Solved("min_total_duration_packed", problem).objective, 125,
              1e-5);
}

TEST(MinTotalDuration, WhatIsLeftIsNotWasted) {
  // Job 1 is the longest; job 2 could be twice as slow and still be in time.
  const PolicyResult result =
      Solved("min_total_duration_perf", Jobs({2}, {{1}, {1}}, {100, 50}));
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 1, 1e-7);
}

TEST(MinTotalDuration, WhatIsLeftIsFilledLikeWater) {
  // The sum of throughputs would be as large with all of it for one of them.
  const PolicyResult result = Solved("min_total_duration_perf",
                                     Jobs({2}, {{1}, {1}, {1}}, {100, 10, 20}));
  EXPECT_NEAR(result.objective, 100, 1e-6);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 1, 1e-7);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 0.5, 1e-7);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[0], 0.5, 1e-7);
}

TEST(MinTotalDuration, WhatIsLeftForAGangLeavesTheTimeThatOthersNeed) {
  // Job 1 sets the makespan of 2,000 s; job 2 needs half of the time of one
  // accelerator where the gang of 8 needs all.
  PolicyProblem problem =
      Jobs({8, 1}, {{0, 1}, {1, 0}, {1, 0}}, {2000, 1000, 10});
  problem.jobs[2].scale_factor = 8;
  const PolicyResult result = Solved("min_total_duration_perf", problem);
  EXPECT_NEAR(result.objective, 2000, 1e-4);
  EXPECT_LE(result.gap, 1e-8);
  EXPECT_GE(result.allocation.Row(JobId(2))[0], 0.5 - 1e-7);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[0], 0.5, 1e-6);
  // Where that would keep the gang itself from being in time it is dropped.
  problem.jobs[2].steps_remaining = 1500;
  EXPECT_GE(
      Solved("min_total_duration_perf", problem).allocation.Row(JobId(3))[0],
      0.75 - 1e-7);
}

TEST(MinTotalDuration, WhatIsLeftGoesByWeight) {
  PolicyProblem problem = Jobs({2}, {{1}, {1}, {1}}, {100, 50, 40});
  problem.jobs[2].weight = 2;
  const PolicyResult result = Solved("min_total_duration_perf", problem);
  EXPECT_NEAR(result.objective, 100, 1e-6);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 0.5, 1e-7);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[0], 0.5, 1e-7);
}

TEST(MinTotalDuration, AJobOfUnknownLengthCountsAsTheLongest) {
  EXPECT_NEAR(Solved("min_total_duration_perf", Jobs({1}, {{1}, {5}}, {30, 0}))
                  .objective,
              60, 1e-6);
  const PolicyResult unknown =
      Solved("min_total_duration_perf", Jobs({1}, {{1}, {5}}, {0, 0}));
  EXPECT_NEAR(unknown.allocation.Row(JobId(1))[0], 0.5, 1e-8);
}

TEST(MinTotalDuration, LengthsMayDifferByTenOrders) {
  const PolicyResult result = Solved(
      "min_total_duration_perf", Jobs({1, 1}, {{3, 1}, {7, 2}}, {1e-3, 1e7}));
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_LE(result.gap, 1e-8);
}

}  // namespace
}  // namespace gavel::testing
