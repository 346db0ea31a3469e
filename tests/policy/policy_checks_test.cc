// The checks of bench/policy_solver.cc see what is wrong.
#include "bench/policy_checks.h"

#include <cmath>
#include <vector>

#include "bench/policy_instances.h"
#include "bench/policy_levels.h"
#include "coordinator/policy/lp/price_levels.h"
#include "gtest/gtest.h"

namespace gavel::bench {
namespace {

// Two jobs, a gang of two and one alone, on 2 and 1 accelerators.
Arrays Small() {
  Arrays arrays;
  arrays.jobs = 2;
  arrays.types = 2;
  arrays.throughputs = {4, 1, 2, 3};
  arrays.gang = {2, 1};
  arrays.weight = {1, 1};
  arrays.capacity = {2, 1};
  arrays.target = {1, 1};
  arrays.fastest = {4, 3};
  return arrays;
}

double Least(const std::vector<double>& shares) {
  return LeastValue(Small(), shares,
                    [](size_t, double steps_per_s) { return steps_per_s; });
}

TEST(PolicyChecks, WhatIsTooMuchIsScaledDown) {
  EXPECT_DOUBLE_EQ(Excess(Small(), std::vector<double>{1, 0, 0, 1}), 1);
  EXPECT_DOUBLE_EQ(Least({1, 0, 0, 1}), 3);
  // The second job's time, then the first type's accelerators.
  EXPECT_DOUBLE_EQ(Excess(Small(), std::vector<double>{0, 0, 0.5, 1}), 1.5);
  EXPECT_DOUBLE_EQ(Excess(Small(), std::vector<double>{1, 0, 0.5, 0.5}), 1.25);
  // A negative share makes no room.
  EXPECT_DOUBLE_EQ(Excess(Small(), std::vector<double>{1, -1, 1, 0}), 1.5);
}

TEST(PolicyChecks, TheCheapestWayIsOneTypeOrTwoWithAllOfTheTime) {
  const Arrays arrays = Small();
  const std::vector<double> prices = {0.25, 0.5};  // of all together: 1
  const auto cost = [&](double first, double second) {
    return LeastCost(arrays, prices,
                     [&](size_t m) { return m == 0 ? first : second; });
  };
  EXPECT_DOUBLE_EQ(cost(2, 0), 2 * 0.25 / 2);
  EXPECT_DOUBLE_EQ(cost(0, 2), 0.25);
  EXPECT_DOUBLE_EQ(cost(0, 2.5), 0.5 * 0.25 + 0.5 * 0.5);
  EXPECT_TRUE(std::isinf(cost(4.1, 0)));
}

TEST(PolicyChecks, GapsAndBoundsThatAreWrongCount) {
  Checks checks;
  checks.Certified("good", 1, 1 + 1e-9, 1, 1e-8);
  checks.Agree("good", 1, 1 + 1e-9, 1e-8);
  checks.Holds("good", true);
  EXPECT_EQ(checks.wrong(), 0);
  checks.Certified("a gap too large", 1, 1.1, 1, 1e-8);
  checks.Certified("beyond its bound", 1.1, 1, 1, 1e-8);
  checks.Certified("beyond it by what is unproved", 1.1, 1, 0.9, 1e-8);
  checks.Certified("a bound that its prices don't prove", 1, 1, 0.9, 1e-8);
  checks.Certified("no figure", 1, 1, std::nan(""), 1e-8);
  checks.Agree("another value", 1, 1.1, 1e-8);
  checks.Agree("no figure", std::nan(""), 1, 1e-8);
  checks.Holds("no", false);
  EXPECT_EQ(checks.wrong(), 8);
}

// The level of prices passes; a lower bound, or X of half the level, does not.
TEST(PolicyChecks, LevelsOfPricesPassAndFalsifiedOnesDoNot) {
  const Arrays arrays = RandomArrays(300, 4);
  const Question question = Proportional(arrays);
  const Solved solved = ByPrices(arrays, question);
  Checks checks;
  checks.Certified("prices", solved.level, solved.bound, solved.cost, kGapMax);
  EXPECT_EQ(checks.wrong(), 0);

  PriceLevel level;
  level.bound = solved.level * 0.99;
  level.prices.assign(4, 1.0);
  std::vector<double> shares(300 * 4, 0.0);
  Solved wrong;
  Verify(arrays, question, level, shares, &wrong);
  EXPECT_EQ(wrong.level, 0);
  EXPECT_LT(wrong.cost, 1);
  checks.Certified("a bound too low", solved.level, level.bound, wrong.cost,
                   kGapMax);
  EXPECT_EQ(checks.wrong(), 1);
}

TEST(PolicyChecks, TheSmallestAllocationThatDiffersIsFound) {
  const Arrays arrays = Small();
  const std::vector<double> one = {1, 0, 0, 1};
  const std::vector<double> other = {1, 0, 0, 0.5};
  EXPECT_DOUBLE_EQ(WorstRatio(arrays, one, other), 2);
  EXPECT_DOUBLE_EQ(WorstRatio(arrays, one, one), 1);
}

}  // namespace
}  // namespace gavel::bench
