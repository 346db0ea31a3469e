#include <cmath>

#include "coordinator/policy/policies.h"
#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr char kAgnosticProof[] = "strategy_proof";
constexpr char kAwareProof[] = "strategy_proof_perf";

TEST(StrategyProof, AJobAloneKeepsAll) {
  const PolicyProblem problem = MakeProblem({1, 1}, {{1, 3}});
  const PolicyResult result = Solved(kAwareProof, problem);
  EXPECT_EQ(result.allocation.Row(JobId(1)), (std::vector<double>{0, 1}));
  EXPECT_NEAR(result.objective, 1.5, 1e-9);
}

// Two jobs, one accelerator: half each; without the one the other would have
// all, so each keeps half of its half.
TEST(StrategyProof, AJobKeepsThePartThatItLeavesToTheOthers) {
  const PolicyResult result = Solved(kAwareProof, MakeProblem({1}, {{5}, {7}}));
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.25, 1e-8);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 0.25, 1e-8);
  EXPECT_NEAR(result.objective, 0.5, 1e-9);  // before the discount
  EXPECT_LE(result.gap, 1e-9);
}

TEST(StrategyProof, WhereNobodyStandsInTheWayNothingIsTaken) {
  const PolicyResult result =
      Solved(kAwareProof, MakeProblem({1, 1}, {{4, 1}, {1, 3}}));
  EXPECT_EQ(result.allocation.Row(JobId(1)), (std::vector<double>{1, 0}));
  EXPECT_EQ(result.allocation.Row(JobId(2)), (std::vector<double>{0, 1}));
}

// The formula, from throughputs at the optima.
TEST(StrategyProof, DiscountsAreProductsOfWhatTheOthersLose) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed + 1900, 8);
    const PolicyResult result = Solved(kAwareProof, problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    EXPECT_EQ(ShareErrors(problem, result), "");
    const ShareProblem shares = MakeShareProblem(problem);
    if (shares.size() < 2) continue;
    const std::vector<double> all =
        Throughputs(shares, MaximizeNashProduct(shares).shares);
    const std::vector<double> kept =
        JobThroughputs(problem, result.allocation, false);
    for (size_t i = 0; i < shares.size(); ++i) {
      const std::vector<double> without =
          Throughputs(shares, MaximizeNashProduct(shares, i).shares);
      double discount = 1;
      for (size_t k = 0; k < shares.size(); ++k) {
        if (k != i) discount *= all[k] / without[k];
      }
      EXPECT_LE(discount, 1 + 1e-7);
      EXPECT_NEAR(kept[shares.jobs[i]], discount * all[i],
                  1e-6 * discount * all[i]);
    }
  }
}

TEST(StrategyProof, TheAgnosticFormDoesNotLookAtThroughputs) {
  const PolicyResult a =
      Solved(kAgnosticProof, MakeProblem({1, 1}, {{1, 9}, {5, 1}, {3, 3}}));
  const PolicyResult b =
      Solved(kAgnosticProof, MakeProblem({1, 1}, {{7, 1}, {2, 8}, {1, 1}}));
  for (const uint64_t id : {1, 2, 3}) {
    EXPECT_EQ(a.allocation.Row(JobId(id)), b.allocation.Row(JobId(id)));
  }
  EXPECT_NEAR(a.objective, 2.0 / 3, 1e-9);
}

TEST(StrategyProof, WeightsScaleTheObjectiveOnly) {
  PolicyProblem problem = MakeProblem({1, 1}, {{4, 1}, {3, 2}, {1, 1}});
  const PolicyResult equal = Solved(kAwareProof, problem);
  problem.jobs[1].weight = 8;
  const PolicyResult weighted = Solved(kAwareProof, problem);
  EXPECT_NEAR(weighted.objective, equal.objective / 2, 1e-9);
  for (const PolicyJob& job : problem.jobs) {
    EXPECT_EQ(equal.allocation.Row(job.id), weighted.allocation.Row(job.id));
  }
}

TEST(StrategyProof, TheShortNamesAreTheSamePolicies) {
  const PolicyProblem problem = RandomProblem(3, 8);
  for (const auto& [name, full] :
       {std::pair(kAgnosticProof, "max_min_fairness_strategy_proof"),
        std::pair(kAwareProof, "max_min_fairness_strategy_proof_perf")}) {
    const PolicyResult a = Solved(name, problem);
    const PolicyResult b = Solved(full, problem);
    EXPECT_EQ(a.objective, b.objective);
    for (const PolicyJob& job : problem.jobs) {
      EXPECT_EQ(a.allocation.Row(job.id), b.allocation.Row(job.id));
    }
  }
}

}  // namespace
}  // namespace gavel::testing
