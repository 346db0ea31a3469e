#include "coordinator/policy/lp/log_program.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/policy/problems.h"

namespace gavel::testing {

using namespace policy;
namespace {

// Two jobs, one accelerator: the sum of logarithms of shares is at most
// 2 log(1/2).
TEST(LogProgram, TangentsAtTheOptimumAreTight) {
  const ShareProblem shares = MakeShareProblem(MakeProblem({1}, {{3}, {5}}));
  LogProgram program(shares, {3, 5});
  program.AddTangents(std::vector{0.5, 0.5});
  EXPECT_NEAR(program.Solve().bound, 2 * std::log(0.5), 1e-9);
}

TEST(LogProgram, WhereverTheTangentsTheBoundHolds) {
  const ShareProblem shares = MakeShareProblem(MakeProblem({1}, {{3}, {5}}));
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0.01, 1);
  for (int round = 0; round < 50; ++round) {
    LogProgram program(shares, {3, 5});
    program.AddTangents(std::vector{uniform(random), uniform(random)});
    const LogProgram::Answer answer = program.Solve();
    EXPECT_GE(answer.bound, 2 * std::log(0.5) - 1e-9);
    EXPECT_LE(answer.shares[0] + answer.shares[1], 1 + 1e-12);
  }
}

TEST(LogProgram, TangentsWhereTheSolutionIsLeadToTheOptimum) {
  const ShareProblem shares =
      MakeShareProblem(MakeProblem({1, 1}, {{4, 1}, {1, 1}, {1, 1}}));
  LogProgram program(shares, {4, 1, 1});
  program.AddTangents(std::vector{1.0, 1.0, 1.0});
  double bound = 0;
  for (int round = 0; round < 40; ++round) {
    const LogProgram::Answer answer = program.Solve();
    bound = answer.bound;
    std::vector<double> ratios = Throughputs(shares, answer.shares);
    ratios[0] /= 4;
    for (double& ratio : ratios) ratio = std::max(ratio, 1e-3);
    program.AddTangents(ratios);
  }
  EXPECT_NEAR(bound, 3 * std::log(2.0 / 3), 1e-9);
}

TEST(LogProgram, JobsThatDoNotCountTakeNothing) {
  const ShareProblem shares = MakeShareProblem(MakeProblem({1}, {{3}, {5}}));
  LogProgram program(shares, {0, 5});
  program.AddTangents(std::vector{0.0, 1.0});
  EXPECT_NEAR(program.Solve().bound, 0, 1e-9);
}

}  // namespace
}  // namespace gavel::testing
