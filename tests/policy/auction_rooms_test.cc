// Where the gangs of a bid are, and bids that count what placement costs.
#include <map>

#include "coordinator/policy/partial_allocation.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::policy {
namespace {

using gavel::testing::MakeProblem;
using gavel::testing::Solved;

// Hosts of one type, each with its accelerators, its largest group and rack.
PolicyProblem OnHosts(const std::vector<std::array<int, 3>>& hosts) {
  int count = 0;
  PolicyProblem problem;
  problem.servers.resize(1);
  for (const auto& [size, group, rack] : hosts) {
    problem.hosts.push_back({AcceleratorId(static_cast<uint64_t>(count + 1)), 0,
                             size, group, rack});
    problem.servers[0].push_back(size);
    count += size;
  }
  problem.types = {"v100"};
  problem.capacity = {count};
  problem.round_s = 60;
  return problem;
}

// An app of one gang with 600 s left, and its throughput at each level.
void AddGang(int scale_factor, const std::array<double, kLocalities>& levels,
             PolicyProblem* problem) {
  PolicyJob& job = problem->jobs.emplace_back();
  job.id = JobId(problem->jobs.size());
  job.scale_factor = scale_factor;
  job.steps_remaining = 600 * levels[0];
  job.apps_average = 2;
  problem->throughputs.insert(problem->throughputs.end(),
                              {levels[1], levels[3]});
  problem->level_throughputs.insert(problem->level_throughputs.end(),
                                    levels.begin(), levels.end());
}

TEST(AuctionRooms, EqualServersAreOnePart) {
  const AuctionRooms rooms(
      OnHosts({{4, 0, 0}, {2, 0, 0}, {4, 0, 1}, {4, 2, 1}, {2, 0, 1}}));
  EXPECT_THAT(rooms.free(), ElementsAre(4, 8, 4));
}

TEST(AuctionRooms, WithoutPlacementEachTypeIsOnePartWithRoomForAll) {
  PolicyProblem problem = OnHosts({{4, 0, 0}, {2, 0, 0}});
  problem.servers.clear();
  AuctionRooms rooms(problem);
  EXPECT_THAT(rooms.free(), ElementsAre(6));
  const auto place = rooms.Take(5, {0});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->level, Locality::kServer);
  EXPECT_FALSE(place->host.valid());
  EXPECT_EQ(rooms.Take(2, {0}), std::nullopt);
}

TEST(AuctionRooms, AGangIsAtTheTightestLevelOfItsPart) {
  // Parts by size: servers of 2, and servers of 4 with groups of 2.
  AuctionRooms rooms(
      OnHosts({{4, 2, 0}, {2, 0, 0}, {2, 0, 1}, {2, 0, 1}, {4, 2, -1}}));
  ASSERT_THAT(rooms.free(), ElementsAre(6, 8));
  const auto level = [&](int scale_factor, size_t part) {
    AuctionRooms copy = rooms;
    const auto place = copy.Take(scale_factor, {part});
    return place ? std::optional(place->level) : std::nullopt;
  };
  EXPECT_EQ(level(2, 1), Locality::kGroup);
  EXPECT_EQ(level(2, 0), Locality::kServer);
  EXPECT_EQ(level(4, 1), Locality::kServer);
  EXPECT_EQ(level(4, 0), Locality::kRack) << "both servers of rack 1";
  EXPECT_EQ(level(6, 0), Locality::kCluster);
  EXPECT_EQ(level(8, 1), Locality::kCluster);
  EXPECT_EQ(level(10, 0), Locality::kCluster) << "all parts of the type";
  EXPECT_EQ(level(15, 0), std::nullopt);
  const auto spread = rooms.Take(4, {0});
  EXPECT_THAT(spread->parts, ElementsAre(Pair(0, 4)));
  EXPECT_FALSE(spread->host.valid());
  // That part has no room any more: the other one.
  EXPECT_THAT(rooms.Take(4, {0})->parts, ElementsAre(Pair(1, 4)));
  EXPECT_THAT(rooms.free(), ElementsAre(2, 4));
}

TEST(AuctionRooms, SeveralPartsServeAsOne) {
  // Parts: servers of 2, of 4, and of 8 with groups of 4.
  PolicyProblem problem = OnHosts({{8, 4, 0}, {4, 0, 0}, {2, 0, 0}});
  const AuctionRooms rooms(problem);
  EXPECT_THAT(rooms.PartsOf(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(rooms.PartsOf(1), IsEmpty());
  const auto parts = [&](int count, const std::vector<size_t>& of) {
    return AuctionRooms(rooms).Take(count, of)->parts;
  };
  EXPECT_THAT(parts(1, {0, 1, 2}), ElementsAre(Pair(0, 1)))
      << "one accelerator needs no group";
  EXPECT_THAT(parts(4, {0, 1, 2}), ElementsAre(Pair(2, 4))) << "in a group";
  EXPECT_THAT(parts(4, {0, 1}), ElementsAre(Pair(1, 4))) << "on one server";
  EXPECT_THAT(parts(6, {0, 1}), ElementsAre(Pair(0, 2), Pair(1, 4)));
  EXPECT_THAT(parts(9, {0, 1}), ElementsAre(Pair(1, 1), Pair(2, 8)))
      << "they have only six";
}

TEST(AuctionRooms, AJobStaysOnItsServerAmongEqualOnes) {
  PolicyProblem problem = OnHosts({{4, 0, 0}, {4, 0, 0}, {4, 0, 0}});
  problem.places = {{.job = 3, .host = 1, .count = 2}};
  AuctionRooms rooms(problem);
  EXPECT_EQ(rooms.Take(2, {0}, rooms.HostsOf(3))->host, AcceleratorId(5));
  EXPECT_EQ(rooms.Take(2, {0}, rooms.HostsOf(0))->host, AcceleratorId(5))
      << "the tightest fit";
  EXPECT_EQ(rooms.Take(2, {0}, rooms.HostsOf(0))->host, AcceleratorId(1));
}

// NSDI'20, section 5: T_sh counts the slow-down of the placement. Two gangs of
// four and room for one of them on a server: the one that would lose by being
// spread gets it, in either order, and the other one loses nothing elsewhere.
TEST(ThemisPlacement, TheGangThatCaresGetsTheServer) {
  const std::array<double, 4> cares = {8, 8, 4, 2};
  const std::array<double, 4> does_not = {8, 8, 8, 8};
  for (const bool first : {true, false}) {
    PolicyProblem problem = OnHosts({{2, 0, 0}, {4, 0, 0}, {2, 0, 1}});
    AddGang(4, first ? cares : does_not, &problem);
    AddGang(4, first ? does_not : cares, &problem);
    const PolicyResult result = Solved("themis_f=0", problem);
    ASSERT_THAT(result.assignment, SizeIs(2));
    std::map<JobId, AcceleratorId> hosts;
    for (const TypeAssignment& entry : result.assignment) {
      hosts[entry.unit.job] = entry.host;
    }
    EXPECT_EQ(hosts[JobId(first ? 1 : 2)], AcceleratorId(3)) << first;
    EXPECT_FALSE(hosts[JobId(first ? 2 : 1)].valid()) << first;
  }
}

// A row that an app sends names types only. It asks for the server on which its
// four accelerators are together, and both of its gangs run there, though each
// of them would fit on a smaller one. The other app's gang does not mind.
TEST(ThemisPlacement, ARowOfAnAppAsksForTheRoomsThatAreClosest) {
  PolicyProblem problem = OnHosts({{2, 0, 0}, {4, 0, 0}, {2, 0, 1}});
  AddGang(4, {8, 8, 8, 8}, &problem);
  for (int i = 0; i < 2; ++i) AddGang(2, {8, 8, 4, 2}, &problem);
  problem.apps = {{.apps_average = 2}};
  problem.jobs[1].app = problem.jobs[2].app = 0;
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 4}}, 1}}};
  const PolicyResult result = Solved("themis_f=0", problem);
  ASSERT_THAT(result.assignment, SizeIs(3));
  for (const TypeAssignment& entry : result.assignment) {
    EXPECT_EQ(entry.host,
              entry.unit.job == JobId(1) ? AcceleratorId() : AcceleratorId(3));
  }
}

// Six accelerators are on no one server. The row is on both kinds of servers,
// and its gangs take their servers from these.
TEST(ThemisPlacement, ARowOfAnAppMayHaveRoomsOfSeveralKinds) {
  PolicyProblem problem = OnHosts({{2, 0, 0}, {4, 0, 0}});
  for (const int scale_factor : {4, 2}) {
    AddGang(scale_factor, {8, 8, 4, 2}, &problem);
  }
  problem.apps = {{}};
  for (PolicyJob& job : problem.jobs) job.app = 0;
  problem.apps[0].bid = OwnBid{4, 4, {{{{0, 6}}, 1}, {{{0, 7}}, 0.5}}};
  const PolicyResult result = Solved("themis", problem);
  ASSERT_THAT(result.bids, SizeIs(1));
  EXPECT_EQ(result.bids[0].bid, 6) << "there are no seven";
  EXPECT_EQ(result.bids[0].given, 6);
  std::map<JobId, AcceleratorId> hosts;
  for (const TypeAssignment& entry : result.assignment) {
    hosts[entry.unit.job] = entry.host;
  }
  EXPECT_THAT(hosts, ElementsAre(Pair(JobId(1), AcceleratorId(3)),
                                 Pair(JobId(2), AcceleratorId(1))));
}

// Two gangs run, one of them over two servers at a quarter of its speed.
TEST(ThemisPlacement, RhoOfARunningAppCountsWhereItIs) {
  PolicyProblem problem = OnHosts({{2, 0, -1}, {2, 0, -1}});
  for (int i = 0; i < 2; ++i) AddGang(2, {8, 8, 4, 2}, &problem);
  for (PolicyJob& job : problem.jobs) job.running_on = 0;
  problem.places = {{.job = 0, .host = 0, .count = 2},
                    {.job = 1, .host = 0, .count = 1},
                    {.job = 1, .host = 1, .count = 1}};
  const PolicyResult result = Solved("themis_f=1", problem);
  ASSERT_THAT(result.bids, SizeIs(2));
  EXPECT_EQ(result.bids[0].app, JobId(2)) << "it is spread";
  EXPECT_DOUBLE_EQ(result.bids[0].rho, 4 * result.bids[1].rho);
}

TEST(ThemisPlacement, ProblemsWithWrongLevelsAreRefused) {
  PolicyProblem problem = OnHosts({{4, 0, 0}});
  AddGang(4, {8, 8, 4, 2}, &problem);
  EXPECT_OK(CheckProblem(problem));
  PolicyProblem wrong = problem;
  wrong.level_throughputs.pop_back();
  EXPECT_THAT(CheckProblem(wrong), IsInvalid("throughputs by level"));
  wrong = problem;
  wrong.level_throughputs[2] = -1;
  EXPECT_THAT(CheckProblem(wrong), IsInvalid("in a rack"));
  wrong = problem;
  wrong.hosts[0].group = 5;
  EXPECT_FALSE(CheckProblem(wrong).ok());
}

}  // namespace
}  // namespace gavel::policy
