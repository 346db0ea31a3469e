#include "coordinator/mechanism/cluster.h"

#include <algorithm>
#include <ctime>
#include <limits>

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

AcceleratorInfo Info(const std::string& type, const std::string& uuid) {
  AcceleratorInfo info;
  info.type = type;
  info.uuid = uuid;
  return info;
}

class ClusterTest : public Test {
 protected:
  Cluster cluster;
};

TEST_F(ClusterTest, TypesAreInTheOrderOfTheirFirstAppearance) {
  ASSERT_OK(cluster.Join("b", {Info("v100", "0"), Info("k80", "1")}));
  ASSERT_OK(cluster.Join("a", {Info("k80", "0"), Info("a100", "1")}));
  EXPECT_EQ(cluster.types(), (std::vector<std::string>{"v100", "k80", "a100"}));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(cluster.TypeIndex("k80"), 1);
  EXPECT_EQ(cluster.TypeIndex("h200"), -1);
}

TEST_F(ClusterTest, AcceleratorsAreNumberedFromOneInTheOrderSeen) {
  ASSERT_OK(cluster.Join("b", {Info("v100", "x"), Info("k80", "y")}));
  ASSERT_OK(cluster.Join("a", {Info("k80", "x")}));
  ASSERT_EQ(cluster.accelerators().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster.accelerators()[i].id, AcceleratorId(i + 1));
  }
  EXPECT_EQ(cluster.accelerator(AcceleratorId(2)).server, "b");
  EXPECT_EQ(cluster.accelerator(AcceleratorId(2)).index, 1);
  EXPECT_EQ(cluster.TypeOf(AcceleratorId(3)), 1);
  EXPECT_EQ(cluster.servers().at("a"),
            (std::vector<AcceleratorId>{AcceleratorId(3)}));
}

TEST_F(ClusterTest, AServerThatReturnsGetsItsAcceleratorsBackByUuid) {
  ASSERT_OK(cluster.Join("s", {Info("v100", "x"), Info("v100", "y")}));
  cluster.MarkUnreachable("s");
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{0}));
  EXPECT_EQ(cluster.accelerator(AcceleratorId(1)).state,
            AcceleratorState::kUnreachable);
  ASSERT_OK(cluster.Join("s", {Info("v100", "y"), Info("v100", "x")}));
  EXPECT_EQ(cluster.accelerators().size(), 2u);
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{2}));
  EXPECT_EQ(cluster.accelerator(AcceleratorId(1)).info.uuid, "x");
  EXPECT_EQ(cluster.accelerator(AcceleratorId(1)).index, 1);
}

TEST_F(ClusterTest, WhatAServerNoLongerDeclaresIsNotUsable) {
  ASSERT_OK(cluster.Join("s", {Info("v100", "x"), Info("v100", "y")}));
  ASSERT_OK(cluster.Join("s", {Info("v100", "y"), Info("v100", "z")}));
  EXPECT_EQ(cluster.accelerators().size(), 3u);
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{2}));
  EXPECT_EQ(cluster.accelerator(AcceleratorId(1)).state,
            AcceleratorState::kUnreachable);
}

TEST_F(ClusterTest, ALostAcceleratorStaysLostWhenItsServerReturns) {
  const std::vector<AcceleratorInfo> declared = {Info("v100", "x"),
                                                 Info("v100", "y")};
  ASSERT_OK(cluster.Join("s", declared));
  cluster.MarkLost(AcceleratorId(1));
  cluster.MarkUnreachable("s");
  EXPECT_EQ(cluster.accelerator(AcceleratorId(1)).state,
            AcceleratorState::kLost);
  ASSERT_OK(cluster.Join("s", declared));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1}));
}

// Counted anew from the accelerators themselves.
void ExpectUsableCounted(const Cluster& cluster) {
  std::vector<int> capacity(cluster.types().size(), 0);
  ASSERT_EQ(cluster.usable_types().size(), cluster.accelerators().size());
  for (const Accelerator& accelerator : cluster.accelerators()) {
    const int type = cluster.TypeOf(accelerator.id);
    const bool usable = accelerator.state == AcceleratorState::kUsable;
    if (usable) ++capacity[static_cast<size_t>(type)];
    EXPECT_EQ(cluster.usable_types()[accelerator.id.value() - 1],
              usable ? static_cast<uint32_t>(type) : Cluster::kUnusable);
  }
  EXPECT_EQ(cluster.Capacity(), capacity);
}

TEST_F(ClusterTest, WhatIsUsableIsCountedWhateverComesAndGoes) {
  ASSERT_OK(cluster.Join("a", {Info("v100", "0"), Info("k80", "1")}));
  ASSERT_OK(cluster.Join("b", {Info("k80", "0")}));
  ExpectUsableCounted(cluster);
  cluster.MarkLost(AcceleratorId(2));
  cluster.MarkLost(AcceleratorId(2));
  ExpectUsableCounted(cluster);
  cluster.MarkUnreachable("a");
  cluster.MarkUnreachable("a");
  ExpectUsableCounted(cluster);
  // One of another type than before, one new, and the lost one again.
  ASSERT_OK(cluster.Join(
      "a", {Info("a100", "0"), Info("k80", "1"), Info("a100", "2")}));
  ExpectUsableCounted(cluster);
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{0, 1, 2}));
}

TEST_F(ClusterTest, WhatIsUsableIsCountedFromItsState) {
  ASSERT_OK(cluster.Join("a", {Info("v100", "0"), Info("k80", "1")}));
  cluster.MarkLost(AcceleratorId(1));
  Cluster copy;
  Cluster::State(copy) = Cluster::State(std::as_const(cluster));
  copy.CountUsable();
  ExpectUsableCounted(copy);
  EXPECT_EQ(copy.Capacity(), cluster.Capacity());
}

TEST_F(ClusterTest, EqualUuidsOnTwoServersAreTwoAccelerators) {
  ASSERT_OK(cluster.Join("a", {Info("cpu", "0")}));
  ASSERT_OK(cluster.Join("b", {Info("cpu", "0")}));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{2}));
  cluster.MarkUnreachable("a");
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1}));
}

TEST_F(ClusterTest, ADuplicateUuidIsRefusedAndChangesNothing) {
  EXPECT_THAT(cluster.Join("s", {Info("cpu", "0"), Info("cpu", "0")}),
              IsInvalid("server s"));
  EXPECT_TRUE(cluster.accelerators().empty());
  EXPECT_TRUE(cluster.servers().empty());
}

TEST_F(ClusterTest, AnUnknownServerMayBeUnreachable) {
  cluster.MarkUnreachable("nobody");
  EXPECT_TRUE(cluster.servers().empty());
}

TEST_F(ClusterTest, DrainedAcceleratorsDoNotCountAndStaySoOverAJoin) {
  ASSERT_OK(cluster.Join("s", {Info("v100", "x"), Info("v100", "y")}));
  cluster.SetDrained(AcceleratorId(1), true);
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1}));
  EXPECT_FALSE(cluster.accelerator(AcceleratorId(1)).usable());
  cluster.SetDrained(AcceleratorId(2), true);
  ASSERT_OK(cluster.Join(
      "s", {Info("v100", "x"), Info("v100", "y"), Info("v100", "z")}));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{0})) << "a new one, too";
  cluster.SetDrained(AcceleratorId(1), false);
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1}));
}

TEST_F(ClusterTest, AServerThatLeavesIsUsableAfterItsNextJoin) {
  ASSERT_OK(cluster.Join("s", {Info("v100", "x")}));
  cluster.SetLeaving("s");
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{0}));
  ASSERT_OK(cluster.Join("s", {Info("v100", "x")}));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1}));
}

TEST_F(ClusterTest, AForgottenServerIsNoMoreButItsIdsAreNotGivenAgain) {
  ASSERT_OK(cluster.Join("s", {Info("v100", "x")}));
  ASSERT_OK(cluster.Join("t", {Info("k80", "x")}));
  EXPECT_EQ(cluster.places().size(), 2u);
  cluster.Forget("s");
  EXPECT_FALSE(cluster.servers().contains("s"));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{0, 1}));
  EXPECT_FALSE(cluster.HasType(0));
  EXPECT_TRUE(cluster.HasType(1));
  EXPECT_EQ(cluster.size(), 1u);
  EXPECT_EQ(cluster.places().size(), 1u);
  ASSERT_OK(cluster.Join("s", {Info("v100", "x")}));
  EXPECT_EQ(cluster.Find("s", "x"), AcceleratorId(3));
  EXPECT_EQ(cluster.Capacity(), (std::vector<int>{1, 1}));
}

// Joins `count` servers with one exclusive accelerator each.
void JoinExclusive(Cluster& cluster, size_t count) {
  AcceleratorInfo info = Info("v100", "x");
  info.exclusive = true;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_OK(cluster.Join(StrCat("s", i), {info}));
  }
}

TEST_F(ClusterTest, ATypeIsExclusiveWhileOneServerSaysSo) {
  ASSERT_OK(cluster.Join("open", {Info("v100", "x"), Info("k80", "y")}));
  EXPECT_FALSE(cluster.IsExclusive(0));
  JoinExclusive(cluster, 2);
  EXPECT_TRUE(cluster.IsExclusive(0));
  EXPECT_FALSE(cluster.IsExclusive(1));
  cluster.MarkUnreachable("s0");
  cluster.Forget("s0");
  EXPECT_TRUE(cluster.IsExclusive(0));
  Cluster copy;
  Cluster::State(copy) = Cluster::State(std::as_const(cluster));
  copy.CountUsable();
  EXPECT_TRUE(copy.IsExclusive(0));
  copy.Forget("s1");
  EXPECT_FALSE(copy.IsExclusive(0));
  // The last one changes its mode.
  ASSERT_OK(cluster.Join("s1", {Info("v100", "x")}));
  EXPECT_FALSE(cluster.IsExclusive(0));
  EXPECT_TRUE(cluster.HasType(0));
}

// CPU seconds of 100 joins of known servers: the least of several tries, since
// what else runs can only add to it.
double JoinSeconds(Cluster& cluster) {
  double least_s = std::numeric_limits<double>::max();
  for (int i = 0; i < 10; ++i) {
    const std::clock_t begin = std::clock();
    JoinExclusive(cluster, 100);
    const std::clock_t took = std::clock() - begin;
    least_s = std::min(least_s, static_cast<double>(took) / CLOCKS_PER_SEC);
  }
  return least_s;
}

// Where a join looks at all accelerators, it costs several hundred times as
// much in the large cluster.
TEST_F(ClusterTest, AJoinCostsTheSameHoweverLargeTheClusterIs) {
  Cluster small;
  JoinExclusive(small, 100);
  JoinExclusive(cluster, 100'000);
  EXPECT_LT(JoinSeconds(cluster), 20 * JoinSeconds(small));
}

TEST(Cluster, TellsTheTightestLevelOfAccelerators) {
  Cluster cluster;
  const auto join = [&](const std::string& server, std::string_view rack,
                        const std::vector<std::string>& groups) {
    std::vector<AcceleratorInfo> all;
    for (const std::string& group : groups) {
      all.push_back(Info("v100", StrCat(all.size())));
      all.back().group = group;
    }
    ASSERT_OK(cluster.Join(server, all, rack));
  };
  join("a", "r1", {"g", "g", "h", ""});  // 1 to 4
  join("b", "r1", {"g", ""});            // 5 and 6
  join("c", "", {"g"});                  // 7
  join("d", "", {"g"});                  // 8
  const auto level = [&](const std::vector<uint64_t>& numbers) {
    std::vector<AcceleratorId> ids;
    for (const uint64_t number : numbers) ids.emplace_back(number);
    return cluster.LevelOf(ids);
  };
  EXPECT_EQ(level({1, 2}), Locality::kGroup);
  EXPECT_EQ(level({1, 2, 3}), Locality::kServer);
  EXPECT_EQ(level({4, 4}), Locality::kServer) << "it has no group";
  EXPECT_EQ(level({1}), Locality::kServer) << "one alone";
  EXPECT_EQ(level({1, 5}), Locality::kRack) << "groups are of one server";
  EXPECT_EQ(level({1, 7}), Locality::kCluster);
  EXPECT_EQ(level({7, 8}), Locality::kCluster) << "in no rack at all";
  // The agent comes back with another layout.
  join("a", "r2", {"", "g", "g", ""});
  EXPECT_EQ(level({1, 2}), Locality::kServer);
  EXPECT_EQ(level({2, 3}), Locality::kGroup);
  EXPECT_EQ(level({1, 5}), Locality::kCluster);
  EXPECT_EQ(cluster.places()[0].group, Cluster::kNowhere);
  EXPECT_EQ(cluster.places()[1].group, cluster.places()[2].group);
}

}  // namespace
}  // namespace gavel::testing
