#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

// [n] s_m sum_c X[m][c] / (w_m sum_j N_j).
std::vector<double> DominantShares(const PolicyProblem& problem,
                                   const Allocation& allocation) {
  double accelerators = 0;
  for (const int count : problem.capacity) accelerators += count;
  std::vector<double> shares = JobThroughputs(problem, allocation, true);
  for (size_t m = 0; m < shares.size(); ++m) {
    shares[m] *= problem.jobs[m].scale_factor;
    shares[m] /= problem.jobs[m].weight * accelerators;
  }
  return shares;
}

// A gang of two holds twice as much when it runs: it runs half as long.
TEST(Drf, JobsHoldEqualPartsOfTheAccelerators) {
  PolicyProblem problem = MakeProblem({2}, {{9}, {1}, {5}});
  problem.jobs[2].scale_factor = 2;
  const PolicyResult result = Solved("drf", problem);
  EXPECT_NEAR(result.objective, 1.0 / 3, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 2.0 / 3, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[0], 1.0 / 3, 1e-9);
}

TEST(Drf, OfTwiceTheWeightTwiceThePart) {
  PolicyProblem problem = MakeProblem({1}, {{9}, {1}});
  problem.jobs[1].weight = 2;
  const PolicyResult result = Solved("drf", problem);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 2.0 / 3, 1e-9);
}

// Job 1 is full with one accelerator; the others go on rising.
TEST(Drf, WhatAJobCannotHoldGoesToTheOthers) {
  PolicyProblem problem = MakeProblem({1, 4}, {{1, 0}, {0, 1}, {0, 1}});
  problem.jobs[1].scale_factor = problem.jobs[2].scale_factor = 4;
  const PolicyResult result = Solved("drf", problem);
  const std::vector<double> shares = DominantShares(problem, result.allocation);
  EXPECT_NEAR(shares[0], 0.2, 1e-9);
  EXPECT_NEAR(shares[1], 0.4, 1e-9);
  EXPECT_NEAR(shares[2], 0.4, 1e-9);
}

TEST(Drf, SharesAreTheLexicographicallyLargestWhateverTheThroughputs) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = seed % 2 == 0
                                      ? RandomProblem(seed + 1100, 20)
                                      : RandomPlacement(seed, 12, false);
    const PolicyResult result = Solved("drf", problem);
    ASSERT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    EXPECT_EQ(ShareErrors(problem, result), "");
    EXPECT_EQ(LexicographicErrors(problem, result.allocation,
                                  DominantShares(problem, result.allocation),
                                  /*packs=*/false, /*agnostic=*/true),
              "");
    EXPECT_LE(result.gap, 1e-9);
    PolicyProblem faster = problem;
    for (double& throughput : faster.throughputs) throughput *= 3;
    EXPECT_EQ(Solved("drf", faster).objective, result.objective);
  }
}

}  // namespace
}  // namespace gavel::testing
