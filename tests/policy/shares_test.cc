#include "coordinator/policy/shares.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

MaxMinProblem RandomMaxMin(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  MaxMinProblem problem;
  for (size_t j = 0; j < 1 + random() % 4; ++j) {
    problem.limits.capacity.push_back(static_cast<double>(1 + random() % 8));
  }
  for (size_t m = 0; m < 1 + random() % 12; ++m) {
    problem.limits.scale_factor.push_back(1);
    for (size_t j = 0; j < problem.types(); ++j) {
      problem.values.push_back(0.1 + 3 * uniform(random));
    }
  }
  return problem;
}

void ExpectFeasible(const Limits& limits, const std::vector<double>& shares) {
  const size_t types = limits.capacity.size();
  std::vector<double> used(types, 0.0);
  for (size_t m = 0; m < limits.scale_factor.size(); ++m) {
    double sum = 0;
    for (size_t j = 0; j < types; ++j) {
      const double share = shares[m * types + j];
      EXPECT_GE(share, 0);
      used[j] += limits.scale_factor[m] * share;
      sum += share;
    }
    EXPECT_LE(sum, 1 + 1e-12);
  }
  for (size_t j = 0; j < types; ++j) {
    EXPECT_LE(used[j], limits.capacity[j] * (1 + 1e-12));
  }
}

TEST(RepairShares, AnythingBecomesFeasible) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-1, 2);
  for (int round = 0; round < 200; ++round) {
    const MaxMinProblem problem = RandomMaxMin(random);
    std::vector<double> shares(problem.values.size());
    for (double& share : shares) share = uniform(random);
    RepairShares(problem.limits, shares);
    ExpectFeasible(problem.limits, shares);
  }
}

TEST(RepairShares, WhatIsFeasibleIsLeftAlone) {
  const Limits limits{{2, 1}, {1, 2}};
  std::vector<double> shares = {0.5, 0.5, 0.25, 0.25};
  const std::vector<double> before = shares;
  RepairShares(limits, shares);
  EXPECT_EQ(shares, before);
}

TEST(RepairShares, DustAndNotANumberBecomeZero) {
  const Limits limits{{2}, {1, 1, 1}};
  std::vector<double> shares = {1e-15, std::nan(""), -1e-10};
  RepairShares(limits, shares);
  EXPECT_EQ(shares, (std::vector<double>{0, 0, 0}));
}

TEST(EvenShares, AreFeasibleAndGiveSomethingToEveryJob) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    const MaxMinProblem problem = RandomMaxMin(random);
    const std::vector<double> shares = EvenShares(problem);
    ExpectFeasible(problem.limits, shares);
    EXPECT_GT(SmallestValue(problem, shares), 0);
  }
}

TEST(UpperBound, NoFeasibleAllocationBeatsItWhateverThePrices) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(-0.2, 1);
  for (int round = 0; round < 300; ++round) {
    const MaxMinProblem problem = RandomMaxMin(random);
    std::vector<double> weight(problem.jobs());
    std::vector<double> price(problem.types());
    for (double& value : weight) value = uniform(random);
    for (double& value : price) value = uniform(random);
    const double bound = UpperBound(problem, weight, price);
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::vector<double> shares(problem.values.size());
      for (double& share : shares) share = uniform(random);
      RepairShares(problem.limits, shares);
      EXPECT_LE(SmallestValue(problem, shares), bound * (1 + 1e-12));
    }
    EXPECT_LE(SmallestValue(problem, EvenShares(problem)), bound * (1 + 1e-12));
  }
}

TEST(UpperBound, IsTightAtTheDualOptimum) {
  // Two equal jobs, one accelerator: each gets half of it.
  const MaxMinProblem problem{{{1}, {1, 1}}, {1, 1}};
  const std::vector<double> weight = {1, 1};
  const std::vector<double> price = {1};
  EXPECT_DOUBLE_EQ(UpperBound(problem, weight, price), 0.5);
}

TEST(UpperBound, WithoutAnyWeightIsInfinite) {
  const MaxMinProblem problem{{{1}, {1}}, {1}};
  const std::vector<double> none = {-1};
  EXPECT_TRUE(std::isinf(UpperBound(problem, none, none)));
}

}  // namespace
}  // namespace gavel::testing
