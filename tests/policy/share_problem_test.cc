#include "coordinator/policy/share_problem.h"

#include <cmath>
#include <numeric>
#include <random>

#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {

using namespace policy;
namespace {

// Random shares, which are far from feasible.
std::vector<double> Noise(const ShareProblem& problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 2);
  std::vector<double> shares(problem.cells.size());
  for (double& share : shares) share = uniform(random);
  return shares;
}

PolicyResult AsResult(const ShareProblem& problem,
                      const std::vector<double>& shares) {
  return ToResult(problem, shares, 0, 0);
}

// Problems of all kinds, by seed.
PolicyProblem Any(uint64_t seed) {
  if (seed % 3 == 0) return RandomPairs(seed, 12);
  if (seed % 3 == 1) return RandomPlacement(seed, 12, /*pairs=*/true);
  return RandomProblem(seed, 20);
}

TEST(ShareProblem, ATypeSmallerThanTheGangIsNoTypeForIt) {
  PolicyProblem problem = MakeProblem({2, 4}, {{1, 2}, {3, 0}});
  problem.jobs[0].scale_factor = 3;
  const ShareProblem shares = MakeShareProblem(problem);
  EXPECT_EQ(shares.jobs, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(shares.throughputs, (std::vector<double>{0, 2, 3, 0}));
  EXPECT_TRUE(shares.left_out.empty());
  ASSERT_EQ(shares.cells.size(), 2u);
  EXPECT_EQ(shares.cells[0].column, 1);
  EXPECT_EQ(shares.cells[0].scale_factor, 3);
}

TEST(ShareProblem, AJobWithoutAnyTypeIsLeftOutAndSoAreItsPairs) {
  PolicyProblem problem = MakeProblem({2, 4}, {{1, 2}, {3, 0}, {1, 1}});
  problem.jobs[1].scale_factor = problem.jobs[2].scale_factor = 3;
  AddPair(1, 2, 1, 1, &problem);
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  EXPECT_EQ(shares.jobs, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(shares.left_out, (std::vector<JobId>{JobId(2)}));
  EXPECT_EQ(shares.units.size(), 2u);
}

TEST(ShareProblem, ThroughputsOfAgnosticPoliciesAreOneWhereTheJobCanRun) {
  const PolicyProblem problem = MakeProblem({2, 4, 0}, {{7, 0, 3}});
  const ShareProblem shares = MakeShareProblem(problem, {.agnostic = true});
  EXPECT_EQ(shares.throughputs, (std::vector<double>{1, 0, 0}));
}

TEST(ShareProblem, PairsComeInTheOrderOfUnitsAndOnlyWhereBothRun) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 1}, {1, 1}, {1, 1}});
  AddPair(0, 1, 0.9, 0.9, &problem);
  AddPair(0, 2, 0.9, 0.9, &problem);
  AddPair(1, 2, 0.9, 0.9, &problem);
  problem.pair_throughputs[0] = 0;  // of jobs 1 and 2 on the first type
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  std::vector<ShareUnit> units;
  for (const UsableUnit& unit : shares.units) units.push_back(unit.id);
  EXPECT_EQ(units, (std::vector<ShareUnit>{{JobId(1), {}},
                                           {JobId(1), JobId(2)},
                                           {JobId(1), JobId(3)},
                                           {JobId(2), {}},
                                           {JobId(2), JobId(3)},
                                           {JobId(3), {}}}));
  EXPECT_TRUE(std::is_sorted(units.begin(), units.end()));
  EXPECT_EQ(shares.cells.size(), 11u);
  EXPECT_EQ(shares.Cells(1).size(), 5u);
}

TEST(ShareProblem, PairsThatTimeSlicingBeatsAreDropped) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 1}, {2, 2}});
  AddPair(0, 1, 0.5, 0.5, &problem);
  EXPECT_EQ(MakeShareProblem(problem, {.pairs = true}).units.size(), 2u);
  problem.pair_throughputs[2] = 0.51;  // job 1 on the second type
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  ASSERT_EQ(shares.units.size(), 3u);
  EXPECT_EQ(shares.cells.size(), 5u);
}

// Servers of 4, 4 and 2 hold two gangs of 3, and two gangs of 4, which are 8
// accelerators.
TEST(ShareProblem, ConsolidatedGangsFillServersOnlyAsFarAsTheyFit) {
  PolicyProblem problem = MakeProblem({10}, {{2}, {2}, {2}, {2}, {2}});
  problem.servers = {{4, 4, 2}};
  problem.throughputs.assign(10, 2);
  const int gangs[] = {1, 3, 4, 6, 3};
  for (size_t m = 0; m < 5; ++m) problem.jobs[m].scale_factor = gangs[m];
  const ShareProblem shares = MakeShareProblem(problem);
  EXPECT_EQ(shares.limits, (std::vector<double>{10, 6, 8}));
  EXPECT_EQ(shares.Cells(0).size(), 2u);
  EXPECT_EQ(shares.Cells(3).size(), 1u);  // no server holds a gang of 6
  std::vector<int> placements;
  for (const ShareCell& cell : shares.cells) {
    placements.push_back(cell.placement);
    EXPECT_EQ(cell.type, 0);
  }
  EXPECT_EQ(placements, (std::vector<int>{-1, -1, 1, -1, 2, -1, -1, 1, -1}));
}

TEST(Throughput, AJobsIsTheSumOverItsUnits) {
  PolicyProblem problem = MakeProblem({1, 1}, {{4, 2}, {6, 8}});
  AddPair(0, 1, 0.5, 0.75, &problem);
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  // Units 1, 1+2, 2; columns 0, 1 each.
  const std::vector<double> x = {0.25, 0, 0, 0.5, 0.25, 0};
  EXPECT_EQ(Throughputs(shares, x),
            (std::vector<double>{4 * 0.25 + 2 * 0.5 * 0.5,
                                 6 * 0.25 + 8 * 0.75 * 0.5}));
  EXPECT_EQ(LargestThroughputs(shares), (std::vector<double>{4, 8}));
  EXPECT_EQ(ProportionalThroughputs(shares), (std::vector<double>{3, 7}));
}

TEST(RepairShares, AnythingBecomesFeasible) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = Any(seed);
    const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
    std::vector<double> x = Noise(shares, seed);
    RepairShares(shares, x);
    EXPECT_EQ(ShareErrors(problem, AsResult(shares, x)), "");
    // Feasible shares change only by rounding.
    std::vector<double> again = x;
    RepairShares(shares, again);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], again[i], 1e-15);
  }
}

TEST(RepairShares, DustAndNotANumberBecomeZero) {
  const ShareProblem shares =
      MakeShareProblem(MakeProblem({2}, {{1}, {1}, {1}}));
  std::vector<double> x = {1e-14, std::nan(""), -1e-10};
  RepairShares(shares, x);
  EXPECT_EQ(x, (std::vector<double>{0, 0, 0}));
}

TEST(EvenShares, AreFeasibleAndGiveSomethingToEveryJob) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = Any(seed);
    const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
    const std::vector<double> x = EvenShares(shares);
    EXPECT_EQ(ShareErrors(problem, AsResult(shares, x)), "");
    for (const double throughput : Throughputs(shares, x)) {
      EXPECT_GT(throughput, 0);
    }
  }
}

TEST(EveryoneAtBest, IsFoundWhereAllHaveRoomAndOnlyThere) {
  // Job 2 is as fast on either type, and leaves the first to job 3.
  PolicyProblem problem = MakeProblem({2, 1}, {{5, 1}, {3, 3}, {2, 1}});
  const auto x = EveryoneAtBest(MakeShareProblem(problem));
  ASSERT_TRUE(x.has_value());
  EXPECT_EQ(*x, (std::vector<double>{1, 0, 0, 1, 1, 0}));
  problem.capacity = {1, 2};
  EXPECT_FALSE(EveryoneAtBest(MakeShareProblem(problem)).has_value());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem any = Any(seed);
    const ShareProblem shares = MakeShareProblem(any, {.pairs = true});
    const auto best = EveryoneAtBest(shares);
    if (!best) continue;
    EXPECT_EQ(ShareErrors(any, AsResult(shares, *best)), "");
    EXPECT_EQ(Throughputs(shares, *best), LargestThroughputs(shares));
  }
}

TEST(EveryoneAtBest, IsNotWhatAJobGetsThatIsFasterInAPair) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {1}});
  AddPair(0, 1, 1.1, 0.5, &problem);
  EXPECT_FALSE(EveryoneAtBest(MakeShareProblem(problem, {.pairs = true})));
}

TEST(ToAllocation, HasAllJobsAndThePairsWithAShare) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}, {1}});
  AddPair(0, 1, 0.9, 0.9, &problem);
  AddPair(1, 2, 0.9, 0.9, &problem);
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  // Units 1, 1+2, 2, 2+3, 3.
  const Allocation allocation =
      ToAllocation(shares, std::vector<double>{0, 0, 0.5, 0.25, 0});
  EXPECT_EQ(allocation.units().size(), 4u);
  EXPECT_EQ(allocation.Row(JobId(2)), (std::vector<double>{0.75}));
  EXPECT_EQ(allocation.Row(JobId(3)), (std::vector<double>{0.25}));
  EXPECT_TRUE(allocation.Contains(JobId(1)));
}

}  // namespace
}  // namespace gavel::testing
