#include <numeric>
#include <random>

#include "core/text.h"
#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

std::vector<std::string> Gpus(size_t count) {
  return std::vector<std::string>(count, "gpu");
}

// Where the accelerators of each job are when all of them run.
RoundAssignment PlaceOnType0(const Cluster& cluster,
                             const std::vector<RoundUnit>& units) {
  std::map<ShareUnit, size_t> type_of_unit;
  for (const RoundUnit& unit : units) type_of_unit[unit.unit] = 0;
  return PlaceAssignment(cluster, units, type_of_unit);
}

TEST(Placement, AGangGoesToOneServerWhenAnyHasRoom) {
  const Cluster cluster =
      MakeCluster({{"a", Gpus(2)}, {"b", Gpus(4)}, {"c", Gpus(8)}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 4, {1})}).at(Alone(1)),
            Ids({3, 4, 5, 6}));
}

TEST(Placement, AGangThatFitsNowhereGoesToTheFewestServers) {
  const Cluster cluster = MakeCluster(
      {{"a", Gpus(1)}, {"b", Gpus(1)}, {"c", Gpus(4)}, {"d", Gpus(2)}});
  // 4 + 2, not 4 + 1 + 1.
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 6, {1})}).at(Alone(1)),
            Ids({3, 4, 5, 6, 7, 8}));
  // The rest of a spread gang goes where it fits most tightly.
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 5, {1})}).at(Alone(1)),
            Ids({1, 3, 4, 5, 6}));
}

TEST(Placement, SingleWorkersFillServersThatArePartlyUsed) {
  const Cluster cluster = MakeCluster({{"a", Gpus(4)}, {"b", Gpus(4)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[0].holds = Ids({6});
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(2)), Ids({5}));
}

TEST(Placement, OfEqualHolesTheOneOnAServerInUseIsFilled) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(3)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[0].holds = Ids({3});
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(2)), Ids({4}));
}

TEST(Placement, GangsAreServedBeforeTheHolesAreTaken) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(2)}});
  const std::vector<RoundUnit> units = {
      MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1}), MakeUnit(3, 2, {1})};
  const RoundAssignment assignment = PlaceOnType0(cluster, units);
  EXPECT_EQ(assignment.at(Alone(3)), Ids({1, 2}));
  EXPECT_EQ(assignment.size(), 3u);
}

TEST(Placement, AGangOfFourIsOnOneServerOfFourWheneverOneHasRoom) {
  const Cluster cluster = MakeCluster(
      {{"a", Gpus(4)}, {"b", Gpus(4)}, {"c", Gpus(4)}, {"d", Gpus(4)}});
  // Seven single workers are on a, b and c: d at least is whole.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> ids(12);
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<RoundUnit> units = {MakeUnit(100, 4, {1})};
    for (uint64_t id = 1; id <= 7; ++id) {
      units.push_back(MakeUnit(id, 1, {1}));
      units.back().holds = Ids({ids[id - 1]});
    }
    const RoundAssignment assignment = PlaceOnType0(cluster, units);
    std::set<std::string> servers;
    for (const AcceleratorId id : assignment.at(Alone(100))) {
      servers.insert(cluster.accelerator(id).server);
    }
    EXPECT_EQ(servers.size(), 1u) << seed;
    EXPECT_EQ(RoundErrors(cluster, units, assignment), "");
  }
}

TEST(Placement, SingleWorkersLeaveWholeServersToGangs) {
  const Cluster cluster =
      MakeCluster({{"a", Gpus(4)}, {"b", Gpus(4)}, {"c", Gpus(4)}});
  std::vector<RoundUnit> units;
  for (uint64_t id = 1; id <= 4; ++id) units.push_back(MakeUnit(id, 1, {1}));
  units[0].holds = Ids({5});
  RoundAssignment assignment = PlaceOnType0(cluster, units);
  for (uint64_t id = 2; id <= 4; ++id) {
    const AcceleratorId where = assignment.at(Alone(id)).front();
    EXPECT_EQ(cluster.accelerator(where).server, "b");
  }
  // Two gangs that come then have a server each.
  Hold(assignment, units);
  units.push_back(MakeUnit(5, 4, {1}));
  units.push_back(MakeUnit(6, 4, {1}));
  assignment = PlaceOnType0(cluster, units);
  EXPECT_EQ(assignment.at(Alone(5)), Ids({1, 2, 3, 4}));
  EXPECT_EQ(assignment.at(Alone(6)), Ids({9, 10, 11, 12}));
}

TEST(Placement, ManyServersAreFilledTightly) {
  // Gangs of 3, 2 and 1 on servers of 4: as few as can be are left open.
  Servers servers;
  for (int s = 0; s < 50; ++s) servers.emplace_back(StrCat(s), Gpus(4));
  const Cluster cluster = MakeCluster(servers);
  std::vector<RoundUnit> units;
  for (uint64_t id = 1; id <= 60; ++id) {
    units.push_back(MakeUnit(id, static_cast<int>(id % 3) + 1, {1}));
  }
  const RoundAssignment assignment = PlaceOnType0(cluster, units);
  std::map<std::string, int> used;
  for (const auto& [unit, accelerators] : assignment) {
    for (const AcceleratorId id : accelerators) {
      ++used[cluster.accelerator(id).server];
    }
  }
  EXPECT_EQ(assignment.size(), 60u);
  EXPECT_EQ(used.size(), 30u);  // 120 accelerators
}

TEST(Placement, AJobReturnsToItsHomeServerWhenThereIsRoom) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(4)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1})};
  units[0].home_server = "b";
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(1)), Ids({2}));
  units[0].home_server = "gone";
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(1)), Ids({1}));
}

TEST(Placement, AJobThatSeesOneAcceleratorReturnsToItWhenItIsFree) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(3)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[1].home_server = "b";
  units[1].home = AcceleratorId(4);
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(2)), Ids({4}));
  units[0].holds = Ids({4});
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(2)), Ids({3}));
}

TEST(Placement, WhoHasAHomeIsPlacedBeforeWhoHasNone) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(1)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  units[1].home_server = "a";
  EXPECT_EQ(PlaceOnType0(cluster, units),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
}

TEST(Placement, AGangPrefersToBeTogetherOverItsHome) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 2, {1})};
  units[0].home_server = "a";
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(1)), Ids({2, 3}));
}

TEST(Placement, OtherTypesOnAServerDoNotCount) {
  const Cluster cluster =
      MakeCluster({{"a", {"gpu", "cpu", "gpu"}}, {"b", {"cpu"}}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 2, {1, 0})}).at(Alone(1)),
            Ids({1, 3}));
  EXPECT_TRUE(PlaceOnType0(cluster, {MakeUnit(1, 3, {1, 0})}).empty());
}

TEST(Placement, TwoJobsThatClaimOneAcceleratorDoNotBothGetIt) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1})};
  for (RoundUnit& unit : units) unit.holds = Ids({2});
  EXPECT_EQ(PlaceOnType0(cluster, units),
            (RoundAssignment{{Alone(1), Ids({2})}, {Alone(2), Ids({1})}}));
}

TEST(TypeHeld, OnlyACompleteUsableGangOfOneTypeIsHeld) {
  Cluster cluster = MakeCluster({{"a", {"gpu", "gpu", "cpu"}}});
  RoundUnit unit = MakeUnit(1, 2, {1, 1});
  EXPECT_EQ(TypeHeld(cluster, unit), kNoIndex);
  unit.holds = Ids({1, 2});
  EXPECT_EQ(TypeHeld(cluster, unit), 0u);
  unit.holds = Ids({1, 3});
  EXPECT_EQ(TypeHeld(cluster, unit), kNoIndex);
  unit.holds = Ids({1});
  EXPECT_EQ(TypeHeld(cluster, unit), kNoIndex);
  unit.holds = Ids({1, 2});
  cluster.MarkLost(AcceleratorId(2));
  EXPECT_EQ(TypeHeld(cluster, unit), kNoIndex);
}

}  // namespace
}  // namespace gavel::testing
