#include <numeric>
#include <random>

#include "core/text.h"
#include "tests/mechanism/round_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

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

// `racks`: of servers, each with the sizes of its groups; 0: one accelerator
// without a group. Servers without groups or racks have none.
Cluster ClusterOf(const std::vector<std::vector<std::vector<int>>>& racks) {
  Cluster cluster;
  int server = 0;
  for (size_t rack = 0; rack < racks.size(); ++rack) {
    for (const std::vector<int>& groups : racks[rack]) {
      std::vector<AcceleratorInfo> all;
      for (size_t group = 0; group < groups.size(); ++group) {
        for (int i = 0; i < std::max(1, groups[group]); ++i) {
          AcceleratorInfo& info = all.emplace_back();
          info.type = "gpu";
          info.uuid = StrCat(all.size());
          if (groups[group] > 0) info.group = StrCat("g", group);
        }
      }
      EXPECT_OK(cluster.Join(StrCat("server-", 100 + server++), all,
                             StrCat("rack-", rack)));
    }
  }
  return cluster;
}

TEST(Placement, AGangGoesToOneGroupWhenAnyHasRoom) {
  // 1 and 2 are joined, 3 to 6 too; 7 to 10 are not.
  const Cluster cluster = ClusterOf({{{2, 4}, {0, 0, 0, 0}}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 2, {1})}).at(Alone(1)),
            Ids({1, 2}));
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 3, {1})}).at(Alone(1)),
            Ids({3, 4, 5}));
  // Both groups are used in part: the server that has two left in one group.
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 2, {1})};
  units[0].holds = Ids({1});
  EXPECT_EQ(PlaceOnType0(cluster, units).at(Alone(2)), Ids({3, 4}));
}

TEST(Placement, SingleWorkersLeaveGroupsWhole) {
  const Cluster cluster = ClusterOf({{{2, 2, 0}}});
  std::vector<RoundUnit> units = {MakeUnit(1, 1, {1}), MakeUnit(2, 1, {1}),
                                  MakeUnit(3, 1, {1})};
  const RoundAssignment assignment = PlaceOnType0(cluster, units);
  EXPECT_EQ(assignment.at(Alone(1)), Ids({5})) << "it is in no group";
  EXPECT_EQ(cluster.LevelOf(std::vector{assignment.at(Alone(2)).front(),
                                        assignment.at(Alone(3)).front()}),
            Locality::kGroup);
}

TEST(Placement, AGangThatFitsOnNoServerGoesToOneRack) {
  // Racks of 2 + 2 and of 3 + 1; the largest servers are in different ones.
  const Cluster cluster = ClusterOf({{{0, 0}, {0, 0}}, {{0, 0, 0}, {0}}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 4, {1})}).at(Alone(1)),
            Ids({1, 2, 3, 4}));
  // Neither has five: the fewest servers.
  EXPECT_EQ(PlaceOnType0(cluster, {MakeUnit(1, 5, {1})}).at(Alone(1)),
            Ids({1, 2, 5, 6, 7}));
}

// On random clusters, partly in use, no set of free accelerators is tighter
// than the one that a gang gets.
TEST(Placement, NoTighterLevelHasRoom) {
  std::map<Locality, int> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<std::vector<int>>> racks(1 + random() % 3);
    for (auto& servers : racks) {
      servers.resize(1 + random() % 3);
      for (auto& groups : servers) {
        groups.resize(1 + random() % 3);
        for (int& size : groups) size = static_cast<int>(random() % 4);
      }
    }
    const Cluster cluster = ClusterOf(racks);
    std::vector<RoundUnit> units = {
        MakeUnit(100, static_cast<int>(2 + random() % 4), {1})};
    std::set<AcceleratorId> free;
    for (const Accelerator& one : cluster.accelerators()) {
      if (random() % 2 == 0) {
        free.insert(one.id);
        continue;
      }
      units.push_back(MakeUnit(one.id.value(), 1, {1}));
      units.back().holds = {one.id};
    }
    const auto wanted = static_cast<size_t>(units[0].scale_factor);
    if (free.size() < wanted) continue;
    std::map<std::pair<std::string, std::string>, size_t> groups;
    std::map<std::string, size_t> servers;
    std::map<std::string, size_t> in_rack;
    Locality best = Locality::kCluster;
    const auto reach = [&](Locality level, size_t count) {
      if (count >= wanted) best = std::min(best, level);
    };
    for (const AcceleratorId id : free) {
      const Accelerator& one = cluster.accelerator(id);
      reach(Locality::kRack, ++in_rack[one.rack]);
      reach(Locality::kServer, ++servers[one.server]);
      if (one.info.group.empty()) continue;
      reach(Locality::kGroup, ++groups[{one.server, one.info.group}]);
    }
    const RoundAssignment assignment = PlaceOnType0(cluster, units);
    ASSERT_EQ(cluster.LevelOf(assignment.at(Alone(100))), best) << seed;
    ++seen[best];
  }
  EXPECT_EQ(seen.size(), kLocalities) << "the test has cases of each level";
}

}  // namespace
}  // namespace gavel::testing
