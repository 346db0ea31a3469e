// The policies that go through a queue and look at throughputs: fifo_perf,
// fifo_packed, sjf, priority.
#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

TEST(FifoPerf, EachJobTakesItsFastestTypeWithRoom) {
  const PolicyProblem problem =
      MakeProblem({1, 2}, {{1, 9}, {9, 1}, {1, 9}, {5, 5}});
  EXPECT_EQ(AssignedBy("fifo_perf", problem),
            (Assigned{{{1, 0}, 1}, {{2, 0}, 0}, {{3, 0}, 1}}));
}

TEST(FifoPerf, OfEqualTypesTheFirstIsTaken) {
  EXPECT_EQ(AssignedBy("fifo_perf", MakeProblem({1, 1}, {{4, 4}})),
            (Assigned{{{1, 0}, 0}}));
}

TEST(FifoPerf, ASlowTypeIsBetterThanToWait) {
  EXPECT_EQ(AssignedBy("fifo_perf", MakeProblem({1, 1}, {{9, 1}, {9, 1}})),
            (Assigned{{{1, 0}, 0}, {{2, 0}, 1}}));
}

TEST(FifoPerf, TheQueueStopsAtTheFirstJobThatFitsNowhere) {
  PolicyProblem problem = MakeProblem({3, 1}, {{1, 1}, {1, 1}, {1, 1}});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 2;
  EXPECT_EQ(AssignedBy("fifo_perf", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(FifoPerf, AJobWithoutThroughputOnWhatIsFreeStopsNobody) {
  // Job 2 can only use type 0, which is taken; type 1 has room.
  EXPECT_EQ(
      AssignedBy("fifo_perf", MakeProblem({1, 1}, {{5, 1}, {5, 0}, {5, 1}})),
      (Assigned{{{1, 0}, 0}, {{3, 0}, 1}}));
}

TEST(FifoPerf, WhenAFastTypeIsFreeTheEarliestJobMovesThere) {
  PolicyProblem problem = MakeProblem({1, 1}, {{9, 1}, {9, 1}});
  problem.jobs[0].running_on = 1;
  problem.jobs[1].running_on = 0;
  EXPECT_EQ(AssignedBy("fifo_perf", problem),
            (Assigned{{{1, 0}, 0}, {{2, 0}, 1}}));
}

TEST(FifoPerf, AGangOnSeveralServersIsAsFastAsItIsThere) {
  // Four accelerators of type 0 in servers of two: a gang of four spans them.
  PolicyProblem problem = MakeProblem({4, 4}, {{8, 5, 4, 3}});
  problem.servers = {{2, 2}, {4}};
  problem.jobs[0].scale_factor = 4;
  EXPECT_EQ(AssignedBy("fifo_perf", problem), (Assigned{{{1, 0}, 1}}));
  problem.throughputs = {8, 5, 6, 3};
  EXPECT_EQ(AssignedBy("fifo_perf", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(FifoPacked, AJobWithoutRoomJoinsTheOneItPacksBestWith) {
  PolicyProblem problem = MakeProblem({2}, {{4}, {4}, {4}});
  AddPair(0, 2, 0.8, 0.8, &problem);
  AddPair(1, 2, 0.9, 0.9, &problem);
  EXPECT_EQ(AssignedBy("fifo_packed", problem),
            (Assigned{{{1, 0}, 0}, {{2, 3}, 0}}));
}

TEST(FifoPacked, PackingMustGainAHalf) {
  PolicyProblem problem = MakeProblem({1}, {{4}, {4}});
  AddPair(0, 1, 0.75, 0.75, &problem);  // 1.5 is not above 1.5
  EXPECT_EQ(AssignedBy("fifo_packed", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(FifoPacked, TheJobThatDidNotFitIsPackedFirst) {
  // The original would pack job 3, behind job 2.
  PolicyProblem problem = MakeProblem({1}, {{4}, {4}, {4}});
  AddPair(0, 1, 0.8, 0.8, &problem);
  AddPair(0, 2, 0.9, 0.9, &problem);
  EXPECT_EQ(AssignedBy("fifo_packed", problem), (Assigned{{{1, 2}, 0}}));
}

TEST(FifoPacked, WhoCanNeitherRunNorPackStopsTheQueue) {
  PolicyProblem problem = MakeProblem({1}, {{4}, {4}, {4}});
  AddPair(0, 2, 0.9, 0.9, &problem);
  EXPECT_EQ(AssignedBy("fifo_packed", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(FifoPacked, AJobBehindAPackedOneTakesRoomOfItsOwn) {
  PolicyProblem problem = MakeProblem({3}, {{4}, {4}, {4}});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 2;
  AddPair(0, 1, 0.9, 0.9, &problem);
  EXPECT_EQ(AssignedBy("fifo_packed", problem),
            (Assigned{{{1, 2}, 0}, {{3, 0}, 0}}));
}

TEST(Sjf, TheShortestJobRunsFirst) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}, {1}});
  problem.jobs[0].steps_remaining = 30;
  problem.jobs[1].steps_remaining = 10;
  problem.jobs[2].steps_remaining = 20;
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Sjf, TimeCountsNotSteps) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {100}});
  problem.jobs[0].steps_remaining = 10;
  problem.jobs[1].steps_remaining = 100;
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Sjf, OnceTheFastTypeIsTakenTheOthersCompareOnTheSlowOne) {
  // On type 0 job 2 would need 2 s and job 3 3 s; on type 1, 20 s and 4 s.
  PolicyProblem problem = MakeProblem({1, 1}, {{10, 1}, {10, 1}, {10, 7.5}});
  problem.jobs[0].steps_remaining = 10;
  problem.jobs[1].steps_remaining = 20;
  problem.jobs[2].steps_remaining = 30;
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{1, 0}, 0}, {{3, 0}, 1}}));
}

TEST(Sjf, AJobOfTwiceTheWeightIsAsIfItWereHalfAsLong) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].steps_remaining = 10;
  problem.jobs[1].steps_remaining = 15;
  problem.jobs[1].weight = 2;
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Sjf, UnknownLengthsComeLastByArrival) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {1}, {1}});
  problem.jobs[2].steps_remaining = 1e9;
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{3, 0}, 0}, {{1, 0}, 0}}));
}

TEST(Sjf, AGangThatDoesNotFitIsPassedOver) {
  PolicyProblem problem = MakeProblem({3}, {{1}, {1}, {1}});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 2;
  for (size_t m = 0; m < 3; ++m) {
    problem.jobs[m].steps_remaining = static_cast<double>(m + 1);
  }
  EXPECT_EQ(AssignedBy("sjf", problem), (Assigned{{{1, 0}, 0}, {{3, 0}, 0}}));
}

TEST(Priority, HigherWeightsGoFirstThenEarlierJobs) {
  PolicyProblem problem = MakeProblem({1, 1}, {{9, 1}, {9, 1}, {9, 1}});
  problem.jobs[2].weight = 5;
  EXPECT_EQ(AssignedBy("priority", problem),
            (Assigned{{{3, 0}, 0}, {{1, 0}, 1}}));
}

TEST(Priority, ARunningJobMakesRoomForOneOfAHigherPriority) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].running_on = 0;
  problem.jobs[1].weight = 2;
  EXPECT_EQ(AssignedBy("priority", problem), (Assigned{{{2, 0}, 0}}));
}

TEST(GreedyPolicies, TheObjectiveCountsTheJobsThatRun) {
  PolicyProblem problem = MakeProblem({1}, {{4}, {4}, {4}});
  AddPair(0, 1, 0.9, 0.9, &problem);
  EXPECT_EQ(Solved("fifo_perf", problem).objective, 1);
  const PolicyResult packed = Solved("fifo_packed", problem);
  EXPECT_EQ(packed.objective, 2);
  EXPECT_EQ(packed.bound, 2);
  EXPECT_FALSE(packed.each_round);
}

}  // namespace
}  // namespace gavel::testing
