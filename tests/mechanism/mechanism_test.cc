#include "coordinator/mechanism/mechanism.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

const RoundOptions kDefault;
const RoundOptions kKeepRunning{.keep_running = true};

Cluster OneServer(size_t v100, size_t k80) {
  std::vector<std::string> types(v100, "v100");
  types.insert(types.end(), k80, "k80");
  return MakeCluster({{"s", types}});
}

TEST(RoundMechanism, TheJobFurthestBehindRunsFirst) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5}), MakeJob(2, 1, {0.5})};
  jobs[0].time_received_s = {360};
  jobs[1].time_received_s = {120};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(2), Ids({1})}}));
}

TEST(RoundMechanism, AJobThatReceivedNothingComesBeforeAllThatDid) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.9}), MakeJob(2, 1, {0.1})};
  jobs[0].time_received_s = {1};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(2), Ids({1})}}));
}

TEST(RoundMechanism, AmongNewJobsTheLargerShareGoesFirstThenTheSmallerId) {
  const Cluster cluster = OneServer(2, 0);
  const std::vector<RoundJob> jobs = {
      MakeJob(1, 1, {0.5}), MakeJob(2, 1, {0.5}), MakeJob(3, 1, {0.9})};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({1})}, {JobId(3), Ids({2})}}));
}

TEST(RoundMechanism, AJobIsOnOneTypeInARoundTheOneItIsFurthestBehindOn) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5, 0.5})};
  jobs[0].time_received_s = {200, 100};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({2})}}));
}

TEST(RoundMechanism, ALargeTypeDoesNotComeFirstForBeingLarge) {
  // Gavel's priorities are as high as the type is large; here job 1 has
  // received more of its share of k80 than of v100.
  const Cluster cluster = OneServer(1, 4);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5, 0.5})};
  for (uint64_t id = 2; id < 6; ++id) jobs.push_back(MakeJob(id, 1, {0, 1}));
  jobs[0].time_received_s = {90, 100};
  for (size_t m = 1; m < 5; ++m) jobs[m].time_received_s = {0, 190};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault).at(JobId(1)), Ids({1}));
}

TEST(RoundMechanism, WhenItsFirstTypeIsFullAJobTakesItsSecond) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1, 0}),
                                MakeJob(2, 1, {0.8, 0.2})};
  jobs[0].time_received_s = {10, 0};
  jobs[1].time_received_s = {20, 20};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({1})}, {JobId(2), Ids({2})}}));
}

TEST(RoundMechanism, AGangRunsCompleteOrNotAtAll) {
  const Cluster cluster = OneServer(3, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 2, {1}), MakeJob(2, 2, {0.5}),
                                MakeJob(3, 1, {0.1})};
  for (RoundJob& job : jobs) job.time_received_s = {100};
  const RoundAssignment assignment = PlanRound(cluster, jobs, kDefault);
  EXPECT_EQ(assignment.size(), 2u);
  EXPECT_FALSE(assignment.contains(JobId(2)));
  EXPECT_EQ(RoundErrors(cluster, jobs, assignment), "");
}

TEST(RoundMechanism, LeftoversGoToJobsOfZeroPriorityLeastServedFirst) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1, 0}), MakeJob(2, 1, {0, 0}),
                                MakeJob(3, 1, {0, 0})};
  for (RoundJob& job : jobs) job.usable = {true, true};
  jobs[1].time_received_s = {0, 50};
  jobs[2].time_received_s = {30, 0};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({1})}, {JobId(3), Ids({2})}}));
  EXPECT_EQ(PlanRound(cluster, jobs, {.work_conserving = false}),
            (RoundAssignment{{JobId(1), Ids({1})}}));
}

TEST(RoundMechanism, NobodyIsPutWhereItCannotRun) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0, 0})};
  jobs[0].usable = {false, true};
  jobs[0].share = {1, 0};  // stale
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({2})}}));
}

TEST(RoundMechanism, AJobThatStaysOnItsTypeKeepsExactlyItsAccelerators) {
  const Cluster cluster = OneServer(4, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 2, {1})};
  jobs[0].holds = Ids({3});
  jobs[1].holds = Ids({4, 2});  // in the order of its ranks
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault),
            (RoundAssignment{{JobId(1), Ids({3})}, {JobId(2), Ids({4, 2})}}));
}

TEST(RoundMechanism, WhenPrioritiesTieAJobStaysOnItsType) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5, 0.5})};
  jobs[0].time_received_s = {100, 100};
  jobs[0].holds = Ids({2});
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault).at(JobId(1)), Ids({2}));
  jobs[0].time_received_s = {100, 101};
  EXPECT_EQ(PlanRound(cluster, jobs, kDefault).at(JobId(1)), Ids({1}));
}

TEST(RoundMechanism, WhenPrioritiesTieTheJobThatRunsGoesOn) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5}), MakeJob(2, 1, {0.5})};
  for (RoundJob& job : jobs) job.time_received_s = {100};
  jobs[1].holds = Ids({1});
  EXPECT_TRUE(PlanRound(cluster, jobs, kDefault).contains(JobId(2)));
}

TEST(RoundMechanism, InTheMiddleOfARoundRunningJobsAreLeftAlone) {
  const Cluster cluster = OneServer(2, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.1}), MakeJob(2, 1, {1}),
                                MakeJob(3, 1, {1})};
  jobs[0].holds = Ids({2});
  jobs[0].time_received_s = {1000};
  EXPECT_EQ(PlanRound(cluster, jobs, kKeepRunning),
            (RoundAssignment{{JobId(1), Ids({2})}, {JobId(2), Ids({1})}}));
  EXPECT_FALSE(PlanRound(cluster, jobs, kDefault).contains(JobId(1)));
}

TEST(RoundMechanism, WhoKeepsRunningNeedsNoShare) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0}), MakeJob(2, 1, {1})};
  jobs[0].holds = Ids({1});
  EXPECT_EQ(PlanRound(cluster, jobs,
                      {.keep_running = true, .work_conserving = false}),
            (RoundAssignment{{JobId(1), Ids({1})}}));
}

TEST(RoundMechanism, AJobWithALostAcceleratorIsPlacedAnew) {
  Cluster cluster = OneServer(3, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 2, {1})};
  jobs[0].holds = Ids({1, 3});
  cluster.MarkLost(AcceleratorId(1));
  for (const RoundOptions& options : {kDefault, kKeepRunning}) {
    EXPECT_EQ(PlanRound(cluster, jobs, options),
              (RoundAssignment{{JobId(1), Ids({2, 3})}}));
  }
  cluster.MarkUnreachable("s");
  EXPECT_TRUE(PlanRound(cluster, jobs, kKeepRunning).empty());
}

TEST(RoundMechanism, RowsThatEndBeforeANewTypeCountAsZeroThere) {
  const Cluster cluster = OneServer(1, 1);
  EXPECT_EQ(PlanRound(cluster, {MakeJob(1, 1, {1}), MakeJob(2, 1, {1})}, {}),
            (RoundAssignment{{JobId(1), Ids({1})}}));
}

TEST(RoundMechanism, AnEmptyClusterOrNoJobsGiveAnEmptyRound) {
  EXPECT_TRUE(PlanRound(Cluster(), {MakeJob(1, 1, {})}, kDefault).empty());
  EXPECT_TRUE(PlanRound(OneServer(2, 0), {}, kDefault).empty());
}

TEST(Priorities, AreZeroWithoutAShareAndInfiniteWithoutTime) {
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0.5, 0}),
                                MakeJob(2, 1, {0.5, 1})};
  jobs[0].time_received_s = {100, 300};
  const auto priorities = Priorities(jobs);
  EXPECT_DOUBLE_EQ(priorities[0][0], 0.5);
  EXPECT_EQ(priorities[0][1], 0);
  EXPECT_TRUE(std::isinf(priorities[1][0]));
  EXPECT_TRUE(std::isinf(priorities[1][1]));
}

TEST(PlaceAssignment, JobsGetTheTypesThatThePolicyChose) {
  const Cluster cluster = OneServer(1, 2);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0, 0}), MakeJob(2, 1, {0, 0}),
                                MakeJob(3, 1, {0, 0})};
  EXPECT_EQ(PlaceAssignment(cluster, jobs, {{JobId(1), 1}, {JobId(3), 0}}),
            (RoundAssignment{{JobId(1), Ids({2})}, {JobId(3), Ids({1})}}));
}

TEST(PlaceAssignment, JobsThatStayKeepTheirAccelerators) {
  const Cluster cluster = OneServer(0, 3);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0}), MakeJob(2, 1, {0})};
  jobs[1].holds = Ids({1});
  EXPECT_EQ(PlaceAssignment(cluster, jobs, {{JobId(1), 0}, {JobId(2), 0}}),
            (RoundAssignment{{JobId(1), Ids({2})}, {JobId(2), Ids({1})}}));
}

TEST(PlaceAssignment, WhatNoLongerFitsIsLeftOutTheLaterJobsFirst) {
  const Cluster cluster = OneServer(2, 0);
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {0}), MakeJob(2, 2, {0}),
                                MakeJob(3, 1, {0}), MakeJob(4, 1, {0})};
  const RoundAssignment assignment = PlaceAssignment(
      cluster, jobs,
      {{JobId(1), 0}, {JobId(2), 0}, {JobId(3), 0}, {JobId(4), 7}});
  EXPECT_EQ(assignment,
            (RoundAssignment{{JobId(1), Ids({1})}, {JobId(3), Ids({2})}}));
}

}  // namespace
}  // namespace gavel::testing
