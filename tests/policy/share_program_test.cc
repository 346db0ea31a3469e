#include "coordinator/policy/share_program.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"

namespace gavel::testing {

using namespace policy;
namespace {

// max sum of T_m(X) / largest_m, with a value row for the first job.
ShareProgram TotalProgram(const ShareProblem& problem) {
  ShareProgram program(problem);
  const std::vector<double> largest = LargestThroughputs(problem);
  for (size_t m = 0; m < problem.size(); ++m) {
    program.AddThroughputCost(m, 1 / largest[m], program.lp.column_cost);
  }
  program.AddThroughputRow(0, 1 / largest[0], {}, 0.01, kInfinity);
  return program;
}

// Two jobs, one accelerator, the first at 0.01 at least: the total is 1.
TEST(DualBound, HoldsWhateverTheDuals) {
  const ShareProblem shares = MakeShareProblem(MakeProblem({1}, {{1}, {1}}));
  const ShareProgram program = TotalProgram(shares);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-2, 2);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> duals(static_cast<size_t>(program.lp.rows()));
    for (double& dual : duals) dual = uniform(random);
    EXPECT_GE(DualBound(program.lp, duals), 1 - 1e-12);
  }
  EXPECT_EQ(DualBound(program.lp, {}), 2);
  EXPECT_EQ(DualBound(program.lp, std::vector<double>{1, 0, 0, 0}), 1);
  // Duals of the wrong sign, and duals that are not finite, count as 0.
  EXPECT_EQ(
      DualBound(program.lp, std::vector<double>{1, -3, std::nan(""), HUGE_VAL}),
      1);
}

TEST(DualBound, IsInfiniteWhereAnUnboundedColumnHasAReducedCost) {
  LinearProgram lp;
  const int x = lp.AddColumn(1, 0, kInfinity);
  lp.AddRow(-kInfinity, 3, std::vector<LpEntry>{{x, 1}});
  EXPECT_TRUE(std::isinf(DualBound(lp, std::vector<double>{0.5})));
  EXPECT_EQ(DualBound(lp, std::vector<double>{1}), 3);
}

}  // namespace
}  // namespace gavel::testing
