#include "coordinator/mechanism/mechanism.h"

#include <cmath>
#include <random>

#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const RoundOptions kDefault;
const RoundOptions kKeepRunning{.keep_running = true};
const RoundOptions kPerType{.queue = QueueKind::kPerType};

Cluster OneServer(size_t v100, size_t k80) {
  std::vector<std::string> types(v100, "v100");
  types.insert(types.end(), k80, "k80");
  return MakeCluster({{"s", types}});
}

TEST(RoundMechanism, TheJobFurthestBehindRunsFirst) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5}), MakeUnit(2, 1, {0.5})};
  units[0].time_received_s = {360};
  units[1].time_received_s = {120};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(2), Ids({1})}}));
}

// A whole round is far more than a small share is owed at first.
TEST(RoundMechanism, HeadStartOfHalfARoundKeepsASmallShareFromGoingFirst) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.9}), MakeUnit(2, 1, {0.1})};
  std::string order;
  for (int round = 0; round < 20; ++round) {
    const bool first = PlanRound(cluster, units, kDefault).contains(Alone(1));
    units[first ? 0 : 1].time_received_s[0] += 360;
    order += first ? "1" : "2";
  }
  EXPECT_EQ(order, "11111211111111121111");
}

TEST(RoundMechanism, AmongNewJobsTheLargerShareGoesFirstThenTheSmallerId) {
  const Cluster cluster = OneServer(2, 0);
  const std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {0.5}), MakeUnit(2, 1, {0.5}), MakeUnit(3, 1, {0.9})};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({1})}, {Alone(3), Ids({2})}}));
}

TEST(RoundMechanism, AJobIsOnOneTypeInARoundTheOneItIsFurthestBehindOn) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5})};
  units[0].time_received_s = {200, 100};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({2})}}));
}

TEST(RoundMechanism, ALargeTypeDoesNotComeFirstForBeingLarge) {
  // Gavel's priorities are as high as the type is large; here job 1 has
  // received more of its share of k80 than of v100.
  const Cluster cluster = OneServer(1, 4);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5})};
  for (uint64_t id = 2; id < 6; ++id) units.push_back(MakeUnit(id, 1, {0, 1}));
  units[0].time_received_s = {90, 100};
  for (size_t m = 1; m < 5; ++m) units[m].time_received_s = {0, 190};
  EXPECT_EQ(PlanRound(cluster, units, kDefault).at(Alone(1)), Ids({1}));
}

TEST(RoundMechanism, WhenItsFirstTypeIsFullAJobTakesItsSecond) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1, 0}),
                                  MakeUnit(2, 1, {0.8, 0.2})};
  units[0].time_received_s = {10, 0};
  units[1].time_received_s = {20, 20};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({1})}, {Alone(2), Ids({2})}}));
}

TEST(RoundMechanism, LeftoversGoToJobsOfZeroPriorityLeastServedFirst) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {1, 0}), MakeUnit(2, 1, {0, 0}), MakeUnit(3, 1, {0, 0})};
  for (RoundUnit& unit : units) unit.usable = {true, true};
  units[1].time_received_s = {0, 50};
  units[2].time_received_s = {30, 0};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({1})}, {Alone(3), Ids({2})}}));
  EXPECT_EQ(PlanRound(cluster, units, {.work_conserving = false}),
            (RoundAssignment{{Alone(1), Ids({1})}}));
}

TEST(RoundMechanism, NobodyIsPutWhereItCannotRun) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0, 0})};
  units[0].usable = {false, true};
  units[0].share = {1, 0};  // stale
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({2})}}));
}

TEST(RoundMechanism, AJobThatStaysOnItsTypeKeepsExactlyItsAccelerators) {
  const Cluster cluster = OneServer(4, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 2, {1})};
  units[0].holds = Ids({3});
  units[1].holds = Ids({4, 2});  // in the order of its ranks
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({3})}, {Alone(2), Ids({4, 2})}}));
}

TEST(RoundMechanism, WhenPrioritiesTieAJobStaysOnItsType) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5})};
  units[0].time_received_s = {100, 100};
  units[0].holds = Ids({2});
  EXPECT_EQ(PlanRound(cluster, units, kDefault).at(Alone(1)), Ids({2}));
  units[0].time_received_s = {100, 101};
  EXPECT_EQ(PlanRound(cluster, units, kDefault).at(Alone(1)), Ids({1}));
}

TEST(RoundMechanism, WhenPrioritiesTieTheJobThatRunsGoesOn) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5}), MakeUnit(2, 1, {0.5})};
  for (RoundUnit& unit : units) unit.time_received_s = {100};
  units[1].holds = Ids({1});
  EXPECT_TRUE(PlanRound(cluster, units, kDefault).contains(Alone(2)));
}

TEST(RoundMechanism, InTheMiddleOfARoundRunningJobsAreLeftAlone) {
  const Cluster cluster = OneServer(2, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.1}), MakeUnit(2, 1, {1}),
                                  MakeUnit(3, 1, {1})};
  units[0].holds = Ids({2});
  units[0].time_received_s = {1000};
  EXPECT_EQ(PlanRound(cluster, units, kKeepRunning),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
  EXPECT_FALSE(PlanRound(cluster, units, kDefault).contains(Alone(1)));
}

TEST(RoundMechanism, WhoKeepsRunningNeedsNoShare) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0}), MakeUnit(2, 1, {1})};
  units[0].holds = Ids({1});
  EXPECT_EQ(PlanRound(cluster, units,
                      {.keep_running = true, .work_conserving = false}),
            (RoundAssignment{{Alone(1), Ids({1})}}));
}

TEST(RoundMechanism, AJobWithALostAcceleratorIsPlacedAnew) {
  Cluster cluster = OneServer(3, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 2, {1})};
  units[0].holds = Ids({1, 3});
  cluster.MarkLost(AcceleratorId(1));
  for (const RoundOptions& options : {kDefault, kKeepRunning}) {
    EXPECT_EQ(PlanRound(cluster, units, options),
              (RoundAssignment{{Alone(1), Ids({2, 3})}}));
  }
  cluster.MarkUnreachable("s");
  EXPECT_TRUE(PlanRound(cluster, units, kKeepRunning).empty());
}

TEST(RoundMechanism, RowsThatEndBeforeANewTypeCountAsZeroThere) {
  const Cluster cluster = OneServer(1, 1);
  EXPECT_EQ(PlanRound(cluster, {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})}, {}),
            (RoundAssignment{{Alone(1), Ids({1})}}));
}

// `count` jobs that have received various times; those that received less
// than `gangs_below_s` are gangs of 8.
std::vector<RoundUnit> ManyUnits(size_t count, double gangs_below_s) {
  std::mt19937_64 random(7);
  std::vector<RoundUnit> units;
  for (uint64_t id = 1; id <= count; ++id) {
    const double received_s = 1 + static_cast<double>(random() % 1000000);
    const int scale_factor = received_s < gangs_below_s ? 8 : 1;
    units.push_back(MakeUnit(id, scale_factor, {0.001}));
    units.back().time_received_s = {received_s};
  }
  return units;
}

TEST(RoundMechanism, OfManyUnitsTheVeryFirstOnesRun) {
  const Cluster cluster = OneServer(5, 0);
  for (const double gangs_below_s : {0.0, 2e5, 9e5}) {
    std::vector<RoundUnit> units = ManyUnits(5000, gangs_below_s);
    const RoundAssignment assignment = PlanRound(cluster, units, kDefault);
    std::erase_if(units, [](const RoundUnit& u) { return u.scale_factor > 1; });
    std::sort(units.begin(), units.end(),
              [](const RoundUnit& a, const RoundUnit& b) {
                return std::pair(a.time_received_s[0], a.unit) <
                       std::pair(b.time_received_s[0], b.unit);
              });
    ASSERT_EQ(assignment.size(), 5u);
    for (size_t u = 0; u < 5; ++u) {
      EXPECT_TRUE(assignment.contains(units[u].unit)) << u;
    }
  }
}

TEST(RoundMechanism, AnEmptyClusterOrNoJobsGiveAnEmptyRound) {
  EXPECT_TRUE(PlanRound(Cluster(), {MakeUnit(1, 1, {})}, kDefault).empty());
  EXPECT_TRUE(PlanRound(OneServer(2, 0), {}, kDefault).empty());
}

TEST(RoundMechanism, OfEqualPrioritiesTheLargerDeficitGoesFirst) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5}), MakeUnit(2, 1, {0.5}),
                                  MakeUnit(3, 1, {0.5})};
  for (RoundUnit& unit : units) unit.time_received_s = {180};
  units[0].holds = Ids({1});
  units[1].deficit_s = {50};
  units[2].deficit_s = {-50};
  EXPECT_TRUE(PlanRound(cluster, units, kDefault).contains(Alone(2)));
  // They break ties only.
  units[2].time_received_s = {179};
  EXPECT_TRUE(PlanRound(cluster, units, kDefault).contains(Alone(3)));
}

TEST(RoundMechanism,
     OfEqualPrioritiesTheLargerDeficitGoesBeforeTheLargerShare) {
  const Cluster cluster = OneServer(1, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.9}), MakeUnit(2, 1, {0.1})};
  units[0].time_received_s = {8 * 180};
  units[1].deficit_s = {1};
  EXPECT_TRUE(PlanRound(cluster, units, kDefault).contains(Alone(2)));
}

TEST(RoundMechanism, AGlobalQueueLetsAUnitHaveTheTypeItIsFurthestBehindOn) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5}),
                                  MakeUnit(2, 1, {0.5, 0.5})};
  units[0].time_received_s = {100, 50};
  units[1].time_received_s = {110, 300};
  EXPECT_EQ(PlanRound(cluster, units, kDefault),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
}

TEST(RoundMechanism, AQueuePerTypeLetsTheFirstTypePickFirst) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0.5}),
                                  MakeUnit(2, 1, {0.5, 0.5})};
  units[0].time_received_s = {100, 50};
  units[1].time_received_s = {110, 300};
  EXPECT_EQ(PlanRound(cluster, units, kPerType),
            (RoundAssignment{{Alone(1), Ids({1})}, {Alone(2), Ids({2})}}));
}

TEST(RoundMechanism, AQueuePerTypeFillsATypeBeforeTheNextOnesTurn) {
  const Cluster cluster = OneServer(1, 1);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0, 1})};
  units[0].usable = {true, true};
  EXPECT_EQ(PlanRound(cluster, units, kPerType).at(Alone(1)), Ids({1}));
  EXPECT_EQ(PlanRound(cluster, units, kDefault).at(Alone(1)), Ids({2}));
  RoundOptions options = kPerType;
  options.work_conserving = false;
  EXPECT_EQ(PlanRound(cluster, units, options).at(Alone(1)), Ids({2}));
}

TEST(Names, LeadBackToTheirKinds) {
  for (const MechanismKind kind :
       {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
    EXPECT_EQ(FindMechanism(MechanismName(kind)), kind);
  }
  for (const QueueKind kind : {QueueKind::kGlobal, QueueKind::kPerType}) {
    EXPECT_EQ(FindQueue(QueueName(kind)), kind);
  }
  EXPECT_EQ(MechanismName(MechanismKind::kMoveAware), "move_aware");
  EXPECT_EQ(QueueName(QueueKind::kPerType), "per_type");
  EXPECT_EQ(FindMechanism("global"), std::nullopt);
  EXPECT_EQ(FindQueue(""), std::nullopt);
}

TEST(Priorities, AreZeroWithoutAShareAndInfiniteWithoutTime) {
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0.5, 0}),
                                  MakeUnit(2, 1, {0.5, 1})};
  units[0].time_received_s = {100, 300};
  const RoundTable table(units);
  EXPECT_DOUBLE_EQ(Priorities(table, 180)[1][0], 0.5 / (180.0 / 460));
  const auto priorities = Priorities(table);
  EXPECT_DOUBLE_EQ(priorities[0][0], 0.5);
  EXPECT_EQ(priorities[0][1], 0);
  EXPECT_TRUE(std::isinf(priorities[1][0]));
  EXPECT_TRUE(std::isinf(priorities[1][1]));
}

TEST(PlaceAssignment, JobsGetTheTypesThatThePolicyChose) {
  const Cluster cluster = OneServer(1, 2);
  std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {0, 0}), MakeUnit(2, 1, {0, 0}), MakeUnit(3, 1, {0, 0})};
  EXPECT_EQ(PlaceAssignment(cluster, units, {{Alone(1), 1}, {Alone(3), 0}}),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(3), Ids({1})}}));
}

TEST(PlaceAssignment, JobsThatStayKeepTheirAccelerators) {
  const Cluster cluster = OneServer(0, 3);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0}), MakeUnit(2, 1, {0})};
  units[1].holds = Ids({1});
  EXPECT_EQ(PlaceAssignment(cluster, units, {{Alone(1), 0}, {Alone(2), 0}}),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
}

TEST(PlaceAssignment, WhatNoLongerFitsIsLeftOutTheLaterJobsFirst) {
  const Cluster cluster = OneServer(2, 0);
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0}), MakeUnit(2, 2, {0}),
                                  MakeUnit(3, 1, {0}), MakeUnit(4, 1, {0})};
  const RoundAssignment assignment = PlaceAssignment(
      cluster, units,
      {{Alone(1), 0}, {Alone(2), 0}, {Alone(3), 0}, {Alone(4), 7}});
  EXPECT_EQ(assignment,
            (RoundAssignment{{Alone(1), Ids({1})}, {Alone(3), Ids({2})}}));
}

}  // namespace
}  // namespace gavel::testing
