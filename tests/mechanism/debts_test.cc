// When a unit keeps its accelerators in the move-aware mechanism, and when not.
#include <cmath>
#include <limits>

#include "coordinator/mechanism/choice.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kRound_s = 360;

Cluster OneOf(const std::vector<std::string>& types) {
  return MakeCluster({{"s", types}});
}

// Has run before, holds `accelerator` (0: nothing), and is owed `deficit_s`.
RoundUnit Owed(uint64_t id, std::vector<double> share,
               std::vector<double> deficit_s, uint64_t accelerator = 0,
               double cost_s = 0) {
  RoundUnit unit = MakeUnit(id, 1, std::move(share));
  unit.usable.assign(unit.share.size(), true);
  unit.time_received_s.assign(unit.share.size(), 180);
  unit.deficit_s = std::move(deficit_s);
  unit.preempt_cost_s = unit.move_cost_s = cost_s;
  if (accelerator != 0) unit.holds = Ids({accelerator});
  return unit;
}

ShareUnit Winner(const Cluster& cluster, const std::vector<RoundUnit>& units) {
  return PlanRound(cluster, units, kMoveAware).begin()->first;
}

TEST(LeadSeconds, GrowsWithTheRootOfTheCostUpToABound) {
  EXPECT_EQ(LeadSeconds(0, kRound_s), 0);
  EXPECT_DOUBLE_EQ(LeadSeconds(30, kRound_s), 720);
  EXPECT_DOUBLE_EQ(LeadSeconds(120, kRound_s), 1440);
  EXPECT_EQ(LeadSeconds(1e9, kRound_s), kLeadRoundsMax * kRound_s);
}

TEST(LeadSeconds, IsZeroForWhatMakesNoSense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-1.0, nan}) {
    EXPECT_EQ(LeadSeconds(bad, kRound_s), 0);
    EXPECT_EQ(LeadSeconds(30, bad), 0);
  }
}

TEST(Debts, WithoutCostsWhoIsOwedMostRuns) {
  const Cluster cluster = OneOf({"gpu"});
  EXPECT_EQ(Winner(cluster, {Owed(1, {0.5}, {100}, 1), Owed(2, {0.5}, {101})}),
            Alone(2));
}

TEST(Debts, WithEqualDebtsWhoRunsGoesOn) {
  const Cluster cluster = OneOf({"gpu"});
  EXPECT_EQ(Winner(cluster, {Owed(1, {0.5}, {100}), Owed(2, {0.5}, {100}, 1)}),
            Alone(2));
}

TEST(Debts, WhoRunsGoesOnUntilTheDifferenceExceedsItsLead) {
  const Cluster cluster = OneOf({"gpu"});
  // 30 s of cost: 720 s of lead.
  const RoundUnit runs = Owed(1, {0.5}, {-300}, 1, 30);
  EXPECT_EQ(Winner(cluster, {runs, Owed(2, {0.5}, {419})}), Alone(1));
  EXPECT_EQ(Winner(cluster, {runs, Owed(2, {0.5}, {421})}), Alone(2));
}

TEST(Debts, OfThoseOwedMuchOfAllTheyWereToReceiveTheDebtAloneCounts) {
  const Cluster cluster = OneOf({"gpu"});
  // 30 s of cost: 720 s of lead for both, or for who runs only.
  const RoundUnit runs = Owed(1, {0.5}, {-300}, 1, 30);
  RoundUnit waits = Owed(2, {0.5}, {-299}, 0, 30);
  waits.owed_part = kOwedPartMax + 0.01;
  EXPECT_EQ(Winner(cluster, {runs, waits}), Alone(2));
  waits.deficit_s = {-301};
  EXPECT_EQ(Winner(cluster, {runs, waits}), Alone(1));
  waits.deficit_s = {419};
  waits.owed_part = kOwedPartMax;
  EXPECT_EQ(Winner(cluster, {runs, waits}), Alone(1));
}

TEST(Debts, TheCostThatCountsIsThatOfWhoWouldHaveToGo) {
  const Cluster cluster = OneOf({"gpu"});
  EXPECT_EQ(Winner(cluster,
                   {Owed(1, {0.5}, {0}, 1, 0), Owed(2, {0.5}, {1}, 0, 1000)}),
            Alone(2));
}

TEST(Debts, DebtsCompareInProportionToTheShares) {
  const Cluster cluster = OneOf({"gpu"});
  // Owed 200 s of a tenth is longer ago than 300 s of a half.
  EXPECT_EQ(Winner(cluster, {Owed(1, {0.5}, {300}), Owed(2, {0.1}, {200})}),
            Alone(2));
}

TEST(Debts, ASmallShareHasASmallLead) {
  const Cluster cluster = OneOf({"gpu"});
  // A tenth has a third of the lead of 720 s.
  EXPECT_EQ(
      Winner(cluster, {Owed(1, {0.1}, {-239}, 1, 30), Owed(2, {0.1}, {0})}),
      Alone(1));
  EXPECT_EQ(
      Winner(cluster, {Owed(1, {0.1}, {-241}, 1, 30), Owed(2, {0.1}, {0})}),
      Alone(2));
}

TEST(Debts, AJobThatNeverRanComesFirst) {
  const Cluster cluster = OneOf({"gpu"});
  RoundUnit fresh = Owed(3, {0.1}, {0});
  fresh.time_received_s = {0};
  EXPECT_EQ(Winner(cluster, {Owed(1, {0.5}, {0}, 1, 120),
                             Owed(2, {0.5}, {5000}), fresh}),
            Alone(3));
}

TEST(Debts, APairWithAJobThatNeverRanComesFirst) {
  const Cluster cluster = OneOf({"gpu"});
  RoundUnit pair = MakePair(1, 3, 1, {0.1});
  pair.deficit_s = {0};
  EXPECT_EQ(Winner(cluster,
                   {Owed(1, {0.5}, {0}, 1, 120), Owed(2, {0.5}, {5000}), pair}),
            Pair(1, 3));
  // Not when both have run with others.
  RoundUnit other = MakePair(3, 4, 1, {0.1});
  other.time_received_s = {360};
  other.deficit_s = {0};
  EXPECT_EQ(Winner(cluster, {Owed(1, {0.5}, {0}, 1, 120),
                             Owed(2, {0.5}, {5000}), pair, other}),
            Alone(2));
}

TEST(Debts, AUnitMovesToAnotherTypeOnlyWhenItsDebtThereExceedsTheLead) {
  const Cluster cluster = OneOf({"v100", "k80"});
  for (const double owed : {359.0, 361.0}) {
    const RoundUnit unit = Owed(1, {0.5, 0.5}, {-owed, owed}, 1, 30);
    EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)),
              Ids({owed < 360 ? 1u : 2u}));
  }
}

TEST(Debts, AMoveThatCostsMoreThanAPauseWaitsForLonger) {
  const Cluster cluster = OneOf({"v100", "k80"});
  RoundUnit unit = Owed(1, {0.5, 0.5}, {-500, 500}, 1, 30);
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({2}));
  unit.move_cost_s = 120;  // 1440 s of lead, not 720
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({1}));
  unit.deficit_s = {-721, 721};
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({2}));
}

TEST(Debts, ANewAllocationMovesAUnitOnceItIsOwedMoreThanTheMoveCosts) {
  const Cluster cluster = OneOf({"v100", "k80"});
  // The policy wants it on the second type now.
  RoundUnit unit = Owed(1, {0, 1}, {0, 100}, 1, 120);
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({1}));
  unit.deficit_s = {0, 121};
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({2}));
  unit.deficit_s = {0, 0};
  unit.move_cost_s = 0;
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({2}));
  // However dear the move is, a debt of the longest lead is enough.
  unit.deficit_s = {0, kLeadRoundsMax * kRound_s + 1};
  unit.move_cost_s = 1e6;
  EXPECT_EQ(PlanRound(cluster, {unit}, kMoveAware).at(Alone(1)), Ids({2}));
}

TEST(Debts, WithoutLeftoversNobodyStaysWhereItHasNoShare) {
  const Cluster cluster = OneOf({"v100", "k80"});
  const RoundUnit unit = Owed(1, {0, 1}, {0, 100}, 1, 120);
  RoundOptions options = kMoveAware;
  options.work_conserving = false;
  EXPECT_EQ(PlanRound(cluster, {unit}, options).at(Alone(1)), Ids({2}));
}

TEST(Debts, WhoOnlyStaysForTheCostOfAMoveGivesWayToAnyShare) {
  const Cluster cluster = OneOf({"v100", "k80"});
  const std::vector<RoundUnit> units = {Owed(1, {0, 1}, {0, 100}, 1, 120),
                                        Owed(2, {0.1, 0}, {-500, 0})};
  EXPECT_EQ(PlanRound(cluster, units, kMoveAware),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
}

TEST(Debts, LeftoversAreKeptWithinTheLeadToo) {
  const Cluster cluster = OneOf({"gpu"});
  const RoundUnit runs = Owed(1, {0}, {-700}, 1, 30);
  EXPECT_EQ(Winner(cluster, {runs, Owed(2, {0}, {0})}), Alone(1));
  EXPECT_EQ(Winner(cluster, {runs, Owed(2, {0}, {21})}), Alone(2));
}

}  // namespace
}  // namespace gavel::testing
