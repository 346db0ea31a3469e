#include "tests/policy/exact_solver.h"

#include <cstdlib>
#include <limits>
#include <optional>

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

class ExactSolver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v esolver >/dev/null") != 0) {
      GTEST_SKIP() << "no esolver here; it is in Debian's package qsopt-ex";
    }
  }
};

// The most of 2 x where `factor` x <= `most` and x >= `least`.
LinearProgram Program(double factor, double most, double least) {
  LinearProgram program;
  const LpEntry x = {program.AddColumn(2, 0, 10), factor};
  program.AddRow(-kInfinity, most, {&x, 1});
  const LpEntry alone = {0, 1};
  program.AddRow(least, kInfinity, {&alone, 1});
  return program;
}

TEST_F(ExactSolver, FindsTheOptimumAndWhatBoundsAreWorth) {
  const auto solution = SolveExactly(Program(3, 1, 0.125));
  ASSERT_TRUE(solution.has_value());
  EXPECT_TRUE(solution->feasible);
  EXPECT_DOUBLE_EQ(solution->objective, 2.0 / 3);
  ASSERT_EQ(solution->row_duals.size(), 2U);
  EXPECT_DOUBLE_EQ(solution->row_duals[0], 2.0 / 3);
  EXPECT_EQ(solution->row_duals[1], 0);
}

TEST_F(ExactSolver, OfVerySmallAndVeryLargeNumbers) {
  const auto solution = SolveExactly(Program(1e30, 3e-30, 0));
  ASSERT_TRUE(solution.has_value());
  EXPECT_TRUE(solution->feasible);
  EXPECT_NEAR(solution->objective, 6e-60, 1e-74);
  EXPECT_NEAR(solution->row_duals[0], 2e-30, 1e-44);
}

TEST_F(ExactSolver, TheLastBitDecides) {
  const double above_one = 1 + std::numeric_limits<double>::epsilon();
  const auto fits = SolveExactly(Program(1, above_one, above_one));
  ASSERT_TRUE(fits.has_value());
  EXPECT_TRUE(fits->feasible);
  const auto does_not = SolveExactly(Program(1, 1, above_one));
  ASSERT_TRUE(does_not.has_value());
  EXPECT_FALSE(does_not->feasible);
}

TEST_F(ExactSolver, BoundsOfAColumnMayBeBelowZero) {
  LinearProgram program = Program(1, 100, -100);
  program.column_lower[0] = -0.75;
  program.column_upper[0] = -0.25;
  const auto most = SolveExactly(program);
  ASSERT_TRUE(most.has_value());
  EXPECT_DOUBLE_EQ(most->objective, -0.5);
  program.column_cost[0] = -2;
  const auto least = SolveExactly(program);
  ASSERT_TRUE(least.has_value());
  EXPECT_DOUBLE_EQ(least->objective, 1.5);
}

}  // namespace
}  // namespace gavel::testing
