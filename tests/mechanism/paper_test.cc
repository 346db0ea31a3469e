// Statements of Gavel (Narayanan et al., OSDI'20), section 5: the round-based
// scheduling mechanism. Each test is one of them.
#include "coordinator/mechanism/mechanism.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

// Section 5.1: the priority of a job on a type is its target allocation divided
// by the fraction of time it has received there.
TEST(GavelPaper5, PriorityIsAllocationOverFractionOfTimeReceived) {
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.6, 0.4}),
                                  MakeUnit(2, 1, {0.2, 0.6})};
  units[0].time_received_s = {3 * 360, 1 * 360};
  units[1].time_received_s = {1 * 360, 1 * 360};
  const auto priorities = Priorities(RoundTable(units));
  EXPECT_DOUBLE_EQ(priorities[0][0], 0.6 / 0.75);
  EXPECT_DOUBLE_EQ(priorities[0][1], 0.4 / 0.5);
  EXPECT_DOUBLE_EQ(priorities[1][0], 0.2 / 0.25);
  EXPECT_DOUBLE_EQ(priorities[1][1], 0.6 / 0.5);
}

// Section 5: jobs whose allocation exceeds the time that they have received so
// far are placed first, so that over rounds each job gets its allocation.
TEST(GavelPaper5, RoundsAlternateBetweenTwoJobsOfEqualShare) {
  const Cluster cluster = MakeCluster({{"s", {"v100"}}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5}), MakeUnit(2, 1, {0.5})};
  std::string order;
  for (int round = 0; round < 6; ++round) {
    const RoundAssignment assignment = PlanRound(cluster, units, {});
    Hold(assignment, units);
    for (RoundUnit& unit : units) {
      if (unit.holds.empty()) continue;
      unit.time_received_s[0] += 360;
      order += unit.unit == Alone(1) ? "1" : "2";
    }
  }
  EXPECT_EQ(order, "122112");
}

// Section 5.2, algorithm 1: a combination that needs more workers than remain
// is skipped, and lower priorities are still tried.
TEST(GavelPaper5, AGangThatDoesNotFitIsSkippedForSmallerJobs) {
  const Cluster cluster = MakeCluster({{"s", {"v100", "v100", "v100"}}});
  std::vector<RoundUnit> units = {MakeUnit(1, 2, {1.0}), MakeUnit(2, 2, {0.5}),
                                  MakeUnit(3, 1, {0.1})};
  for (RoundUnit& unit : units) unit.time_received_s = {100};
  const RoundAssignment assignment = PlanRound(cluster, units, {});
  EXPECT_TRUE(assignment.contains(Alone(1)));
  EXPECT_FALSE(assignment.contains(Alone(2)));
  EXPECT_TRUE(assignment.contains(Alone(3)));
}

// Section 5.2: a job runs on at most one type at a time; once chosen, its other
// candidates are dropped.
TEST(GavelPaper5, AChosenJobLeavesTheQueuesOfTheOtherTypes) {
  const Cluster cluster = MakeCluster({{"s", {"v100", "k80"}}});
  const std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.9, 0.1}),
                                        MakeUnit(2, 1, {0.1, 0.05})};
  const RoundAssignment assignment = PlanRound(cluster, units, {});
  EXPECT_EQ(assignment.at(Alone(1)), Ids({1}));
  EXPECT_EQ(assignment.at(Alone(2)), Ids({2}));
}

// Section 5: jobs with several workers are placed consolidated where possible.
TEST(GavelPaper5, GangsArePlacedOnOneServerWherePossible) {
  const Cluster cluster = MakeCluster(
      {{"a", {"v100", "v100", "v100"}}, {"b", {"v100", "v100", "v100"}}});
  const std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {1}), MakeUnit(2, 2, {1}), MakeUnit(3, 3, {1})};
  const RoundAssignment assignment = PlanRound(cluster, units, {});
  EXPECT_EQ(assignment.at(Alone(3)), Ids({1, 2, 3}));
  EXPECT_EQ(assignment.at(Alone(2)), Ids({4, 5}));
  EXPECT_EQ(assignment.at(Alone(1)), Ids({6}));
}

}  // namespace
}  // namespace gavel::testing
