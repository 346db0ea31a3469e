// Packed pairs as units of the round mechanism.
#include "coordinator/mechanism/mechanism.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

Cluster ClusterOf(size_t count) {
  return MakeCluster({{"s", std::vector<std::string>(count, "gpu")}});
}

// With so much received on type 0.
RoundUnit After(RoundUnit unit, double seconds) {
  unit.time_received_s = {seconds};
  return unit;
}

RoundUnit Holding(RoundUnit unit, const std::vector<uint64_t>& accelerators) {
  unit.holds = Ids(accelerators);
  return unit;
}

TEST(Pairs, APairHasAPriorityOfItsOwn) {
  const std::vector<RoundUnit> units = {After(MakeUnit(1, 1, {0.2}), 100),
                                        After(MakeUnit(2, 1, {0.2}), 100),
                                        After(MakePair(1, 2, 1, {0.6}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(1), units, {}),
            (RoundAssignment{{Pair(1, 2), Ids({1})}}));
}

TEST(Pairs, AJobThatWasChosenAloneIsInNoPair) {
  const std::vector<RoundUnit> units = {After(MakeUnit(1, 1, {0.5}), 100),
                                        After(MakeUnit(2, 1, {0.1}), 100),
                                        After(MakePair(1, 2, 1, {0.3}), 100),
                                        After(MakePair(2, 3, 1, {0.2}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(3), units, {}),
            (RoundAssignment{{Alone(1), Ids({1})}, {Pair(2, 3), Ids({2})}}));
}

TEST(Pairs, TwoPairsWithoutACommonJobRunTogether) {
  const std::vector<RoundUnit> units = {After(MakePair(1, 2, 1, {0.5}), 100),
                                        After(MakePair(1, 3, 1, {0.4}), 100),
                                        After(MakePair(3, 4, 1, {0.3}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(2), units, {}),
            (RoundAssignment{{Pair(1, 2), Ids({1})}, {Pair(3, 4), Ids({2})}}));
}

TEST(Pairs, APackedGangIsAllOrNothing) {
  const std::vector<RoundUnit> units = {After(MakePair(1, 2, 4, {0.9}), 100),
                                        After(MakePair(3, 4, 2, {0.1}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(3), units, {}),
            (RoundAssignment{{Pair(3, 4), Ids({1, 2})}}));
}

TEST(Pairs, LeftoversGoToJobsAloneBeforePairs) {
  std::vector<RoundUnit> units = {MakePair(1, 2, 1, {0}),
                                  After(MakeUnit(3, 1, {0}), 500)};
  for (RoundUnit& unit : units) unit.usable = {true};
  EXPECT_EQ(PlanRound(ClusterOf(1), units, {}),
            (RoundAssignment{{Alone(3), Ids({1})}}));
  EXPECT_EQ(PlanRound(ClusterOf(2), units, {}).size(), 2u);
}

TEST(Pairs, APairThatStaysKeepsItsAccelerators) {
  const std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.1}),
                                        Holding(MakePair(1, 2, 1, {0.9}), {3})};
  EXPECT_EQ(PlanRound(ClusterOf(4), units, {}),
            (RoundAssignment{{Pair(1, 2), Ids({3})}}));
}

TEST(Pairs, InTheMiddleOfARoundAPairIsNotSplit) {
  const std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {0.9}), Holding(MakePair(1, 2, 1, {0.1}), {2}),
      MakeUnit(2, 1, {0.9}), MakeUnit(3, 1, {0.1})};
  EXPECT_EQ(PlanRound(ClusterOf(3), units, {.keep_running = true}),
            (RoundAssignment{{Pair(1, 2), Ids({2})}, {Alone(3), Ids({1})}}));
}

TEST(Pairs, APairGoesWhereOneOfItsJobsIs) {
  const std::vector<RoundUnit> units = {
      After(Holding(MakeUnit(2, 1, {0.1}), {3}), 300),
      After(MakePair(1, 2, 1, {0.9}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(4), units, {}),
            (RoundAssignment{{Pair(1, 2), Ids({3})}}));
}

TEST(Pairs, OfAPairThatIsSplitOneJobStays) {
  const std::vector<RoundUnit> units = {
      After(MakeUnit(1, 1, {0.5}), 100), After(MakeUnit(2, 1, {0.5}), 100),
      After(Holding(MakePair(1, 2, 1, {0.1}), {3}), 300)};
  EXPECT_EQ(PlanRound(ClusterOf(4), units, {}),
            (RoundAssignment{{Alone(1), Ids({3})}, {Alone(2), Ids({1})}}));
}

TEST(Pairs, WhoStaysIsNotPushedAsideByAPairThatInherits) {
  // Job 2 stays alone where it is; the pair of 1 and 3 goes where 3 was.
  const std::vector<RoundUnit> units = {
      After(Holding(MakeUnit(2, 1, {0.5}), {2}), 100),
      After(Holding(MakeUnit(3, 1, {0.1}), {4}), 300),
      After(MakePair(1, 3, 1, {0.5}), 100)};
  EXPECT_EQ(PlanRound(ClusterOf(4), units, {}),
            (RoundAssignment{{Alone(2), Ids({2})}, {Pair(1, 3), Ids({4})}}));
}

TEST(Pairs, AnAssignmentOfAPolicyMayHavePairs) {
  const std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {0}), MakePair(1, 2, 1, {0}), MakePair(3, 4, 1, {0})};
  EXPECT_EQ(
      PlaceAssignment(ClusterOf(2), units, {{Pair(1, 2), 0}, {Pair(3, 4), 0}}),
      (RoundAssignment{{Pair(1, 2), Ids({1})}, {Pair(3, 4), Ids({2})}}));
}

}  // namespace
}  // namespace gavel::testing
