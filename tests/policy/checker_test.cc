// The checker sees what is wrong.
#include "tests/policy/checker.h"

#include <cmath>
#include <vector>

#include "coordinator/policy/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/policy/problems.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;

// Two jobs, a gang of two and one alone, on 2 and 1 accelerators.
PolicyProblem TwoJobs() {
  PolicyProblem problem = MakeProblem({2, 1}, {{4, 1}, {2, 3}});
  problem.jobs[0].scale_factor = 2;
  return problem;
}

PolicyResult Answer(std::vector<double> shares) {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.allocation = Allocation::FromRows(
      {{JobId(1), JobId()}, {JobId(2), JobId()}}, 2, std::move(shares));
  result.objective = result.bound = 3;
  return result;
}

TEST(Checker, SharesBeyondLimitsAreErrors) {
  EXPECT_EQ(ShareErrors(TwoJobs(), Answer({1, 0, 0, 1})), "");
  EXPECT_THAT(ShareErrors(TwoJobs(), Answer({1, 0, -0.1, 1})),
              HasSubstr("negative"));
  EXPECT_THAT(ShareErrors(TwoJobs(), Answer({0.5, 0, 0.5, 0.6})),
              HasSubstr("time 1.1"));
  EXPECT_THAT(ShareErrors(TwoJobs(), Answer({1, 0, 0.5, 0.5})),
              HasSubstr("type 0"));
  EXPECT_THAT(ShareErrors(TwoJobs(), Answer({0.5, 0.5, 0, 0.5})),
              HasSubstr("can't run on 1"));
  PolicyResult out = Answer({1, 0, 0, 1});
  out.left_out = {JobId(2)};
  EXPECT_THAT(ShareErrors(TwoJobs(), out), HasSubstr("left out"));
}

TEST(Checker, BoundsAndGapsThatAreNotTrueAreErrors) {
  const auto errors = [](double objective, double bound, double gap) {
    PolicyResult result = Answer({1, 0, 0, 1});
    result.objective = objective;
    result.bound = bound;
    result.gap = gap;
    return AnswerErrors(TwoJobs(), result, /*minimises=*/false);
  };
  EXPECT_EQ(errors(3, 3, 0), "");
  EXPECT_NE(errors(3, 3.3, 0.3 / 3.3), "");  // a gap too large
  EXPECT_NE(errors(3, 2.9, 0.1 / 2.9), "");  // beyond its bound
  EXPECT_NE(errors(3, 3, 1e-3), "");         // not that of the two
  EXPECT_NE(errors(3, std::nan(""), 0), "");
}

TEST(Checker, AJobThatCouldHaveMoreIsFound) {
  const PolicyProblem problem = TwoJobs();
  const auto errors = [&](std::vector<double> shares) {
    const Allocation allocation = Answer(std::move(shares)).allocation;
    return LexicographicErrors(problem, allocation,
                               JobThroughputs(problem, allocation, false),
                               /*packs=*/false, /*agnostic=*/false);
  };
  EXPECT_EQ(errors({1, 0, 0, 1}), "");
  EXPECT_THAT(errors({0.5, 0, 0, 1}), HasSubstr("job index 0"));
}

TEST(Checker, WhatIsTooMuchIsScaledDown) {
  const PolicyProblem problem = TwoJobs();
  const auto excess = [&](const std::vector<double>& shares) {
    return Excess(problem, shares);
  };
  EXPECT_DOUBLE_EQ(excess({1, 0, 0, 1}), 1);
  EXPECT_DOUBLE_EQ(excess({0, 0, 0.5, 1}), 1.5);     // time
  EXPECT_DOUBLE_EQ(excess({1, 0, 0.5, 0.5}), 1.25);  // accelerators
  EXPECT_DOUBLE_EQ(excess({1, -1, 1, 0}), 1.5);  // no room by less than none
  EXPECT_EQ(FittingThroughputs(problem, std::vector<double>{0, 0, 0.5, 1}),
            (std::vector<double>{0, 4 / 1.5}));
}

TEST(Checker, TheCheapestWayIsOneTypeOrTwoWithAllOfTheTime) {
  const std::vector<double> prices = {0.25, 0.5};  // of all together: 1
  const auto cost = [&](double first, double second) {
    return CheapestCost(TwoJobs(), prices,
                        [&](size_t m) { return m == 0 ? first : second; });
  };
  EXPECT_DOUBLE_EQ(cost(2, 0), 2 * 0.25 / 2);
  EXPECT_DOUBLE_EQ(cost(0, 2), 0.25);
  EXPECT_DOUBLE_EQ(cost(0, 2.5), 0.5 * 0.25 + 0.5 * 0.5);
  EXPECT_TRUE(std::isinf(cost(4.1, 0)));
}

}  // namespace
}  // namespace gavel::testing
