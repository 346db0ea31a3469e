// Accelerators that the shares leave idle: those of types that are worth more
// than the types for which units were chosen, and the rest that policies leave
// when they maximise a sum.

#include "coordinator/mechanism/mechanism.h"
#include "tests/mechanism/round_fixture.h"
#include "tests/mechanism/rounds.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const RoundOptions kPlainRounds;
using Claims = std::vector<RoundAssignment::Claim>;

Cluster FastAndSlow() {
  return MakeCluster({{"fast", {"v100"}}, {"slow", {"k80"}}});
}

// A unit that is twice as fast on the first type.
RoundUnit FasterOnFirst(uint64_t id, std::vector<double> share) {
  RoundUnit unit = MakeUnit(id, 1, std::move(share));
  unit.usable = {true, true};
  unit.worth = {1, 0.5};
  return unit;
}

TEST(Upgrade, AUnitGoesToAFasterTypeThatIsIdleOnTheTimeOfItsOwn) {
  const RoundAssignment round =
      PlanRound(FastAndSlow(), {FasterOnFirst(1, {0, 1})}, kPlainRounds);
  EXPECT_EQ(round.at(Alone(1)), Ids({1}));
  EXPECT_EQ(round.claims(), (Claims{{JobId(1), 1}}));
}

TEST(Upgrade, WhereTypesAreAlikeNobodyMoves) {
  RoundUnit unit = FasterOnFirst(1, {0, 1});
  for (const std::vector<double>& worth :
       {std::vector<double>(), std::vector<double>{1, 1}}) {
    unit.worth = worth;
    const RoundAssignment round =
        PlanRound(FastAndSlow(), {unit}, kPlainRounds);
    EXPECT_EQ(round.at(Alone(1)), Ids({2}));
    EXPECT_EQ(round.claims(), Claims());
  }
}

TEST(Upgrade, WhatItLeavesGoesToWhoeverIsLeftOver) {
  const std::vector<RoundUnit> units = {FasterOnFirst(1, {0, 1}),
                                        FasterOnFirst(2, {0, 0})};
  const RoundAssignment round = PlanRound(FastAndSlow(), units, kPlainRounds);
  EXPECT_EQ(round.at(Alone(1)), Ids({1}));
  EXPECT_EQ(round.at(Alone(2)), Ids({2}));
}

TEST(Upgrade, LeftoverTimeIsThatOfTheTypeThatItIsOn) {
  RoundUnit unit = FasterOnFirst(1, {0, 0});
  unit.time_received_s = {100, 0};
  const RoundAssignment round = PlanRound(FastAndSlow(), {unit}, kPlainRounds);
  EXPECT_EQ(round.at(Alone(1)), Ids({1}));
  EXPECT_EQ(round.claims(), Claims());
}

TEST(Upgrade, WhoGainsMostGoesFirst) {
  std::vector<RoundUnit> units = {FasterOnFirst(1, {0, 1}),
                                  FasterOnFirst(2, {0, 1})};
  units[1].worth = {1, 0.25};
  const Cluster cluster =
      MakeCluster({{"fast", {"v100"}}, {"slow", {"k80", "k80"}}});
  EXPECT_EQ(PlanRound(cluster, units, kPlainRounds).at(Alone(2)), Ids({1}));
}

TEST(Upgrade, NobodyIsInterruptedInTheMiddleOfARound) {
  RoundUnit unit = FasterOnFirst(1, {0, 1});
  unit.holds = Ids({2});
  EXPECT_EQ(
      PlanRound(FastAndSlow(), {unit}, {.keep_running = true}).at(Alone(1)),
      Ids({2}));
}

// A queue per type is the original's mechanism.
TEST(Upgrade, WithAQueuePerTypeUnitsStayWhereTheyWereChosen) {
  const Cluster cluster = MakeCluster({{"slow", {"k80"}}, {"fast", {"v100"}}});
  RoundUnit unit = MakeUnit(1, 1, {1, 0});
  unit.usable = {true, true};
  unit.worth = {0.5, 1};
  const std::vector<RoundUnit> units = {unit};
  EXPECT_EQ(PlanRound(cluster, units, kPlainRounds).at(Alone(1)), Ids({2}));
  EXPECT_EQ(
      PlanRound(cluster, units, {.queue = QueueKind::kPerType}).at(Alone(1)),
      Ids({1}));
}

TEST(Upgrade, UnderMoveAwareAMoveHasToGainMoreThanItCosts) {
  RoundUnit unit = FasterOnFirst(1, {0, 1});
  unit.time_received_s = {0, 360};
  unit.deficit_s = {0, 0};
  unit.holds = Ids({2});
  unit.move_cost_s = 150;  // of a round of 360 s that is worth twice as much
  EXPECT_EQ(PlanRound(FastAndSlow(), {unit}, kMoveAware).at(Alone(1)),
            Ids({1}));
  unit.move_cost_s = 200;
  EXPECT_EQ(PlanRound(FastAndSlow(), {unit}, kMoveAware).at(Alone(1)),
            Ids({2}));
  // A unit stays where it is at no cost, and still claims its own type.
  unit.holds = Ids({1});
  unit.claimed = 1;
  const RoundAssignment round = PlanRound(FastAndSlow(), {unit}, kMoveAware);
  EXPECT_EQ(round.at(Alone(1)), Ids({1}));
  EXPECT_EQ(round.claims(), (Claims{{JobId(1), 1}}));
}

// If time on the faster type counted as time on that type, the share of the
// slower type would stay unpaid, and its unit would be first in line there for
// good.
TEST(Upgrade, TimeOnTheTypeThatItClaimsKeepsOthersFromStarving) {
  std::vector<RoundUnit> units = {MakeUnit(1, 2, {0, 0.5}),
                                  MakeUnit(2, 1, {0, 0.5}),
                                  MakeUnit(3, 1, {0, 0.5})};
  for (RoundUnit& unit : units) {
    unit.usable = {unit.scale_factor == 1, true};
    unit.worth = {unit.scale_factor == 1 ? 1.0 : 0.0, 0.5};
  }
  const Cluster cluster =
      MakeCluster({{"fast", {"v100"}}, {"slow", {"k80", "k80"}}});
  Rounds rounds(cluster, units);
  rounds.Run(kPlainRounds, 100);
  EXPECT_GE(rounds.WorstShare(0.1), 0.9);
}

TEST(Leftovers, OfASumGoWhereTheyAreWorthMost) {
  const Cluster cluster = MakeCluster({{"s", {"v100"}}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {0}), MakeUnit(2, 1, {0})};
  for (RoundUnit& unit : units) unit.usable = {true};
  units[0].worth = {2};
  units[1].worth = {3};
  units[1].time_received_s = {720};
  EXPECT_TRUE(PlanRound(cluster, units, kPlainRounds).contains(Alone(1)));
  for (const MechanismKind kind :
       {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
    const RoundOptions options{.mechanism = kind, .leftovers_by_worth = true};
    EXPECT_TRUE(PlanRound(cluster, units, options).contains(Alone(2)));
  }
}

}  // namespace
}  // namespace gavel::testing
