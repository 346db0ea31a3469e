// Tests rounds with invalid input.
#include <cmath>
#include <limits>

#include "coordinator/mechanism/mechanism.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Cluster TwoTypes() { return MakeCluster({{"s", {"v100", "k80"}}}); }

TEST(BadInput, RowsLongerThanTheTypesAreCutOff) {
  RoundUnit unit = MakeUnit(1, 1, {0, 0, 1});
  unit.time_received_s = {1, 2, 3, 4};
  unit.deficit_s = {1, 2, 3, 4, 5};
  unit.usable = {false, true, true, true};
  for (const MechanismKind kind :
       {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
    EXPECT_EQ(PlanRound(TwoTypes(), {unit}, {.mechanism = kind}),
              (RoundAssignment{{Alone(1), Ids({2})}}));
  }
}

TEST(BadInput, EmptyRowsGiveNothing) {
  RoundUnit unit;
  unit.unit = Alone(1);
  for (const MechanismKind kind :
       {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
    EXPECT_TRUE(PlanRound(TwoTypes(), {unit}, {.mechanism = kind}).empty());
  }
}

TEST(BadInput, AUnitWhoseTypeHasNoAcceleratorLeftWaits) {
  Cluster cluster = TwoTypes();
  cluster.MarkLost(AcceleratorId(1));
  RoundUnit unit = MakeUnit(1, 1, {1, 0});
  unit.holds = Ids({1});
  for (const bool keep_running : {false, true}) {
    EXPECT_TRUE(
        PlanRound(cluster, {unit}, {.keep_running = keep_running}).empty());
  }
  EXPECT_TRUE(PlaceAssignment(cluster, {unit}, {{Alone(1), 0}}).empty());
}

TEST(BadInput, WhatIsNotANumberCountsAsNothing) {
  for (const double bad : {kNan, kInfinity, -kInfinity, -1.0}) {
    std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5}),
                                    MakeUnit(2, 1, {bad, 0}),
                                    MakeUnit(3, 1, {0.4, 0.4})};
    for (RoundUnit& unit : units) unit.usable = {true, true};
    units[0].time_received_s = {bad, bad};
    units[2].time_received_s = {100, 100};
    units[0].deficit_s = {bad, bad};
    units[2].preempt_cost_s = units[2].move_cost_s = bad;
    for (const MechanismKind kind :
         {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
      const RoundOptions options{.mechanism = kind, .round_duration_s = bad};
      const RoundAssignment assignment = PlanRound(TwoTypes(), units, options);
      EXPECT_EQ(assignment.size(), 2u);
      EXPECT_FALSE(assignment.contains(Alone(2)));
      EXPECT_EQ(RoundErrors(TwoTypes(), units, assignment), "");
    }
  }
}

TEST(BadInput, AUnitWithoutWorkersIsLeftOut) {
  for (const int scale_factor : {0, -3}) {
    const std::vector<RoundUnit> units = {MakeUnit(1, scale_factor, {1, 1}),
                                          MakeUnit(2, 1, {1, 0})};
    EXPECT_EQ(PlanRound(TwoTypes(), units, {}),
              (RoundAssignment{{Alone(2), Ids({1})}}));
  }
}

TEST(BadInput, AcceleratorsThatDoNotExistAreNotHeld) {
  for (const uint64_t id : {0, 3, 1000}) {
    RoundUnit unit = MakeUnit(1, 1, {0, 1});
    unit.holds = Ids({id});
    EXPECT_EQ(PlanRound(TwoTypes(), {unit}, {.keep_running = true}),
              (RoundAssignment{{Alone(1), Ids({2})}}));
  }
}

TEST(BadInput, AGangThatHoldsOneAcceleratorTwiceIsPlacedAnew) {
  const Cluster cluster = MakeCluster({{"s", {"gpu", "gpu", "gpu"}}});
  RoundUnit unit = MakeUnit(1, 2, {1});
  unit.holds = Ids({2, 2});
  EXPECT_EQ(PlanRound(cluster, {unit}, {}).at(Alone(1)), Ids({1, 2}));
}

TEST(BadInput, AUnitThatIsThereTwiceRunsOnce) {
  const std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0}),
                                        MakeUnit(1, 1, {0, 0.9})};
  EXPECT_EQ(PlanRound(TwoTypes(), units, {}).size(), 1u);
}

TEST(BadInput, AJobPackedWithItselfRunsOnce) {
  const std::vector<RoundUnit> units = {MakePair(1, 1, 1, {0.9, 0.9}),
                                        MakeUnit(1, 1, {0.1, 0.1})};
  EXPECT_EQ(PlanRound(TwoTypes(), units, {}).size(), 1u);
}

TEST(BadInput, ANumberThatIsNoJobsIsAUnitLikeAnyOther) {
  const std::vector<RoundUnit> units = {MakeUnit(0, 1, {0.5, 0}),
                                        MakeUnit(2, 1, {0.4, 0.4})};
  EXPECT_EQ(PlanRound(TwoTypes(), units, {}).size(), 2u);
}

TEST(BadInput, ATypeThatIsNotThereIsNotAssigned) {
  EXPECT_TRUE(
      PlaceAssignment(TwoTypes(), {MakeUnit(1, 1, {1, 0})}, {{Alone(1), 2}})
          .empty());
}

}  // namespace
}  // namespace gavel::testing
