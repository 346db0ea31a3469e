#include <cmath>

#include "coordinator/policy/policies.h"
#include "coordinator/policy/share_program.h"
#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"

namespace gavel::testing {

using namespace policy;
namespace {

// A bound on how much larger, per job, the sum of logarithms of another
// allocation can be. The logarithm lies below its tangents, so with the found
// x*, the maximum over X of sum_m T_m(X) / T_m(x*), minus the number of jobs,
// bounds the excess, and is 0 exactly if x* is optimal. A linear program finds
// the maximum.
double TangentExcess(const ShareProblem& shares, const NashProduct& nash,
                     std::optional<size_t> without) {
  ShareProgram program(shares);
  double jobs = 0;
  for (size_t m = 0; m < shares.size(); ++m) {
    if (m == without) continue;
    ++jobs;
    program.AddThroughputCost(m, 1 / Throughput(shares, m, nash.shares),
                              program.lp.column_cost);
  }
  const LpSolution solution = HighsSolver(program.lp).Solve();
  EXPECT_EQ(solution.outcome, SolveOutcome::kOptimal);
  return DualBound(program.lp, solution.row_duals) / jobs - 1;
}

double LogProduct(const ShareProblem& shares, const std::vector<double>& x,
                  std::optional<size_t> without) {
  const std::vector<double> largest = LargestThroughputs(shares);
  double sum = 0;
  for (size_t m = 0; m < shares.size(); ++m) {
    if (m == without) continue;
    sum += std::log(Throughput(shares, m, x) / largest[m]);
  }
  return sum;
}

void ExpectOptimal(const PolicyProblem& problem, bool agnostic) {
  const ShareProblem shares = MakeShareProblem(problem, {.agnostic = agnostic});
  if (shares.size() < 2) return;
  for (const std::optional<size_t> without :
       {std::optional<size_t>(), std::optional<size_t>(0)}) {
    const NashProduct nash = MaximizeNashProduct(shares, without);
    ASSERT_EQ(nash.outcome, SolveOutcome::kOptimal) << nash.detail;
    EXPECT_EQ(ShareErrors(problem, ToResult(shares, nash.shares, 0, 0)), "");
    EXPECT_NEAR(nash.log_product, LogProduct(shares, nash.shares, without),
                1e-12);
    const auto jobs = static_cast<double>(shares.size());
    EXPECT_GE(nash.bound, nash.log_product - 1e-13 * jobs);
    EXPECT_LE(nash.bound, nash.log_product + 1e-9 * jobs);
    EXPECT_LE(TangentExcess(shares, nash, without), 1e-5);
    if (without) {
      EXPECT_EQ(Throughput(shares, *without, nash.shares), 0);
    }
  }
}

// Equal jobs get equal parts of one accelerator, whatever their speeds.
TEST(NashProduct, SharesOneAcceleratorEqually) {
  const ShareProblem shares =
      MakeShareProblem(MakeProblem({1}, {{9}, {1}, {4}}));
  const NashProduct nash = MaximizeNashProduct(shares);
  for (const double share : nash.shares) EXPECT_NEAR(share, 1.0 / 3, 1e-9);
  EXPECT_NEAR(nash.log_product, -3 * std::log(3), 1e-9);
}

// Job 1 is 4 times as fast on type 0, and the others are equally fast on both
// types. If job 1 gets the part a of type 0, log(a) + 2 log((2 - a) / 2) has
// its maximum at a = 2/3.
TEST(NashProduct, TheFastTypeGoesToWhomItServes) {
  const ShareProblem shares =
      MakeShareProblem(MakeProblem({1, 1}, {{4, 1}, {1, 1}, {1, 1}}));
  const NashProduct nash = MaximizeNashProduct(shares);
  const std::vector<double> throughputs = Throughputs(shares, nash.shares);
  EXPECT_NEAR(nash.shares[0], 2.0 / 3, 1e-8);
  EXPECT_NEAR(nash.shares[1], 0, 1e-8);
  EXPECT_NEAR(throughputs[1], 2.0 / 3, 1e-8);
  EXPECT_NEAR(throughputs[2], 2.0 / 3, 1e-8);
}

TEST(NashProduct, NoAllocationHasALargerOne) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    ExpectOptimal(RandomProblem(seed + 1200, 25), /*agnostic=*/false);
    ExpectOptimal(RandomProblem(seed + 1300, 15), /*agnostic=*/true);
  }
}

TEST(NashProduct, WithPlacementToo) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    ExpectOptimal(RandomPlacement(seed + 1400, 15, false), false);
    ExpectOptimal(RandomPlacement(seed, 20, false), true);
  }
}

// The one job uses up its own time, its type and its servers at once.
TEST(NashProduct, WhereAllLimitsBindTogether) {
  PolicyProblem problem = MakeProblem({1}, {{3}});
  problem.servers = {{1}};
  problem.throughputs = {3, 3};
  const NashProduct nash = MaximizeNashProduct(MakeShareProblem(problem));
  EXPECT_EQ(nash.outcome, SolveOutcome::kOptimal) << nash.detail;
  EXPECT_NEAR(nash.log_product, 0, 1e-9);
  EXPECT_GE(nash.bound, nash.log_product);
  // There are 14 accelerators, and the jobs ask for exactly as many.
  std::vector<std::vector<double>> rows(14, {2, 2, 2});
  ExpectOptimal(MakeProblem({5, 2, 7}, rows), /*agnostic=*/true);
}

TEST(NashProduct, OfManyJobs) {
  std::vector<std::vector<double>> rows;
  for (int m = 0; m < 400; ++m) {
    rows.push_back({1.0 + m % 7, 2.0 + m % 11, 3.0 + m % 5});
  }
  ExpectOptimal(MakeProblem({20, 30, 10}, rows), false);
}

TEST(NashProduct, ExtremeRatiosBreakNothing) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    PolicyProblem problem = RandomProblem(seed + 1500, 15);
    for (size_t i = 0; i < problem.throughputs.size(); ++i) {
      problem.throughputs[i] *= std::pow(10, static_cast<double>(i % 13) - 6);
    }
    ExpectOptimal(problem, false);
  }
}

TEST(NashProduct, OfNoJobIsEmpty) {
  const ShareProblem shares = MakeShareProblem(MakeProblem({1}, {{1}}));
  const NashProduct nash = MaximizeNashProduct(shares, 0);
  EXPECT_EQ(nash.outcome, SolveOutcome::kOptimal);
  EXPECT_EQ(nash.shares, std::vector<double>{0});
  EXPECT_EQ(nash.log_product, 0);
}

}  // namespace
}  // namespace gavel::testing
