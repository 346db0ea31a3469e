// Tiresias (NSDI'19): discretised least attained service and Gittins index.
// Suites and comments name the paper's sections.
#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

constexpr double kHour_s = 3600;

// ---- section 3.2.3: priority discretisation

// The job of less attained service goes first, once the two are in different
// queues.
TEST(Tiresias323, AJobBeyondTheThresholdYieldsToANewOne) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 2 * kHour_s;
  problem.jobs[0].time_since_start_s = 2 * kHour_s;
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Tiresias323, InsideAQueueTheEarlierJobKeepsItsAccelerator) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 0.9 * kHour_s;
  problem.jobs[0].time_since_start_s = 0.9 * kHour_s;
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Tiresias323, AJobThatStarvesIsPromoted) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 2 * kHour_s;
  problem.jobs[0].time_since_start_s = 30 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

// A starving job goes ahead of new ones until it has run for a ninth of its
// life. Then it is in the queue of its service again.
TEST(Tiresias323, APromotedJobGoesBackOnceItHasRun) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_since_start_s = 36 * kHour_s;
  problem.jobs[0].running_on = 0;
  problem.jobs[0].time_received_s = 3.9 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
  problem.jobs[0].time_received_s = 4.1 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
}

// A job that waits and has not starved stays behind, whatever its arrival.
TEST(Tiresias323, AJobThatWaitsLessStaysInItsQueue) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].time_received_s = 13 * kHour_s;
  problem.jobs[0].time_since_start_s = 100 * kHour_s;
  problem.jobs[1].time_received_s = 2 * kHour_s;
  problem.jobs[1].time_since_start_s = 10 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
  // In one queue the earlier job goes first again.
  problem.jobs[1].time_received_s = 12.5 * kHour_s;
  problem.jobs[1].time_since_start_s = 20 * kHour_s;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

// ---- section 3.2.2: attained service in two dimensions, Gittins index

// A gang attains service by all of its accelerators.
TEST(Tiresias322, AGangAttainsServiceFasterThanASingleWorker) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}});
  problem.jobs[0].scale_factor = 4;
  for (PolicyJob& job : problem.jobs) {
    job.time_received_s = 0.5 * kHour_s;
    job.time_since_start_s = 0.5 * kHour_s;
  }
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Tiresias, AJobStaysOnTheTypeWhereItRuns) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 5}});
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("tiresias", problem), (Assigned{{{1, 0}, 0}}));
}

// With sizes of 60 and 1200 accelerator-seconds, a job that has attained 70 is
// a long one for certain, while a new one may be short: (1/2) / 60.
TEST(Tiresias322Gittins, ANewJobMayBeShort) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}, {1}});
  problem.jobs[0].time_received_s = 70;
  problem.jobs[0].time_since_start_s = 70;
  problem.jobs[0].steps_remaining = 1130;
  problem.jobs[1].steps_remaining = 60;
  problem.jobs[2].steps_remaining = 1200;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{2, 0}, 0}}));
}

// With one size for all, the one that has attained the most ends first.
TEST(Tiresias322Gittins, OfEqualSizesTheOldestIsTheMostLikelyToEnd) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].steps_remaining = 1000;
  problem.jobs[1].steps_remaining = 400;
  problem.jobs[1].time_received_s = 600;
  problem.jobs[1].time_since_start_s = 600;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{2, 0}, 0}}));
}

// Section 3.2.3: the index counts inside a queue only. Job 2 ends after one
// second more, and job 1, of an earlier queue, goes first.
TEST(Tiresias323Gittins, AnEarlierQueueGoesBeforeALargerIndex) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].steps_remaining = 7200;
  problem.jobs[1].steps_remaining = 1;
  problem.jobs[1].time_received_s = 7199;
  problem.jobs[1].time_since_start_s = 7199;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{1, 0}, 0}}));
  problem.jobs[0].time_received_s = 3600;
  problem.jobs[0].time_since_start_s = 3600;
  EXPECT_EQ(AssignedBy("tiresias_gittins", problem), (Assigned{{{2, 0}, 0}}));
}

}  // namespace
}  // namespace gavel::testing
