#include "coordinator/policy/water_filling.h"

#include <cmath>

#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr char kAgnosticFilling[] = "max_min_fairness_water_filling";
constexpr char kAwareFilling[] = "max_min_fairness_water_filling_perf";
constexpr char kPacked[] = "max_min_fairness_water_filling_packed";

void ExpectLexicographic(const char* name, const PolicyProblem& problem,
                         bool packs, bool agnostic) {
  const PolicyResult result = Solved(name, problem);
  ASSERT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  ASSERT_EQ(ShareErrors(problem, result), "");
  const std::vector<double> values =
      JobValues(problem, result.allocation, agnostic);
  EXPECT_EQ(
      LexicographicErrors(problem, result.allocation, values, packs, agnostic),
      "");
  if (result.allocation.units().empty()) return;
  EXPECT_NEAR(result.objective, LeastValue(values), 1e-9 * result.objective);
  EXPECT_LE(result.objective, result.bound);
  EXPECT_GE(result.objective, result.bound * (1 - 1e-7));
}

// Job 3 alone can use the second type; the other two share the first.
TEST(WaterFilling, WhoCanHaveMoreDoesWhenTheLeastCannot) {
  const PolicyProblem problem = MakeProblem({1, 1}, {{1, 0}, {1, 0}, {0, 1}});
  const PolicyResult result = Solved(kAwareFilling, problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 0.5, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[1], 1, 1e-9);
}

// Three levels: jobs 1 to 3 on one accelerator of type 0, 4 and 5 on one of
// type 1, job 6 on type 2 alone.
TEST(WaterFilling, EachLevelIsAsHighAsItCanBe) {
  const PolicyProblem problem = MakeProblem(
      {1, 1, 1},
      {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 1, 0}, {0, 0, 1}});
  const PolicyResult result = Solved(kAwareFilling, problem);
  const std::vector<double> values =
      JobValues(problem, result.allocation, false);
  const std::vector<double> expected = {1, 1, 1, 1.5, 1.5, 3};
  for (size_t m = 0; m < values.size(); ++m) {
    EXPECT_NEAR(values[m], expected[m], 1e-9) << m;
  }
}

TEST(WaterFilling, AWeightBelowOneEndsNothingEarly) {
  // Where the original stops: the rest of the first type was left idle.
  PolicyProblem problem = MakeProblem({2, 1}, {{1, 0}, {1, 0}, {0, 1}, {0, 1}});
  problem.jobs[0].weight = 0.5;
  problem.jobs[2].weight = 0.25;
  const PolicyResult result = Solved(kAwareFilling, problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(2))[0], 1, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(3))[1], 0.2, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(4))[1], 0.8, 1e-9);
}

TEST(WaterFilling, SortedValuesAreTheLexicographicallyLargest) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed + 300, 20);
    ExpectLexicographic(kAwareFilling, problem, false, false);
    ExpectLexicographic(kAgnosticFilling, problem, false, true);
  }
}

TEST(WaterFilling, PackedToo) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    ExpectLexicographic(kPacked, RandomPairs(seed + 400, 10), true, false);
  }
}

TEST(WaterFilling, WithPlacementToo) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomPlacement(seed + 500, 10, true);
    ExpectLexicographic(kPacked, problem, true, false);
    ExpectLexicographic(kAwareFilling, problem, false, false);
    ExpectLexicographic(kAgnosticFilling, problem, false, true);
  }
}

TEST(WaterFilling, TheLeastValueIsThatOfMaxMinFairness) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed + 600, 30);
    const double least = Solved("max_min_fairness_perf", problem).objective;
    EXPECT_NEAR(Solved(kAwareFilling, problem).objective, least, 1e-7 * least);
  }
}

TEST(WaterFilling, UnitsOfThroughputsDoNotMatter) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomProblem(seed + 700, 15);
    PolicyProblem other = problem;
    const size_t columns = problem.columns();
    for (size_t i = 0; i < other.throughputs.size(); ++i) {
      other.throughputs[i] *= i / columns % 2 == 0 ? 1e6 : 1e-6;
    }
    const std::vector<double> a = Sorted(
        JobValues(problem, Solved(kAwareFilling, problem).allocation, false));
    const std::vector<double> b = Sorted(
        JobValues(other, Solved(kAwareFilling, other).allocation, false));
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], 1e-7 * a[i]);
    }
  }
}

// The first value that differs is the larger one: pairs only add choices.
TEST(WaterFilling, PackingIsNeverLexicographicallyWorse) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = RandomPairs(seed + 800, 12);
    const std::vector<double> alone = Sorted(
        JobValues(problem, Solved(kAwareFilling, problem).allocation, false));
    const std::vector<double> packed =
        Sorted(JobValues(problem, Solved(kPacked, problem).allocation, false));
    ASSERT_EQ(alone.size(), packed.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      ASSERT_GE(packed[i], alone[i] * (1 - 1e-6));
      if (packed[i] > alone[i] * (1 + 1e-6)) break;
    }
  }
}

TEST(WaterFilling, EqualJobsHaveEqualValues) {
  std::vector<std::vector<double>> rows(30, {4, 2, 1});
  rows.insert(rows.end(), 30, {1, 3, 0});
  const PolicyProblem problem = MakeProblem({3, 5, 7}, rows);
  const std::vector<double> values =
      JobValues(problem, Solved(kAwareFilling, problem).allocation, false);
  for (size_t m = 0; m < 60; ++m) {
    EXPECT_NEAR(values[m], values[m < 30 ? 0 : 59], 1e-8);
  }
}

constexpr const char* kAll[] = {"max_min_fairness",
                                "max_min_fairness_perf",
                                "max_min_fairness_packed",
                                kAgnosticFilling,
                                kAwareFilling,
                                kPacked,
                                "drf"};

TEST(WaterFilling, ThroughputsAndWeightsMayDifferByAThousand) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem =
        RandomProblem(seed, {.jobs_max = 15, .wide = true, .pairs = true});
    for (const char* name : kAll) {
      SCOPED_TRACE(name);
      EXPECT_EQ(AnswerErrors(problem, Solved(name, problem), false), "");
    }
  }
}

TEST(WaterFilling, NoJobsIsAnOptimalAnswer) {
  for (const char* name : kAll) {
    for (const PolicyProblem& problem :
         {MakeProblem({2}, {}), MakeProblem({}, {}), MakeProblem({0}, {{1}})}) {
      const PolicyResult result = Solved(name, problem);
      EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
      EXPECT_TRUE(result.allocation.units().empty());
      EXPECT_EQ(result.gap, 0);
    }
  }
}

TEST(WaterFilling, AtTheIterationLimitTheAnswerIsStillFeasibleAndBounded) {
  for (const int iterations : {0, 1, 5, 20}) {
    for (uint64_t seed = 40; seed < 50; ++seed) {
      SCOPED_TRACE(seed);
      const PolicyProblem problem = RandomProblem(seed, 40);
      const ShareProblem shares = MakeShareProblem(problem);
      if (shares.size() == 0) continue;
      const std::vector<double> factor = Normalizers(shares);
      const PolicyResult result = SolveFlatWaterFilling(
          shares, factor, SolverChoice::kHighs, {.iterations_max = iterations});
      EXPECT_EQ(ShareErrors(problem, result), "");
      const double optimum = Solved(kAwareFilling, problem).objective;
      EXPECT_GT(result.objective, 0);
      EXPECT_LE(result.objective, optimum * (1 + 1e-7));
      EXPECT_GE(result.bound, optimum * (1 - 1e-7));
      if (result.outcome != SolveOutcome::kOptimal) {
        EXPECT_NE(result.detail, "");
      }
    }
  }
}

TEST(FillWater, TakesFewProgramsHoweverManyLevels) {
  // Each job has a type of its own, all different: as many levels as jobs.
  const size_t jobs = 20;
  std::vector<std::vector<double>> rows(jobs, std::vector<double>(jobs + 1));
  for (size_t m = 0; m < jobs; ++m) {
    rows[m][m] = 1;
    rows[m][jobs] = 0.5;
  }
  std::vector<int> capacity(jobs, 1);
  capacity.push_back(2);
  PolicyProblem problem = MakeProblem(capacity, rows);
  for (size_t m = 0; m < jobs; ++m) {
    problem.jobs[m].weight = 1 + 0.1 * static_cast<double>(m);
  }
  problem.capacity[0] = 0;  // so that not all are at their best
  const ShareProblem shares = MakeShareProblem(problem);
  const std::vector<double> factor = Normalizers(shares);
  const WaterLevels levels =
      FillWater(shares, factor,
                Demands::Flat(shares.weight, LargestAmounts(shares, factor)));
  EXPECT_EQ(levels.outcome, SolveOutcome::kOptimal);
  EXPECT_LE(levels.programs, 12);
}

}  // namespace
}  // namespace gavel::testing
