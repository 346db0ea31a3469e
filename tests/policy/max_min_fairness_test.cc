#include <cmath>
#include <numeric>

#include "coordinator/policy/policies.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr char kAgnostic[] = "max_min_fairness";
constexpr char kAware[] = "max_min_fairness_perf";

TEST(MaxMinFairness, NobodyIsWorseOffThanWithAnEqualShareOfEveryType) {
  // Sharing incentive. Job m alone would have the part w_m / sum w of every
  // type, as far as its gang can use it.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed + 1000, 30);
    const PolicyResult result = Solved(kAware, problem);
    double weights = 0;
    for (const PolicyJob& job : problem.jobs) weights += job.weight;
    double isolated = HUGE_VAL;
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      if (!result.allocation.Contains(problem.jobs[m].id)) continue;
      const PolicyJob& job = problem.jobs[m];
      std::vector<double> x;
      for (const int count : problem.capacity) {
        x.push_back(job.weight / weights * count / job.scale_factor);
      }
      const double sum = std::accumulate(x.begin(), x.end(), 0.0);
      for (double& share : x) share /= std::max(1.0, sum);
      const Allocation alone =
          Allocation::FromRows({{job.id, JobId()}}, x.size(), x);
      isolated = std::min(isolated, JobValues(problem, alone, false)[m]);
    }
    if (std::isinf(isolated)) continue;
    EXPECT_GE(result.objective, isolated * (1 - 1e-7));
  }
}

TEST(MaxMinFairness, WhatIsLeftOverIsSpent) {
  // One job can't use more than one accelerator at once; the others are idle
  // in an optimum that only looks at the least value.
  PolicyProblem problem = MakeProblem({1, 3}, {{1, 0}, {1, 2}, {1, 2}});
  const PolicyResult result = Solved(kAware, problem);
  for (const ShareUnit& unit : result.allocation.units()) {
    const std::vector<double> row = result.allocation.Row(unit);
    EXPECT_NEAR(row[0] + row[1], 1, 1e-6) << unit.job.value();
  }
}

TEST(MaxMinFairness, TheRestIsSpentEvenWhereTakingFromTheLeastWouldGiveMore) {
  // The total would be largest if jobs 3 and 4 left type 2 to jobs 1 and 2; the
  // others have types 0 and 1 to themselves.
  const PolicyProblem problem = MakeProblem({1, 3, 1, 1}, {{0, 0, 10, 1},
                                                           {0, 0, 10, 1},
                                                           {0, 0, 2, 1.9},
                                                           {0, 0, 2, 1.9},
                                                           {1, 0, 0, 0},
                                                           {1, 2, 0, 0},
                                                           {1, 2, 0, 0}});
  const PolicyResult result = Solved(kAware, problem);
  EXPECT_LE(result.gap, 1e-7);
  for (const uint64_t job : {5, 6, 7}) {
    const std::vector<double> row = result.allocation.Row(JobId(job));
    EXPECT_NEAR(row[0] + row[1], 1, 1e-6) << job;
  }
}

TEST(MaxMinFairness, AJobThatRunsNowhereIsLeftOutAndHurtsNobody) {
  PolicyProblem problem = MakeProblem({2, 1}, {{0, 0}, {1, 1}, {1, 1}});
  problem.jobs[2].scale_factor = 4;
  const PolicyResult result = Solved(kAware, problem);
  EXPECT_EQ(result.left_out, (std::vector<JobId>{JobId(1), JobId(3)}));
  EXPECT_NEAR(result.objective, 1, 1e-9);
}

TEST(MaxMinFairness, AGangGetsNoTimeOnATypeSmallerThanItself) {
  PolicyProblem problem = MakeProblem({1, 2}, {{100, 1}});
  problem.jobs[0].scale_factor = 2;
  const PolicyResult result = Solved(kAware, problem);
  EXPECT_EQ(result.allocation.Row(JobId(1))[0], 0);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[1], 1, 1e-9);
}

TEST(MaxMinFairness, TheAgnosticFormDoesNotLookAtThroughputs) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 9}, {5, 1}, {3, 3}});
  PolicyProblem other = MakeProblem({1, 1}, {{7, 1}, {2, 8}, {1, 1}});
  const PolicyResult a = Solved(kAgnostic, problem);
  const PolicyResult b = Solved(kAgnostic, other);
  for (const PolicyJob& job : problem.jobs) {
    EXPECT_EQ(a.allocation.Row(job.id), b.allocation.Row(job.id));
  }
  EXPECT_NEAR(a.objective, 2.0 / 3, 1e-9);
}

TEST(MaxMinFairness, AtTheIterationLimitTheAnswerIsStillFeasibleAndBounded) {
  LpOptions options;
  options.method = LpMethod::kSimplex;
  for (const int iterations : {0, 1, 5, 20}) {
    options.iterations_max = iterations;
    for (uint64_t seed = 40; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      const PolicyProblem problem = RandomProblem(seed, 60);
      const PolicyResult result =
          SolveMaxMinFairness(problem, PolicyForm::kAware, options);
      ASSERT_EQ(ShareErrors(problem, result), "");
      if (result.allocation.units().empty()) continue;
      EXPECT_GT(result.objective, 0);
      const double optimum = Solved(kAware, problem).objective;
      EXPECT_GE(result.bound, optimum * (1 - 1e-9));
      EXPECT_LE(result.objective, optimum * (1 + 1e-7));
      if (result.outcome != SolveOutcome::kOptimal) {
        EXPECT_EQ(result.outcome, SolveOutcome::kIterationLimit);
        EXPECT_NE(result.detail, "");
      }
    }
  }
}

TEST(MaxMinFairness, SimplexAndInteriorPointAgree) {
  LpOptions simplex{LpMethod::kSimplex};
  LpOptions interior_point{LpMethod::kInteriorPoint};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const PolicyProblem problem = RandomProblem(seed + 70, 300);
    const PolicyResult a =
        SolveMaxMinFairness(problem, PolicyForm::kAware, simplex);
    const PolicyResult b =
        SolveMaxMinFairness(problem, PolicyForm::kAware, interior_point);
    EXPECT_NEAR(a.objective, b.objective, 1e-7 * std::max(1.0, a.objective));
    EXPECT_EQ(ShareErrors(problem, b), "");
  }
}

TEST(MaxMinFairness, ExtremeThroughputsBreakNothing) {
  const PolicyProblem problem = MakeProblem(
      {1, 1}, {{1e-300, 2e-300}, {1e300, 1e299}, {1, 1e-200}, {1e-9, 1e9}});
  const PolicyResult result = Solved(kAware, problem);
  EXPECT_EQ(ShareErrors(problem, result), "");
  EXPECT_GT(result.objective, 0.25);
}

}  // namespace
}  // namespace gavel::testing
