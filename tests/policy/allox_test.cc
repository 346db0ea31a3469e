#include <limits>
#include <numeric>
#include <random>

#include "coordinator/policy/policies.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// One machine, of brute force.
struct Machine {
  size_t type = 0;
  double ready_s = 0;
  int jobs = 0;
};

// The cheapest way to put jobs [m, n) in front of those that the machines'
// queues have: all ways are tried.
double Cheapest(const MatchingProblem& problem,
                const std::vector<size_t>& order, size_t m,
                std::vector<Machine>& machines) {
  if (m == order.size()) return 0;
  double cheapest = kNever;
  for (Machine& machine : machines) {
    const double time = problem.time_s[order[m] * problem.types + machine.type];
    if (time == kNever) continue;
    const double price =
        problem.price.empty() ? 0 : problem.price[machine.type];
    const double cost = (++machine.jobs + price) * time + machine.ready_s;
    cheapest =
        std::min(cheapest, cost + Cheapest(problem, order, m + 1, machines));
    --machine.jobs;
  }
  return cheapest;
}

// In front of a queue goes who is put there last, so all orders are tried.
double Cheapest(const MatchingProblem& problem) {
  std::vector<Machine> machines;
  for (const MachineGroup& group : problem.groups) {
    for (int i = 0; i < group.machines; ++i) {
      machines.push_back({group.type, group.ready_s, 0});
    }
  }
  std::vector<size_t> order(problem.jobs());
  std::iota(order.begin(), order.end(), size_t{0});
  double cheapest = kNever;
  do {
    cheapest = std::min(cheapest, Cheapest(problem, order, 0, machines));
  } while (std::next_permutation(order.begin(), order.end()));
  return cheapest;
}

// Every job can run on type 0.
MatchingProblem RandomMatching(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(1, 100);
  MatchingProblem problem;
  problem.types = 2;
  problem.groups = {{0, 0, static_cast<int>(1 + random() % 2)}};
  if (random() % 2 == 0) problem.groups.push_back({0, uniform(random), 1});
  if (random() % 2 == 0) problem.groups.push_back({1, 0, 1});
  if (random() % 2 == 0) problem.groups.push_back({1, uniform(random), 1});
  if (random() % 2 == 0) problem.price = {uniform(random), uniform(random)};
  for (size_t m = 0; m < 1 + random() % 5; ++m) {
    problem.time_s.push_back(uniform(random));
    problem.time_s.push_back(random() % 4 == 0 ? kNever : uniform(random));
  }
  return problem;
}

TEST(MatchPositions, IsTheCheapestOfAllWays) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const MatchingProblem problem = RandomMatching(random);
    const Matching matching = MatchPositions(problem);
    const double cheapest = Cheapest(problem);
    EXPECT_NEAR(matching.cost, cheapest, 1e-9 * cheapest);
    EXPECT_NEAR(matching.bound, matching.cost, 1e-9 * cheapest);
  }
}

TEST(MatchPositions, PositionsAreTakenFromTheEnd) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 100; ++round) {
    const MatchingProblem problem = RandomMatching(random);
    std::map<size_t, std::map<int, int>> taken;
    for (const Position& at : MatchPositions(problem).positions) {
      ASSERT_GE(at.from_end, 1);
      ++taken[at.group][at.from_end];
    }
    for (auto& [group, positions] : taken) {
      const int deepest = positions.rbegin()->first;
      EXPECT_LE(positions[deepest], problem.groups[group].machines);
      for (int k = 1; k < deepest; ++k) {
        EXPECT_EQ(positions[k], problem.groups[group].machines);
      }
    }
  }
}

TEST(MatchPositions, AJobThatCanRunNowhereHasNoPosition) {
  const Matching matching =
      MatchPositions({2, {{1, 0, 1}}, {5, kNever, 7, 3}, {}});
  EXPECT_EQ(matching.positions[0].from_end, 0);
  EXPECT_EQ(matching.positions[1].from_end, 1);
  EXPECT_EQ(matching.cost, 3);
}

PolicyProblem Jobs(std::vector<int> capacity,
                   const std::vector<std::vector<double>>& throughputs,
                   const std::vector<double>& steps) {
  PolicyProblem problem = MakeProblem(std::move(capacity), throughputs);
  for (size_t m = 0; m < steps.size(); ++m) {
    problem.jobs[m].steps_remaining = steps[m];
  }
  return problem;
}

TEST(Allox, OnOneMachineTheShortestJobRuns) {
  const PolicyProblem problem = Jobs({1}, {{1}, {1}, {1}}, {30, 10, 20});
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{2, 0}, 0}}));
  // 10 delays three jobs, 20 two, 30 itself.
  EXPECT_DOUBLE_EQ(Solved("allox", problem).objective, 100);
}

TEST(Allox, AJobMayWaitForTheTypeItIsFastOn) {
  // Job 2 would take 100 s on type 1, and waits for type 0.
  const PolicyProblem problem = Jobs({1, 1}, {{1, 1}, {1, 0.01}}, {1, 2});
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 1}, {{2, 0}, 0}}));
}

TEST(Allox, RunningJobsKeepTheirAccelerators) {
  PolicyProblem problem = Jobs({1}, {{1}, {1}}, {1000, 1});
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Allox, AJobWaitsForABusyTypeWhenTheFreeOneIsWorse) {
  // Job 1 runs on type 0 for 5 s more; job 2 takes 1 s there, 100 s on type 1.
  PolicyProblem problem = Jobs({1, 1}, {{1, 1}, {1, 0.01}}, {5, 1});
  problem.jobs[0].running_on = 0;
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 0}}));
  // One job waits, and half of the accelerators are busy.
  const double price =
      30.0 / 4 * TypePrices(std::vector<double>{5, 5, 1, 100}, {{1, 1}})[0];
  EXPECT_DOUBLE_EQ(Solved("allox", problem).objective, 1 + price + 5);
  problem.jobs[0].steps_remaining = 1000;
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 0}, {{2, 0}, 1}}));
}

// Two accelerators of type 0 run jobs for 20 s more, one of type 1 is free. 120
// jobs take 10 s on type 0 and 50 s on type 1, 11 take 60 s on both. By
// position alone one of the 120 would start on type 1.
TEST(Allox, UnderLoadEachJobGoesWhereItIsFastInComparison) {
  std::vector<std::vector<double>> throughputs(122, {5, 1});
  throughputs.resize(133, {1, 1});
  std::vector<double> steps(133, 50);
  std::fill(steps.begin(), steps.begin() + 2, 100);
  std::fill(steps.begin() + 122, steps.end(), 60);
  PolicyProblem problem = Jobs({2, 1}, throughputs, steps);
  problem.jobs[0].running_on = 0;
  problem.jobs[1].running_on = 0;
  const Assigned assigned = AssignedBy("allox", problem);
  EXPECT_EQ(assigned.size(), 3u);
  for (const auto& [unit, type] : assigned) {
    if (type == 1) {
      EXPECT_GT(unit.first, 122u);
    }
  }
}

TEST(Allox, AFullClusterWithNothingRunningHasNoPrices) {
  const PolicyProblem problem = Jobs({1}, {{1}, {1}, {1}}, {30, 10, 20});
  EXPECT_DOUBLE_EQ(Solved("allox", problem).objective, 30 + 2 * 20 + 3 * 10);
}

TEST(TypePrices, AreWhereAllTypesAreEquallyBusy) {
  // One job in two is 4 times, the others twice as fast on type 0. When both
  // kinds are where they are better in comparison, type 0 has 50 x 1 s, type 1
  // 50 x 2 s: some of the others go to type 0, and cost as much on both.
  std::vector<double> time_s;
  for (int i = 0; i < 50; ++i) time_s.insert(time_s.end(), {1, 4, 1, 2});
  const std::vector<double> prices = TypePrices(time_s, {{1, 1}});
  EXPECT_DOUBLE_EQ(prices[0], 1);
  EXPECT_NEAR(prices[1], 0.5, 0.05);
}

TEST(TypePrices, OfTypesThatAreAlikeAreEqual) {
  const std::vector<double> prices =
      TypePrices(std::vector<double>{3, 3, 3, 5, 5, 5}, {{1, 1, 0}});
  EXPECT_NEAR(prices[0], prices[1], 0.3);
  EXPECT_EQ(prices[2], 0);
}

TEST(TypePrices, WithoutJobsOrTypesAreNoNonsense) {
  EXPECT_EQ(TypePrices({}, {}), std::vector<double>{});
  EXPECT_EQ(TypePrices({}, {{2, 1}}), (std::vector<double>{1, 1}));
  EXPECT_EQ(TypePrices(std::vector<double>{kNever, 1}, {{1, 0}}),
            (std::vector<double>{1, 0}));
}

TEST(Allox, AlphaHoldsTheYoungestBack) {
  const PolicyProblem problem =
      Jobs({1}, {{1}, {1}, {1}, {1}}, {40, 30, 20, 10});
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{4, 0}, 0}}));
  EXPECT_EQ(AssignedBy("allox_alpha=0.5", problem), (Assigned{{{2, 0}, 0}}));
  // As many as there are accelerators always take part.
  EXPECT_EQ(AssignedBy("allox_alpha=0.01", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Allox, AlphaIsANumberAboveZeroAndAtMostOne) {
  for (const char* name : {"allox_alpha=", "allox_alpha=0", "allox_alpha=1.5",
                           "allox_alpha=x", "allox_alpha=nan"}) {
    EXPECT_THAT(MakePolicy(name).status(), StatusIs(kNotFound, "alpha"));
  }
  ASSERT_OK_AND_ASSIGN(const auto policy, MakePolicy("allox_alpha=0.25"));
  EXPECT_EQ(policy->name(), "allox_alpha=0.25");
}

TEST(Allox, GangsTakeWhatTheMatchingLeaves) {
  PolicyProblem problem = Jobs({4}, {{1}, {1}, {1}}, {1, 1, 1});
  problem.jobs[1].scale_factor = 2;
  problem.jobs[2].scale_factor = 2;
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 0}, {{2, 0}, 0}}));
}

TEST(Allox, TheEarliestJobIsNotStarvedForBeingAGang) {
  PolicyProblem problem = Jobs({2}, {{1}, {1}, {1}}, {1, 1, 1});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[2].running_on = 0;
  // One accelerator is free, and held back for job 1.
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{3, 0}, 0}}));
  problem.jobs[2].running_on = -1;
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Allox, AJobOfUnknownLengthCountsAsTheLongest) {
  const PolicyProblem problem = Jobs({1}, {{1}, {1}}, {0, 50});
  EXPECT_EQ(AssignedBy("allox", problem), (Assigned{{{2, 0}, 0}}));
  EXPECT_DOUBLE_EQ(Solved("allox", problem).objective, 50 + 2 * 50);
}

TEST(Allox, FiveHundredJobsOnThreeAcceleratorsAreMatched) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(1, 100);
  std::vector<std::vector<double>> throughputs(500);
  std::vector<double> steps(500);
  for (size_t m = 0; m < steps.size(); ++m) {
    throughputs[m] = {uniform(random), uniform(random), uniform(random)};
    steps[m] = uniform(random);
  }
  const PolicyResult result =
      Solved("allox", Jobs({1, 1, 1}, throughputs, steps));
  EXPECT_EQ(result.assignment.size(), 3u);
  EXPECT_LE(result.gap, 1e-9);
}

}  // namespace
}  // namespace gavel::testing
