#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

// Jobs on one type that all can share with these parts of their throughputs.
PolicyProblem Sharing(int accelerators, size_t jobs, double part) {
  PolicyProblem problem =
      MakeProblem({accelerators}, std::vector<std::vector<double>>(jobs, {10}));
  for (size_t a = 0; a < jobs; ++a) {
    for (size_t b = a + 1; b < jobs; ++b) AddPair(a, b, part, part, &problem);
  }
  return problem;
}

void RunTogether(size_t a, size_t b, int type, PolicyProblem* problem) {
  for (const size_t m : {a, b}) problem->jobs[m].running_on = type;
  problem->jobs[a].running_with = problem->jobs[b].id;
  problem->jobs[b].running_with = problem->jobs[a].id;
}

int Pairs(const Assigned& assigned) {
  int pairs = 0;
  for (const auto& [unit, type] : assigned) pairs += unit.second != 0;
  return pairs;
}

TEST(Gandiva, WhileAllFitEachRunsAlone) {
  const Assigned assigned = AssignedBy("gandiva", Sharing(4, 4, 0.9));
  EXPECT_EQ(assigned.size(), 4u);
  EXPECT_EQ(Pairs(assigned), 0);
}

TEST(Gandiva, WhenTheyDoNotFitTheyArePackedUntilTheyDo) {
  const Assigned assigned = AssignedBy("gandiva", Sharing(4, 6, 0.9));
  EXPECT_EQ(assigned.size(), 4u);
  EXPECT_EQ(Pairs(assigned), 2);
}

TEST(Gandiva, ItIsAskedAgainEachRound) {
  EXPECT_TRUE(Solved("gandiva", Sharing(1, 2, 0.9)).each_round);
}

TEST(Gandiva, APairStaysTogether) {
  PolicyProblem problem = Sharing(2, 4, 0.9);
  RunTogether(1, 2, 0, &problem);
  RunTogether(0, 3, 0, &problem);
  EXPECT_EQ(AssignedBy("gandiva", problem),
            (Assigned{{{1, 4}, 0}, {{2, 3}, 0}}));
}

TEST(Gandiva, APairThatTimeSlicesBeatIsUndone) {
  PolicyProblem problem = Sharing(1, 2, 0.45);  // 0.9 in total
  RunTogether(0, 1, 0, &problem);
  EXPECT_EQ(AssignedBy("gandiva", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Gandiva, APairIsUndoneWhereItRunsAndMadeElsewhere) {
  // Bad on type 0, where both run; good on type 1. The original adds up types.
  PolicyProblem problem = MakeProblem({1, 1}, {{10, 10}, {10, 10}, {10, 10}});
  problem.pairs = {{0, 1}};
  problem.pair_throughputs = {4, 4, 9, 9};
  RunTogether(0, 1, 0, &problem);
  EXPECT_EQ(AssignedBy("gandiva", problem),
            (Assigned{{{1, 2}, 1}, {{3, 0}, 0}}));
}

TEST(Gandiva, APairIsUndoneWhenThereIsRoomAgain) {
  PolicyProblem problem = Sharing(2, 2, 0.9);
  RunTogether(0, 1, 0, &problem);
  EXPECT_EQ(Pairs(AssignedBy("gandiva", problem)), 0);
}

// The first kind of a pair may be that of the later job.
TEST(Gandiva, PairsMayBeOfKindsOfJobs) {
  PolicyProblem problem = MakeProblem({1}, {{10}, {2}});
  problem.kinds = {1, 0};
  problem.pairs = {{0, 1}};
  problem.pair_throughputs = {1, 3};  // of jobs 2 and 1: 0.5 + 0.3
  EXPECT_EQ(Pairs(AssignedBy("gandiva", problem)), 0);
  problem.pair_throughputs = {1.8, 9};
  EXPECT_EQ(Pairs(AssignedBy("gandiva", problem)), 1);
}

TEST(Gandiva, OnlyEqualGangsShare) {
  PolicyProblem problem = MakeProblem({2}, {{10}, {10}, {10}});
  problem.jobs[0].scale_factor = 2;
  AddPair(1, 2, 0.9, 0.9, &problem);
  const Assigned assigned = AssignedBy("gandiva", problem);
  EXPECT_EQ(assigned, (Assigned{{{1, 0}, 0}}));
}

TEST(Gandiva, WhoHasReceivedLeastGoesFirst) {
  PolicyProblem problem = MakeProblem({1}, {{10}, {10}, {10}});
  problem.jobs[0].time_received_s = 300;
  problem.jobs[1].time_received_s = 100;
  problem.jobs[2].time_received_s = 200;
  EXPECT_EQ(AssignedBy("gandiva", problem), (Assigned{{{2, 0}, 0}}));
  problem.jobs[0].weight = 4;
  EXPECT_EQ(AssignedBy("gandiva", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Gandiva, AJobMovesToItsBestTypeWithRoom) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 10}, {1, 10}});
  for (PolicyJob& job : problem.jobs) job.running_on = 0;
  problem.jobs[0].time_received_s = 1;
  EXPECT_EQ(AssignedBy("gandiva", problem),
            (Assigned{{{2, 0}, 1}, {{1, 0}, 0}}));
}

TEST(Gandiva, TakingTurnsServesEveryone) {
  PolicyProblem problem = MakeProblem(
      {2}, std::vector<std::vector<double>>(5, std::vector<double>{10}));
  for (int round = 0; round < 50; ++round) {
    for (const auto& [unit, type] : AssignedBy("gandiva", problem)) {
      problem.jobs[unit.first - 1].time_received_s += 1;
    }
  }
  for (const PolicyJob& job : problem.jobs) EXPECT_EQ(job.time_received_s, 20);
}

TEST(Gandiva, PartnersDependOnIdsOnly) {
  const Assigned first = AssignedBy("gandiva", Sharing(4, 8, 0.9));
  EXPECT_EQ(first, AssignedBy("gandiva", Sharing(4, 8, 0.8)));
  EXPECT_EQ(Pairs(first), 4);
  // Not simply neighbours.
  EXPECT_NE(first,
            (Assigned{{{1, 2}, 0}, {{3, 4}, 0}, {{5, 6}, 0}, {{7, 8}, 0}}));
}

}  // namespace
}  // namespace gavel::testing
