// Statements of Gandiva (Xiao et al., OSDI'18) on the reactive mode, each with
// its section in the name of the suite. Those on the introspective mode are in
// tests/engine/gandiva_paper_test.cc.
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

// Servers of these sizes, of one type, and so many jobs of each scale factor.
PolicyProblem OnServers(const std::vector<int>& sizes,
                        const std::vector<int>& scale_factors) {
  int capacity = 0;
  for (const int size : sizes) capacity += size;
  PolicyProblem problem = MakeProblem(
      {capacity}, std::vector<std::vector<double>>(scale_factors.size(), {10}));
  uint64_t id = 1;
  for (const int size : sizes) {
    problem.hosts.push_back({AcceleratorId(id), 0, size});
    id += static_cast<uint64_t>(size);
  }
  for (size_t m = 0; m < scale_factors.size(); ++m) {
    problem.jobs[m].scale_factor = scale_factors[m];
  }
  return problem;
}

void Put(size_t job, size_t host, PolicyProblem* problem) {
  problem->places.push_back({job, host, problem->jobs[job].scale_factor});
}

// The index of the host of each job that runs, by job id.
std::map<uint64_t, size_t> HostsOf(const PolicyProblem& problem) {
  std::map<uint64_t, size_t> hosts;
  for (const TypeAssignment& entry :
       Solved("gandiva_reactive", problem).assignment) {
    for (size_t h = 0; h < problem.hosts.size(); ++h) {
      if (problem.hosts[h].id == entry.host) hosts[entry.unit.job.value()] = h;
    }
  }
  return hosts;
}

using OnHosts = std::map<uint64_t, size_t>;

TEST(GandivaPaper41, AJobGoesToTheLeastLoadedServerOfItsAffinity) {
  PolicyProblem problem = OnServers({4, 4, 4, 4}, {1, 1, 1, 2, 1});
  Put(0, 0, &problem);
  Put(1, 0, &problem);
  Put(2, 1, &problem);
  Put(3, 2, &problem);
  EXPECT_EQ(HostsOf(problem)[5], 1u);
}

TEST(GandivaPaper41, ThenToAServerWithoutAffinity) {
  PolicyProblem problem = OnServers({4, 4}, {1, 2});
  Put(0, 0, &problem);
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 0}, {2, 1}}));
}

TEST(GandivaPaper41, ThenToAServerOfAnotherAffinity) {
  PolicyProblem problem = OnServers({2, 4}, {2, 2, 1});
  Put(0, 0, &problem);
  Put(1, 1, &problem);
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 0}, {2, 1}, {3, 1}}));
}

TEST(GandivaPaper41, ThenTheLeastLoadedServerIsOverSubscribed) {
  PolicyProblem problem = OnServers({2, 2}, {1, 1, 1, 1, 1, 1});
  for (const size_t job : {0, 1, 2}) Put(job, 0, &problem);
  for (const size_t job : {3, 4}) Put(job, 1, &problem);
  for (PolicyJob& job : problem.jobs) job.time_received_s = 10;
  problem.jobs[5].time_received_s = 0;
  EXPECT_EQ(HostsOf(problem)[6], 1u);
}

TEST(GandivaPaper41, ElseItWaitsInTheQueue) {
  PolicyProblem problem = OnServers({1}, {1, 1, 1, 1, 1});
  for (const size_t job : {0, 1, 2, 3}) Put(job, 0, &problem);
  for (PolicyJob& job : problem.jobs) job.time_received_s = 10;
  problem.jobs[4].time_received_s = 0;
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 0}}));
}

TEST(GandivaPaper41, AffinityIsOfTheTypeToo) {
  PolicyProblem problem = MakeProblem({2, 2}, {{1, 10}, {10, 1}, {10, 1}});
  problem.hosts = {{AcceleratorId(1), 0, 2}, {AcceleratorId(3), 1, 2}};
  Put(0, 1, &problem);
  Put(1, 0, &problem);
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 1}, {2, 0}, {3, 0}}));
}

TEST(GandivaPaper41, AJobStaysOnItsServerThoughAnotherIsIdle) {
  PolicyProblem problem = OnServers({1, 1}, {1, 1});
  Put(0, 0, &problem);
  Put(1, 0, &problem);
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 0}}));
}

TEST(GandivaPaper41, JobsOfAFailedServerArePlacedAgain) {
  PolicyProblem problem = OnServers({2, 2}, {1, 1});
  Put(0, 0, &problem);  // the second one's server is no more
  EXPECT_EQ(HostsOf(problem), (OnHosts{{1, 0}, {2, 0}}));
}

// Section 3.1: suspend and resume serve all jobs of a server by turns.
TEST(GandivaPaper31, JobsOfAServerTakeTurnsOfARound) {
  PolicyProblem problem = OnServers({2}, {1, 1, 2, 1});
  for (size_t job = 0; job < 4; ++job) Put(job, 0, &problem);
  for (int round = 0; round < 100; ++round) {
    for (const auto& [id, host] : HostsOf(problem)) {
      problem.jobs[id - 1].time_received_s += 60;
    }
  }
  for (const PolicyJob& job : problem.jobs) {
    EXPECT_NEAR(job.time_received_s, 2400, 60);
  }
}

// ---- what the paper leaves open

TEST(GandivaReactive, AGangLargerThanAServerRunsOnSeveral) {
  PolicyProblem problem = OnServers({2, 2, 2}, {4, 1, 1});
  const OnHosts hosts = HostsOf(problem);
  EXPECT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts.at(2), 2u);
  EXPECT_EQ(hosts.at(3), 2u);
}

TEST(GandivaReactive, WithoutServersATypeIsOne) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 10}, {1, 10}, {1, 10}});
  EXPECT_EQ(AssignedBy("gandiva_reactive", problem),
            (Assigned{{{1, 0}, 1}, {{2, 0}, 0}}));
  EXPECT_TRUE(Solved("gandiva_reactive", problem).each_round);
}

TEST(GandivaReactive, AHostWithoutAcceleratorsIsRefused) {
  PolicyProblem problem = OnServers({1}, {1});
  problem.hosts[0].capacity = 0;
  EXPECT_FALSE(CheckProblem(problem).ok());
  problem.hosts[0].capacity = 1;
  problem.places = {{0, 1, 1}};
  EXPECT_FALSE(CheckProblem(problem).ok());
}

}  // namespace
}  // namespace gavel::testing
