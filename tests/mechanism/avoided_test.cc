// Accelerators that a unit avoids.

#include <random>

#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// The accelerators that a job avoids, by id; true: it never runs on them. The
// job is job 1 unless another one is named.
using Avoided = std::map<uint64_t, bool>;

std::map<JobId, RoundTable::Avoided> By(uint64_t job, const Avoided& avoided) {
  std::map<JobId, RoundTable::Avoided> by;
  for (const auto& [id, never] : avoided)
    by[JobId(job)][AcceleratorId(id)] = never;
  return by;
}

RoundAssignment PlanAvoiding(const Cluster& cluster,
                             const std::vector<RoundUnit>& units,
                             const Avoided& avoided, uint64_t job = 1,
                             const RoundOptions& options = {}) {
  RoundTable table(units);
  table.SetAvoided(By(job, avoided));
  RoundAssignment plan = gavel::PlanRound(cluster, table, options);
  EXPECT_EQ(RoundErrors(cluster, units, plan), "");
  return plan;
}

constexpr RoundOptions kMidRound{.keep_running = true};

TEST(Avoided, AnotherAcceleratorOfTheTypeGoesFirst) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(2)}});
  RoundUnit unit = MakeUnit(1, 1, {1});
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {}).at(Alone(1)), Ids({1}));
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{1, false}}).at(Alone(1)), Ids({2}));
  unit.home_server = "a";
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{1, false}}).at(Alone(1)), Ids({2}));
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{1, false}, {2, true}}).at(Alone(1)),
            Ids({3}));
}

TEST(Avoided, IsTakenWhereThereIsNoOther) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  const RoundUnit unit = MakeUnit(1, 1, {1});
  EXPECT_EQ(
      PlanAvoiding(cluster, {unit}, {{1, false}, {2, false}}).at(Alone(1)),
      Ids({1}));
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{1, true}, {2, false}}).at(Alone(1)),
            Ids({2}));
  const RoundUnit gang = MakeUnit(1, 2, {1});
  EXPECT_EQ(PlanAvoiding(cluster, {gang}, {{1, false}}).at(Alone(1)),
            Ids({1, 2}));
}

TEST(Avoided, OthersLeaveToTheUnitWhatItDoesNotAvoid) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  const std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}),
                                        MakeUnit(2, 1, {1})};
  EXPECT_EQ(PlanAvoiding(cluster, units, {{2, false}}, 2).at(Alone(2)),
            Ids({1}));
  EXPECT_EQ(PlanAvoiding(cluster, units, {{1, false}}, 2).at(Alone(2)),
            Ids({2}));
}

TEST(Avoided, IsLeftForAnIdleOneAtTheRoundsEnd) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  RoundUnit unit = MakeUnit(1, 1, {1});
  unit.holds = Ids({1});
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{2, false}}).at(Alone(1)), Ids({1}));
  EXPECT_EQ(PlanAvoiding(cluster, {unit}, {{1, false}}).at(Alone(1)), Ids({2}));
  EXPECT_EQ(
      PlanAvoiding(cluster, {unit}, {{1, false}}, 1, kMidRound).at(Alone(1)),
      Ids({1}));
  RoundUnit other = MakeUnit(2, 1, {1});
  other.holds = Ids({2});
  EXPECT_EQ(PlanAvoiding(cluster, {unit, other}, {{1, false}}).at(Alone(1)),
            Ids({1}));
}

TEST(Avoided, ForEverIsNeverTaken) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  const Avoided all = {{1, true}, {2, true}};
  EXPECT_TRUE(PlanAvoiding(cluster, {MakeUnit(1, 1, {1})}, all).empty());
  EXPECT_TRUE(
      PlanAvoiding(cluster, {MakeUnit(1, 2, {1})}, {{2, true}}).empty());
}

TEST(Avoided, WhatAUnitMayNotUseIsThereForOthers) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1}),
                                  MakeUnit(3, 1, {1})};
  units[1].holds = Ids({2});
  units[2].time_received_s = {1000};
  for (const RoundOptions& options : {RoundOptions(), kMidRound}) {
    const RoundAssignment plan =
        PlanAvoiding(cluster, units, {{1, true}, {2, true}}, 1, options);
    EXPECT_FALSE(plan.contains(Alone(1)));
    EXPECT_EQ(plan.at(Alone(2)), Ids({2}));
    EXPECT_EQ(plan.at(Alone(3)), Ids({1}));
  }
}

// A running unit moves to the accelerator that the other unit never uses, if it
// may run there. Otherwise the other unit would wait for as long as it runs.
TEST(Avoided, ForEverIsTakenByOneThatRunsWhereTheUnitMay) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[1].holds = Ids({2});
  const RoundAssignment plan = PlanAvoiding(cluster, units, {{1, true}});
  EXPECT_EQ(plan.at(Alone(1)), Ids({2}));
  EXPECT_EQ(plan.at(Alone(2)), Ids({1}));
  const RoundAssignment filled =
      PlanAvoiding(cluster, units, {{1, true}}, 1, kMidRound);
  EXPECT_EQ(filled.at(Alone(2)), Ids({2})) << "nobody is disturbed";
  EXPECT_FALSE(filled.contains(Alone(1)));
}

TEST(Avoided, APairAvoidsWhatOneOfItsJobsDoes) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  const RoundUnit pair = MakePair(1, 2, 1, {1});
  for (const uint64_t job : {1, 2}) {
    EXPECT_EQ(PlanAvoiding(cluster, {pair}, {{1, false}}, job).at(Pair(1, 2)),
              Ids({2}));
  }
  // The pair also avoids it where one of its jobs runs there already.
  RoundUnit alone = MakeUnit(1, 1, {0});
  alone.holds = Ids({1});
  EXPECT_EQ(PlanAvoiding(cluster, {alone, pair}, {{1, false}}).at(Pair(1, 2)),
            Ids({2}));
}

TEST(Avoided, AStragglerIsBetterThanWhatIsAvoided) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  RoundTable table(std::vector<RoundUnit>{MakeUnit(1, 1, {1})});
  table.SetSlow({{AcceleratorId(2), 0.5}});
  table.SetAvoided(By(1, {{1, false}}));
  EXPECT_EQ(gavel::PlanRound(cluster, table, {}).at(Alone(1)), Ids({2}));
  table.SetSlow({{AcceleratorId(1), 0.5}, {AcceleratorId(2), 0.5}});
  EXPECT_EQ(gavel::PlanRound(cluster, table, {}).at(Alone(1)), Ids({2}));
}

// Avoidance breaks no other rule of a round, no unit gets an accelerator that
// it avoids for ever, and soft avoidance costs no unit its place.
TEST(Avoided, RandomRoundsKeepTheRules) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    std::vector<RoundUnit> units = RandomUnits(cluster, 12, 3, random, 3);
    std::map<JobId, RoundTable::Avoided> soft, hard;
    for (uint64_t job = 1; job <= 12; ++job) {
      for (size_t id = 1; id <= cluster.accelerators().size(); ++id) {
        if (random() % 4 != 0) continue;
        soft[JobId(job)][AcceleratorId(id)] = false;
        hard[JobId(job)][AcceleratorId(id)] = random() % 2 == 0;
      }
    }
    const RoundAssignment before = PlanRound(cluster, units, {});
    Hold(before, units);
    RoundTable table(units);
    const size_t plain = gavel::PlanRound(cluster, table, {}).size();
    table.SetAvoided(soft);
    const RoundAssignment softly = gavel::PlanRound(cluster, table, {});
    EXPECT_EQ(RoundErrors(cluster, units, softly), "") << seed;
    EXPECT_EQ(softly.size(), plain) << seed;
    table.SetAvoided(hard);
    const RoundAssignment hardly = gavel::PlanRound(cluster, table, {});
    EXPECT_EQ(RoundErrors(cluster, units, hardly), "") << seed;
    for (const auto& [unit, places] : hardly) {
      for (const JobId job : {unit.job, unit.partner}) {
        for (const AcceleratorId id : places) {
          const auto avoided = hard.find(job);
          if (avoided == hard.end() || !avoided->second.contains(id)) continue;
          EXPECT_FALSE(avoided->second.at(id)) << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gavel::testing
