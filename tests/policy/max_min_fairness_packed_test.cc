#include <cmath>
#include <numeric>

#include "coordinator/policy/policy.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr char kPacked[] = "max_min_fairness_packed";
constexpr char kAlone[] = "max_min_fairness_perf";

void ExpectCertified(const PolicyProblem& problem, const char* name,
                     bool agnostic) {
  const PolicyResult result = Solved(name, problem);
  ASSERT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  ASSERT_EQ(ShareErrors(problem, result), "");
  if (result.allocation.units().empty()) return;
  const double least =
      LeastValue(JobValues(problem, result.allocation, agnostic));
  EXPECT_NEAR(result.objective, least, 1e-12 * least);
  EXPECT_GE(result.bound, least * (1 - 1e-12));
  EXPECT_LE(result.bound, least * (1 + 1e-7));
}

TEST(MaxMinFairnessPacked, WantsPairs) {
  EXPECT_TRUE((*MakePolicy(kPacked))->packs());
  EXPECT_FALSE((*MakePolicy(kAlone))->packs());
}

TEST(MaxMinFairnessPacked, TwoJobsThatFitTogetherShareAllTheTime) {
  PolicyProblem problem = MakeProblem({1}, {{10}, {4}});
  AddPair(0, 1, 0.9, 0.8, &problem);
  const PolicyResult result = Solved(kPacked, problem);
  // Job 2 also runs alone for a while: 0.9 y = 0.8 y + (1 - y).
  EXPECT_NEAR(result.objective, 0.9 / 1.1, 1e-9);
  const ShareUnit pair{JobId(1), JobId(2)};
  EXPECT_NEAR(result.allocation.Row(pair)[0], 1 / 1.1, 1e-8);
  EXPECT_NEAR(Solved(kAlone, problem).objective, 0.5, 1e-9);
}

TEST(MaxMinFairnessPacked, JobsThatSlowEachOtherDownStayAlone) {
  PolicyProblem problem = MakeProblem({1}, {{10}, {4}});
  AddPair(0, 1, 0.5, 0.4, &problem);
  const PolicyResult result = Solved(kPacked, problem);
  EXPECT_EQ(result.allocation.units().size(), 2u);
  EXPECT_NEAR(result.objective, 0.5, 1e-9);
}

// Two gangs of two share their accelerators, and the single job runs on the
// third one. The original reshapes its variables as if all jobs had the same
// number of combinations, and gets this wrong.
TEST(MaxMinFairnessPacked, GangsPackWithGangsOfTheirSize) {
  PolicyProblem problem = MakeProblem({3}, {{10}, {4}, {7}});
  problem.jobs[0].scale_factor = problem.jobs[1].scale_factor = 2;
  AddPair(0, 1, 1, 1, &problem);
  const PolicyResult result = Solved(kPacked, problem);
  EXPECT_NEAR(result.allocation.Row(ShareUnit{JobId(1), JobId(2)})[0], 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[0], 1, 1e-9);
  EXPECT_NEAR(result.objective, 1, 1e-9);  // of job 3; the gangs have 2
}

TEST(MaxMinFairnessPacked, WithPlacementToo) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomPlacement(seed, 12, true);
    ExpectCertified(problem, kPacked, false);
    ExpectCertified(problem, kAlone, false);
    ExpectCertified(problem, "max_min_fairness", true);
  }
}

TEST(MaxMinFairnessPacked, IsNeverWorseThanWithoutPairs) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    PolicyProblem problem = RandomPairs(seed + 100, 15);
    const double alone = Solved(kAlone, problem).objective;
    EXPECT_GE(Solved(kPacked, problem).objective, alone * (1 - 1e-8));
    problem.pairs.clear();
    problem.pair_throughputs.clear();
    EXPECT_NEAR(Solved(kPacked, problem).objective, alone, 1e-9 * alone);
  }
}

// Throughputs in other units give the same values.
TEST(MaxMinFairnessPacked, UnitsOfThroughputsDoNotMatter) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomPairs(seed + 200, 12);
    PolicyProblem other = problem;
    const auto scale = [](size_t m) { return m % 2 == 0 ? 1e6 : 1e-6; };
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      for (size_t c = 0; c < problem.columns(); ++c) {
        other.throughputs[m * problem.columns() + c] *= scale(m);
      }
    }
    for (size_t p = 0; p < problem.pairs.size(); ++p) {
      for (size_t c = 0; c < problem.columns(); ++c) {
        double* of = &other.pair_throughputs[2 * (p * problem.columns() + c)];
        of[0] *= scale(problem.pairs[p].first);
        of[1] *= scale(problem.pairs[p].second);
      }
    }
    const double objective = Solved(kPacked, problem).objective;
    EXPECT_NEAR(Solved(kPacked, other).objective, objective, 1e-7 * objective);
  }
}

// Gavel section 3.1: two servers of 2 hold one consolidated gang of 2 each; a
// gang of 3 is never consolidated.
TEST(MaxMinFairnessPlacement, GangsAreConsolidatedWhereServersAllow) {
  PolicyProblem problem = MakeProblem({4}, {{0}, {0}, {0}});
  problem.servers = {{2, 2}};
  problem.throughputs = {10, 1, 10, 1, 10, 9};
  problem.jobs[0].scale_factor = problem.jobs[1].scale_factor = 2;
  problem.jobs[2].scale_factor = 3;
  const PolicyResult result = Solved(kAlone, problem);
  EXPECT_EQ(ShareErrors(problem, result), "");
  EXPECT_EQ(result.allocation.columns(), 2u);
  EXPECT_EQ(result.allocation.Row(JobId(3))[0], 0);
  EXPECT_GT(result.allocation.Row(JobId(3))[1], 0.3);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[1], 0, 1e-9);
}

// Three servers with 3 accelerators hold three consolidated gangs of 2, and
// three accelerators are left to gangs across servers and to single jobs.
TEST(MaxMinFairnessPlacement, WhatGangsCannotFillIsLeftToOthers) {
  PolicyProblem problem = MakeProblem({9}, {{0}, {0}, {0}, {0}});
  problem.servers = {{3, 3, 3}};
  problem.throughputs.assign(8, 1);
  for (size_t m = 0; m < 4; ++m) {
    problem.jobs[m].scale_factor = 2;
    problem.throughputs[2 * m + 1] = 0;
  }
  EXPECT_NEAR(Solved(kAlone, problem).objective, 1.5, 1e-9);  // 2 * 3/4
  problem.throughputs[1] = 0.5;  // job 1 can also run across servers
  EXPECT_GT(Solved(kAlone, problem).objective, 1.5 + 1e-3);
}

}  // namespace
}  // namespace gavel::testing
