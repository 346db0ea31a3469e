#include <random>

#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

RoundTable TableOf(const std::vector<RoundUnit>& units,
                   const std::vector<uint64_t>& slow) {
  RoundTable table(units);
  std::map<AcceleratorId, double> speeds;
  for (const AcceleratorId id : Ids(slow)) speeds[id] = 0.5;
  table.SetSlow(std::move(speeds));
  return table;
}

RoundAssignment Plan(const Cluster& cluster,
                     const std::vector<RoundUnit>& units,
                     const std::vector<uint64_t>& slow,
                     const RoundOptions& options = {}) {
  RoundAssignment plan =
      gavel::PlanRound(cluster, TableOf(units, slow), options);
  EXPECT_EQ(RoundErrors(cluster, units, plan), "");
  return plan;
}

TEST(Stragglers, ANormalAcceleratorOfTheTypeGoesFirst) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(2)}});
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 1, {1})}, {}).at(Alone(1)), Ids({1}));
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 1, {1})}, {1}).at(Alone(1)), Ids({2}));
  // Even where its process is.
  RoundUnit back = MakeUnit(1, 1, {1});
  back.home_server = "a";
  EXPECT_EQ(Plan(cluster, {back}, {1}).at(Alone(1)), Ids({2}));
  EXPECT_EQ(Plan(cluster, {back}, {1, 2, 3}).at(Alone(1)), Ids({1}));
}

TEST(Stragglers, WhoIsOwedLeastGetsTheStraggler) {
  const Cluster cluster = MakeCluster({{"a", Gpus(3)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1}),
                                  MakeUnit(3, 1, {1})};
  units[0].time_received_s = {1000};
  EXPECT_EQ(Plan(cluster, units, {2}).at(Alone(1)), Ids({2}));
  units[1].time_received_s = {2000};
  EXPECT_EQ(Plan(cluster, units, {2}).at(Alone(2)), Ids({2}));
  // A home does not put it ahead of those that are owed more.
  units[1].home_server = "a";
  EXPECT_EQ(Plan(cluster, units, {2}).at(Alone(2)), Ids({2}));
}

TEST(Stragglers, AreUsedRatherThanNothing) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  const std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}),
                                        MakeUnit(2, 1, {1})};
  EXPECT_EQ(Plan(cluster, units, {1, 2}).size(), 2u);
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 2, {1})}, {1, 2}).size(), 1u);
}

TEST(Stragglers, AGangGoesToAServerWithoutOne) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(3)}});
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 2, {1})}, {}).at(Alone(1)), Ids({1, 2}));
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 2, {1})}, {2}).at(Alone(1)),
            Ids({3, 4}));
  // Also on a server that has room beside one.
  EXPECT_EQ(Plan(cluster, {MakeUnit(1, 2, {1})}, {2, 3}).at(Alone(1)),
            Ids({4, 5}));
}

TEST(Stragglers, AGangStaysOnOneServerAndElseAvoidsThem) {
  const Cluster one = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(2)}});
  EXPECT_EQ(Plan(one, {MakeUnit(1, 2, {1})}, {1, 3}).at(Alone(1)), Ids({1, 2}));
  const Cluster spread =
      MakeCluster({{"a", Gpus(2)}, {"b", Gpus(1)}, {"c", Gpus(1)}});
  EXPECT_EQ(Plan(spread, {MakeUnit(1, 3, {1})}, {3}).at(Alone(1)),
            Ids({1, 2, 4}));
}

TEST(Stragglers, AGangThatNeedsOneTakesAllOfItsServer) {
  const Cluster cluster = MakeCluster({{"a", Gpus(5)}});
  const RoundAssignment plan =
      Plan(cluster, {MakeUnit(1, 1, {1}), MakeUnit(2, 4, {1})}, {4, 5});
  EXPECT_EQ(plan.at(Alone(2)), Ids({1, 2, 4, 5}));
  EXPECT_EQ(plan.at(Alone(1)), Ids({3}));
}

TEST(Stragglers, OfGangsOfOneSizeTheOneThatIsOwedMoreAvoidsThem) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 2, {1}), MakeUnit(2, 2, {1})};
  units[0].time_received_s = {1000};
  EXPECT_EQ(Plan(cluster, units, {1}).at(Alone(1)), Ids({1, 2}));
  EXPECT_EQ(Plan(cluster, units, {3}).at(Alone(1)), Ids({3, 4}));
}

TEST(Stragglers, AUnitLeavesOneForAnIdleAcceleratorWhenTheMovePays) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(1)}});
  RoundUnit unit = MakeUnit(1, 1, {1});
  unit.holds = Ids({1});
  const RoundOptions round{.round_duration_s = 100};
  EXPECT_EQ(Plan(cluster, {unit}, {1}, round).at(Alone(1)), Ids({2}));
  EXPECT_EQ(Plan(cluster, {unit}, {1, 2}, round).at(Alone(1)), Ids({1}));
  unit.move_cost_s = 51;
  EXPECT_EQ(Plan(cluster, {unit}, {1}, round).at(Alone(1)), Ids({1}));
  unit.move_cost_s = 49;
  EXPECT_EQ(Plan(cluster, {unit}, {1}, round).at(Alone(1)), Ids({2}));
  // Nobody is interrupted in the middle of a round.
  RoundOptions fill = round;
  fill.keep_running = true;
  EXPECT_EQ(Plan(cluster, {unit}, {1}, fill).at(Alone(1)), Ids({1}));
  // Neither by a policy that says who runs.
  EXPECT_EQ(gavel::PlaceAssignment(cluster, TableOf({unit}, {1}),
                                   std::vector<uint32_t>{0})
                .at(Alone(1)),
            Ids({1}));
}

TEST(Stragglers, WhoWaitsGetsTheIdleAcceleratorBeforeWhoWouldLeaveOne) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[0].holds = Ids({1});
  const RoundAssignment plan = Plan(cluster, units, {1});
  EXPECT_EQ(plan.at(Alone(1)), Ids({1}));
  EXPECT_EQ(plan.at(Alone(2)), Ids({2}));
  // And does not change places with it in the next round.
  Hold(plan, units);
  EXPECT_EQ(Plan(cluster, units, {1}), plan);
}

TEST(Stragglers, AGangLeavesOneOnlyForAsFewServers) {
  const Cluster spread =
      MakeCluster({{"a", Gpus(2)}, {"b", Gpus(1)}, {"c", Gpus(1)}});
  RoundUnit gang = MakeUnit(1, 2, {1});
  gang.holds = Ids({1, 2});
  EXPECT_EQ(Plan(spread, {gang}, {2}).at(Alone(1)), Ids({1, 2}));
  const Cluster wide = MakeCluster({{"a", Gpus(3)}, {"b", Gpus(2)}});
  gang.home_server = "a";
  EXPECT_EQ(Plan(wide, {gang}, {2}).at(Alone(1)), Ids({1, 3}));
  EXPECT_EQ(Plan(wide, {gang}, {2, 3}).at(Alone(1)), Ids({4, 5}));
}

TEST(Stragglers, PlacesThatAreKeptBetweenPlansAreWhole) {
  const Cluster cluster = MakeCluster({{"a", Gpus(3)}});
  const std::vector<uint8_t> given(3, 0);
  FreePlaces free(cluster, given);
  const RoundTable table = TableOf({MakeUnit(1, 1, {1})}, {1, 2});
  EXPECT_EQ(
      gavel::PlaceAssignment(cluster, table, std::vector<uint32_t>{0}, &free)
          .at(Alone(1)),
      Ids({3}));
  EXPECT_EQ(free.Counts(), std::vector<int>{2});
  EXPECT_TRUE(free.IsFree(AcceleratorId(1)));
}

// Whatever is slow: the rules of a round hold, the same units run on the same
// types, and where nothing changes they come to rest.
TEST(Stragglers, OnlyChangeWhereUnitsRun) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    std::vector<RoundUnit> units =
        RandomUnits(cluster, 1 + random() % 12, 3, random, random() % 4);
    std::vector<uint64_t> slow;
    for (const Accelerator& accelerator : cluster.accelerators()) {
      if (random() % 3 == 0) slow.push_back(accelerator.id.value());
    }
    const RoundOptions& options = seed % 2 == 0 ? RoundOptions() : kMoveAware;
    const RoundAssignment plain = Plan(cluster, units, {}, options);
    RoundAssignment plan = Plan(cluster, units, slow, options);
    ASSERT_EQ(plan.size(), plain.size()) << seed;
    for (const auto& [unit, places] : plan) {
      ASSERT_TRUE(plain.contains(unit)) << seed;
      EXPECT_EQ(cluster.TypeOf(places.front()),
                cluster.TypeOf(plain.at(unit).front()));
    }
    EXPECT_EQ(IdleErrors(cluster, units, plan), "") << seed;
    for (int round = 0; round < 2; ++round) {
      Hold(plan, units);
      plan = Plan(cluster, units, slow, options);
    }
    Hold(plan, units);
    EXPECT_EQ(Plan(cluster, units, slow, options), plan) << seed;
  }
}

}  // namespace
}  // namespace gavel::testing
