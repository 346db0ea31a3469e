#include "coordinator/mechanism/placement.h"

#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

std::vector<std::string> Gpus(size_t count) {
  return std::vector<std::string>(count, "gpu");
}

// Where the accelerators of each job are when all of them run.
RoundAssignment PlaceOnType0(const Cluster& cluster,
                             const std::vector<RoundJob>& jobs) {
  std::map<JobId, size_t> type_of_job;
  for (const RoundJob& job : jobs) type_of_job[job.id] = 0;
  return PlaceAssignment(cluster, jobs, type_of_job);
}

TEST(Placement, AGangGoesToOneServerWhenAnyHasRoom) {
  const Cluster cluster =
      MakeCluster({{"a", Gpus(2)}, {"b", Gpus(4)}, {"c", Gpus(8)}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeJob(1, 4, {1})}).at(JobId(1)),
            Ids({3, 4, 5, 6}));
}

TEST(Placement, AGangThatFitsNowhereGoesToTheFewestServers) {
  const Cluster cluster = MakeCluster(
      {{"a", Gpus(1)}, {"b", Gpus(1)}, {"c", Gpus(4)}, {"d", Gpus(2)}});
  // 4 + 2, not 4 + 1 + 1.
  EXPECT_EQ(PlaceOnType0(cluster, {MakeJob(1, 6, {1})}).at(JobId(1)),
            Ids({3, 4, 5, 6, 7, 8}));
  // The rest of a spread gang goes where it fits most tightly.
  EXPECT_EQ(PlaceOnType0(cluster, {MakeJob(1, 5, {1})}).at(JobId(1)),
            Ids({1, 3, 4, 5, 6}));
}

TEST(Placement, SingleWorkersFillServersThatArePartlyUsed) {
  const Cluster cluster = MakeCluster({{"a", Gpus(4)}, {"b", Gpus(4)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 1, {1})};
  jobs[0].holds = Ids({6});
  EXPECT_EQ(PlaceOnType0(cluster, jobs).at(JobId(2)), Ids({5}));
}

TEST(Placement, OfEqualHolesTheOneOnAServerInUseIsFilled) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(3)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 1, {1})};
  jobs[0].holds = Ids({3});
  EXPECT_EQ(PlaceOnType0(cluster, jobs).at(JobId(2)), Ids({4}));
}

TEST(Placement, GangsAreServedBeforeTheHolesAreTaken) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}, {"b", Gpus(2)}});
  const std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 1, {1}),
                                      MakeJob(3, 2, {1})};
  const RoundAssignment assignment = PlaceOnType0(cluster, jobs);
  EXPECT_EQ(assignment.at(JobId(3)), Ids({1, 2}));
  EXPECT_EQ(assignment.size(), 3u);
}

TEST(Placement, AJobReturnsToItsHomeServerWhenThereIsRoom) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(4)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1})};
  jobs[0].home_server = "b";
  EXPECT_EQ(PlaceOnType0(cluster, jobs).at(JobId(1)), Ids({2}));
  jobs[0].home_server = "gone";
  EXPECT_EQ(PlaceOnType0(cluster, jobs).at(JobId(1)), Ids({1}));
}

TEST(Placement, WhoHasAHomeIsPlacedBeforeWhoHasNone) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(1)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 1, {1})};
  jobs[1].home_server = "a";
  EXPECT_EQ(PlaceOnType0(cluster, jobs),
            (RoundAssignment{{JobId(1), Ids({2})}, {JobId(2), Ids({1})}}));
}

TEST(Placement, AGangPrefersToBeTogetherOverItsHome) {
  const Cluster cluster = MakeCluster({{"a", Gpus(1)}, {"b", Gpus(2)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 2, {1})};
  jobs[0].home_server = "a";
  EXPECT_EQ(PlaceOnType0(cluster, jobs).at(JobId(1)), Ids({2, 3}));
}

TEST(Placement, OtherTypesOnAServerDoNotCount) {
  const Cluster cluster =
      MakeCluster({{"a", {"gpu", "cpu", "gpu"}}, {"b", {"cpu"}}});
  EXPECT_EQ(PlaceOnType0(cluster, {MakeJob(1, 2, {1, 0})}).at(JobId(1)),
            Ids({1, 3}));
  EXPECT_TRUE(PlaceOnType0(cluster, {MakeJob(1, 3, {1, 0})}).empty());
}

TEST(Placement, TwoJobsThatClaimOneAcceleratorDoNotBothGetIt) {
  const Cluster cluster = MakeCluster({{"a", Gpus(2)}});
  std::vector<RoundJob> jobs = {MakeJob(1, 1, {1}), MakeJob(2, 1, {1})};
  for (RoundJob& job : jobs) job.holds = Ids({2});
  EXPECT_EQ(PlaceOnType0(cluster, jobs),
            (RoundAssignment{{JobId(1), Ids({2})}, {JobId(2), Ids({1})}}));
}

TEST(TypeHeld, OnlyACompleteUsableGangOfOneTypeIsHeld) {
  Cluster cluster = MakeCluster({{"a", {"gpu", "gpu", "cpu"}}});
  RoundJob job = MakeJob(1, 2, {1, 1});
  EXPECT_EQ(TypeHeld(cluster, job), std::nullopt);
  job.holds = Ids({1, 2});
  EXPECT_EQ(TypeHeld(cluster, job), std::optional<size_t>(0));
  job.holds = Ids({1, 3});
  EXPECT_EQ(TypeHeld(cluster, job), std::nullopt);
  job.holds = Ids({1});
  EXPECT_EQ(TypeHeld(cluster, job), std::nullopt);
  job.holds = Ids({1, 2});
  cluster.MarkLost(AcceleratorId(2));
  EXPECT_EQ(TypeHeld(cluster, job), std::nullopt);
}

}  // namespace
}  // namespace gavel::testing
