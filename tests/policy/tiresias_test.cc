// Tiresias (NSDI'19): discretised least attained service and Gittins index.
#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

constexpr double kHour_s = 3600;

// Section 3.3: the job of less attained service goes first, once the two are in
// different queues.
TEST(Tiresias, AJobBeyondTheThresholdYieldsToANewOne) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 2 * kHour_s;
  problem.jobs[0].time_since_start_s = 2 * kHour_s;
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Tiresias, InsideAQueueTheEarlierJobKeepsItsAccelerator) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 0.9 * kHour_s;
  problem.jobs[0].time_since_start_s = 0.9 * kHour_s;
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

// The second dimension: a gang attains service by all of its accelerators.
TEST(Tiresias, AGangAttainsServiceFasterThanASingleWorker) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}});
  problem.jobs[0].scale_factor = 4;
  for (PolicyJob& job : problem.jobs) {
    job.time_received_s = 0.5 * kHour_s;
    job.time_since_start_s = 0.5 * kHour_s;
  }
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Tiresias, AJobThatStarvesIsPromoted) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 2 * kHour_s;
  problem.jobs[0].time_since_start_s = 30 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Tiresias, AJobStaysOnTheTypeWhereItRuns) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 5}});
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

// With sizes of 60 and 1200 accelerator-seconds, a job that has attained 70 is
// a long one for certain, while a new one may be short: (1/2) / 60.
TEST(TiresiasGittins, ANewJobMayBeShort) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}, {1}});
  problem.jobs[0].time_received_s = 70;
  problem.jobs[0].time_since_start_s = 70;
  problem.jobs[0].steps_remaining = 1130;
  problem.jobs[1].steps_remaining = 60;
  problem.jobs[2].steps_remaining = 1200;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{2, 0}, 0}}));
}

// With one size for all, the one that has attained the most ends first.
TEST(TiresiasGittins, OfEqualSizesTheOldestIsTheMostLikelyToEnd) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].steps_remaining = 1000;
  problem.jobs[1].steps_remaining = 400;
  problem.jobs[1].time_received_s = 600;
  problem.jobs[1].time_since_start_s = 600;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{2, 0}, 0}}));
}

}  // namespace
}  // namespace gavel::testing
