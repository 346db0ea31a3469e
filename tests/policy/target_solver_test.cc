#include "coordinator/policy/lp/target_solver.h"

#include <cstdint>
#include <random>
#include <vector>

#include "coordinator/policy/lp/target_program.h"
#include "coordinator/policy/share/share_problem.h"
#include "gtest/gtest.h"
#include "tests/policy/problems.h"

namespace gavel::testing {

using namespace policy;
namespace {

double GainOf(const ShareProblem& problem, const std::vector<double>& gain,
              const std::vector<double>& shares) {
  double total = 0;
  for (size_t m = 0; m < problem.size(); ++m) {
    total += gain[m] * Throughput(problem, m, shares);
  }
  return total;
}

TEST(TargetSolver, AJobThatIsSplitLeavesTheTypeThatAnotherNeeds) {
  // The first two share the scarce type; what they lack they can have of the
  // second or of the third, and the last job can run on the second only.
  const PolicyProblem problem =
      MakeProblem({1, 1, 1}, {{4, 1, 1}, {4, 1, 1}, {0, 10, 0}});
  const ShareProblem shares = MakeShareProblem(problem);
  const TargetAnswer answer = SolveTargets(
      shares, {1, 1, 1}, std::vector<double>{1, 1, 1}, SolverChoice::kPrices);
  ASSERT_EQ(answer.outcome, SolveOutcome::kOptimal) << answer.detail;
  EXPECT_NEAR(answer.level, 2.5, 1e-8);
  EXPECT_NEAR(Throughput(shares, 2, answer.shares), 10, 1e-6);
}

// Speeds of 1, 2 or 3, so that ties are everywhere.
TEST(TargetSolver, WhatIsLeftIsSpentAsWellAsByHighs) {
  int solved = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::vector<double>> rows;
    for (size_t m = 0; m < 2 + random() % 8; ++m) {
      rows.push_back({static_cast<double>(1 + random() % 3),
                      static_cast<double>(random() % 4),
                      static_cast<double>(random() % 4)});
    }
    const ShareProblem shares = MakeShareProblem(MakeProblem({1, 2, 2}, rows));
    const std::vector<double> ones(shares.size(), 1.0);
    const TargetAnswer price =
        SolveTargets(shares, ones, ones, SolverChoice::kPrices);
    const TargetAnswer highs =
        SolveTargets(shares, ones, ones, SolverChoice::kHighs);
    if (price.outcome != SolveOutcome::kOptimal) continue;
    ++solved;
    EXPECT_NEAR(price.level, highs.level, 1e-7 * highs.level);
    const double best = GainOf(shares, ones, highs.shares);
    EXPECT_GE(GainOf(shares, ones, price.shares), best * (1 - 1e-6));
  }
  EXPECT_GT(solved, 50);
}

}  // namespace
}  // namespace gavel::testing
