// Pairs that are listed on demand (lp/pair_columns.h) against HiGHS with all of
// them: every policy that packs by linear programs, on random problems of all
// families (solver_instances.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
#include "tests/policy/lexicographic_judge.h"
#include "tests/policy/share_kit.h"
#include "tests/policy/solver_instances.h"

namespace gavel::testing {
namespace {

struct PackedObjective {
  const char* policy;
  double sign;  // -1: the least is best
};
constexpr PackedObjective kPackedObjectives[] = {
    {"max_min_fairness_packed", 1},
    {"max_sum_throughput_normalized_by_cost_packed_SLOs", 1},
    {"min_total_duration_packed", -1},
    {"finish_time_fairness_packed", -1},
};
constexpr char kPackedFilling[] = "max_min_fairness_water_filling_packed";
// All pairs at once are much for the referee.
constexpr size_t kPackedJobsMax = 128;

size_t JobsMax() { return std::min(InstanceJobsMax(), kPackedJobsMax); }

bool OnDemand(const PolicyResult& result) {
  return result.solver.find("on demand") != std::string::npos;
}

void ExpectSameAsAllPairs(const PackedObjective& of,
                          const PolicyProblem& problem, Tally* tally) {
  const PolicyResult some = By(SolverChoice::kAuto, of.policy, problem);
  EXPECT_EQ(ShareErrors(problem, some), "");
  if (!OnDemand(some)) return;
  const PolicyResult all = By(SolverChoice::kHighs, of.policy, problem);
  // With deadlines that can't be met other bounds hold for each.
  if (all.outcome == SolveOutcome::kInfeasible) {
    EXPECT_EQ(some.outcome, SolveOutcome::kInfeasible);
    return;
  }
  tally->Ask();
  EXPECT_EQ(FormulaErrors(of.policy, problem, some), "");
  EXPECT_EQ(FormulaErrors(of.policy, problem, all), "");
  EXPECT_LE(of.sign * some.objective, of.sign * some.bound);
  const double scale = std::max(std::abs(all.objective), 1e-300);
  const double difference = std::abs(some.objective - all.objective);
  if (all.outcome == SolveOutcome::kOptimal) {
    tally->Compare(difference / scale);
    EXPECT_EQ(some.outcome, SolveOutcome::kOptimal) << some.detail;
    EXPECT_LE(std::abs(some.bound - some.objective),
              1e-6 * std::abs(some.bound));
    EXPECT_LE(difference,
              std::max({1e-7 * scale, std::abs(all.bound - all.objective),
                        std::abs(some.bound - some.objective)}) *
                  (1 + 1e-9));
  }
  // No achieved value is beyond a bound.
  EXPECT_LE(of.sign * all.objective, of.sign * some.bound + 1e-9 * scale);
  EXPECT_LE(of.sign * some.objective, of.sign * all.bound + 1e-9 * scale);
}

TEST(PackedSolvers, PairsOnDemandAndAllPairsAgree) {
  Tally tally("PairsOnDemandAndAllPairsAgree");
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    const PolicyProblem problem =
        PackedInstance(static_cast<uint64_t>(i), JobsMax());
    for (const PackedObjective& of : kPackedObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectSameAsAllPairs(of, problem, &tally);
    }
  }
  EXPECT_GT(tally.asked(), Instances());
}

// Somebody has all that it can have alone: the first round proves it, and the
// linear program, of throughputs of very different sizes, is not asked again.
TEST(PackedSolvers, WhatIsProvedIsNotProvedAgain) {
  const PolicyResult result =
      By(SolverChoice::kAuto, "finish_time_fairness_packed",
         PackedInstance(885, kPackedJobsMax));
  EXPECT_TRUE(OnDemand(result)) << result.solver;
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  EXPECT_LE(result.gap, 1e-9);
}

// Linear programs with all pairs, one a job, are more still.
size_t FilledJobsMax() {
  return std::min(InstanceJobsMax() / 6, kPackedJobsMax);
}

// Values with pairs on demand against those with all pairs, rank by rank.
void ExpectFilledWithPairs(const PolicyProblem& problem, int i, Tally* tally) {
  const PolicyResult some = By(SolverChoice::kAuto, kPackedFilling, problem);
  EXPECT_EQ(ShareErrors(problem, some), "");
  if (!OnDemand(some)) return;
  tally->Ask();
  EXPECT_EQ(FormulaErrors(kPackedFilling, problem, some), "");
  EXPECT_LE(some.objective, some.bound);
  const PolicyResult all = By(SolverChoice::kHighs, kPackedFilling, problem);
  EXPECT_LE(all.objective, some.bound * (1 + 1e-9));
  if (all.outcome != SolveOutcome::kOptimal) return;
  tally->Compare(std::abs(some.objective - all.objective) / all.objective);
  const bool extreme = i % kInstanceFamilies == kExtremeFamily;
  if (extreme && some.outcome == SolveOutcome::kIterationLimit) {
    tally->TakeFallback(kPackedFilling);
    return;
  }
  EXPECT_EQ(some.outcome, SolveOutcome::kOptimal) << some.detail;
  EXPECT_LE(some.bound - some.objective, 1e-6 * some.bound);
  const std::vector<double> values = JobValues(problem, some.allocation, false);
  const std::vector<double> a = Sorted(values);
  const std::vector<double> b =
      Sorted(JobValues(problem, all.allocation, false));
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GE(a[0], b[0] * (1 - 1e-7));
  const bool dispute = AnyLower(a, b);
  if (dispute) tally->Dispute();
  // Ratios beyond what the linear programs can tell, which tell who could have
  // more.
  if (extreme || (!dispute && i % 10 != 0)) return;
  EXPECT_EQ(LexicographicErrors(problem, some.allocation, values, true, false,
                                1e-6, 3e-9),
            "");
}

TEST(PackedSolvers, WaterFillingIsTheHighestAtEveryRank) {
  Tally tally("packed WaterFillingIsTheHighestAtEveryRank");
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    ExpectFilledWithPairs(
        PackedInstance(static_cast<uint64_t>(i), FilledJobsMax()), i, &tally);
  }
  EXPECT_GT(tally.asked(), Instances() / 3);
  // Ratios beyond the solver's precision: it says that it gave up.
  EXPECT_LE(tally.fallbacks() * 25, tally.asked());
}

// What is missing of the first level is one part in five million of 8844, and
// frozen jobs of 8380 weigh 8e7 times what the free ones do: to HiGHS' own
// tolerance they would take several per cent of theirs.
TEST(PackedSolvers, WhatIsMissingIsSmallForThoseWhoPayForIt) {
  Tally tally("packed WhatIsMissingIsSmallForThoseWhoPayForIt");
  for (const int i : {8844, 8380}) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    ExpectFilledWithPairs(
        PackedInstance(static_cast<uint64_t>(i), kPackedJobsMax), i, &tally);
  }
  EXPECT_EQ(tally.asked(), 2);
}

// Frozen jobs weigh 14 million times what the last two do: their rounding is
// the seventh digit of these, which no solver can give back.
TEST(PackedSolvers, AStageIsOptimalThatMissesWhatRoundingTakes) {
  const PolicyResult result = By(SolverChoice::kAuto, kPackedFilling,
                                 PackedInstance(1974, kPackedJobsMax));
  EXPECT_TRUE(OnDemand(result)) << result.solver;
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  EXPECT_LE(result.bound - result.objective, 1e-6 * result.bound);
}

// HiGHS loses the first stage's level in a later one, with ratios of 1e12.
TEST(PackedSolvers, WhatIsFarFromItsBoundIsNotCalledOptimal) {
  const PolicyResult result = By(SolverChoice::kHighs, kPackedFilling,
                                 PackedInstance(731, kPackedJobsMax));
  EXPECT_GT(result.bound - result.objective, 0.1 * result.bound);
  EXPECT_EQ(result.outcome, SolveOutcome::kIterationLimit);
  EXPECT_NE(result.detail, "");
}

// 26 kinds of jobs: who shares with whom is spread over the jobs of a kind, all
// of them have the same, and of half a million pairs few are told.
TEST(PackedSolvers, EqualJobsHaveTheSameOfFewPairs) {
  PolicyProblem problem = PackedInstance(kInstanceFamilies + 1, 300);
  ASSERT_FALSE(problem.kinds.empty());
  const PolicyResult result =
      By(SolverChoice::kAuto, "max_min_fairness_packed", problem);
  ASSERT_TRUE(OnDemand(result));
  EXPECT_LT(result.allocation.units().size(), 30 * problem.jobs.size());
  const std::vector<double> values =
      JobValues(problem, result.allocation, false);
  for (size_t m = 0; m < values.size(); ++m) {
    const size_t first = problem.kinds[m];
    if (std::isnan(values[m]) || std::isnan(values[first])) continue;
    EXPECT_NEAR(values[m], values[first], 1e-9 * values[first]) << m;
  }
}

}  // namespace
}  // namespace gavel::testing
