#include "coordinator/policy/policy.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

PolicyResult Claimed(double objective, double bound) {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.objective = objective;
  result.bound = bound;
  return result;
}

TEST(Bound, OneOnItsSideStaysAsItIs) {
  PolicyResult most = Claimed(2, 2.000001);
  EXPECT_TRUE(Certify(Sense::kMaximum, &most));
  EXPECT_EQ(most.bound, 2.000001);
  EXPECT_NEAR(most.gap, 5e-7, 1e-12);
  PolicyResult least = Claimed(2, 1.999999);
  EXPECT_TRUE(Certify(Sense::kMinimum, &least));
  EXPECT_EQ(least.bound, 1.999999);
  EXPECT_EQ(least.outcome, SolveOutcome::kOptimal);
}

TEST(Bound, FarFromWhatWasAchievedItProvesNoOptimum) {
  PolicyResult most = Claimed(2, 3);
  EXPECT_FALSE(Certify(Sense::kMaximum, &most));
  EXPECT_EQ(most.bound, 3);
  EXPECT_DOUBLE_EQ(most.gap, 1.0 / 3);
  EXPECT_EQ(most.outcome, SolveOutcome::kIterationLimit);
  EXPECT_EQ(most.detail, "the bound 3 is not met: 2 was achieved");
  PolicyResult told = Claimed(3, 2);
  told.outcome = SolveOutcome::kInfeasible;
  EXPECT_TRUE(Certify(Sense::kMinimum, &told));
  EXPECT_EQ(told.outcome, SolveOutcome::kInfeasible);
}

TEST(Bound, WithinRoundingItIsTheObjective) {
  PolicyResult most = Claimed(2, 2 - 1e-9);
  EXPECT_TRUE(Certify(Sense::kMaximum, &most));
  EXPECT_EQ(most.bound, 2);
  EXPECT_EQ(most.gap, 0);
  PolicyResult least = Claimed(2, 2 + 1e-9);
  EXPECT_TRUE(Certify(Sense::kMinimum, &least));
  EXPECT_EQ(least.bound, 2);
  EXPECT_EQ(least.detail, "");
}

TEST(Bound, BelowWhatWasAchievedItIsRefused) {
  PolicyResult most = Claimed(2, 1.5);
  EXPECT_FALSE(Certify(Sense::kMaximum, &most));
  EXPECT_EQ(most.outcome, SolveOutcome::kIterationLimit);
  EXPECT_THAT(most.detail, AllOf(HasSubstr("bound 1.5 is refused"),
                                 HasSubstr("2 was achieved")));
  EXPECT_EQ(most.bound, 1.5);
  PolicyResult least = Claimed(1e-5, 2e-5);
  EXPECT_FALSE(Certify(Sense::kMinimum, &least));
  EXPECT_EQ(least.outcome, SolveOutcome::kIterationLimit);
}

TEST(Bound, WhatIsInfeasibleRemainsSoAndTellsBoth) {
  PolicyResult result = Claimed(2, 1);
  result.outcome = SolveOutcome::kInfeasible;
  result.detail = "job 7";
  EXPECT_FALSE(Certify(Sense::kMaximum, &result));
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  EXPECT_THAT(result.detail, HasSubstr("job 7; the bound 1 is refused"));
}

// Sums of large terms that nearly cancel have the rounding error of the terms.
TEST(Bound, RoundingIsThatOfTheTerms) {
  double bound = -1e-8;
  EXPECT_EQ(CheckBound(Sense::kMaximum, 0, 100, &bound), "");
  EXPECT_EQ(bound, 0);
  bound = -1e-6;
  EXPECT_NE(CheckBound(Sense::kMaximum, 0, 100, &bound), "");
}

}  // namespace
}  // namespace gavel::testing
