// Pairs that are listed on demand (lp/pair_columns.h) against HiGHS with all of
// them: every policy that packs by linear programs, on random problems of all
// families (solver_instances.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
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
                          const PolicyProblem& problem, int* compared) {
  const PolicyResult some = By(SolverChoice::kAuto, of.policy, problem);
  EXPECT_EQ(ShareErrors(problem, some), "");
  if (!OnDemand(some)) return;
  const PolicyResult all = By(SolverChoice::kHighs, of.policy, problem);
  if (all.outcome == SolveOutcome::kOptimal) {
    EXPECT_EQ(some.outcome, SolveOutcome::kOptimal) << some.detail;
    EXPECT_LE(some.gap, 1e-6);
  }
  EXPECT_LE(of.sign * some.objective, of.sign * some.bound);
  const double scale = std::max(std::abs(all.objective), 1e-300);
  const double slack =
      std::max({1e-7 * scale, std::abs(all.bound - all.objective),
                std::abs(some.bound - some.objective)});
  if (all.outcome == SolveOutcome::kOptimal) {
    ++*compared;
    EXPECT_NEAR(some.objective, all.objective, slack * (1 + 1e-9));
  }
  // No achieved value is beyond a bound.
  if (all.outcome == SolveOutcome::kInfeasible) return;
  EXPECT_LE(of.sign * all.objective, of.sign * some.bound + 1e-9 * scale);
  EXPECT_LE(of.sign * some.objective, of.sign * all.bound + 1e-9 * scale);
}

TEST(PackedSolvers, PairsOnDemandAndAllPairsAgree) {
  int compared = 0;
  for (int i = FirstInstance(); i < FirstInstance() + Instances() / 3; ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem =
        PackedInstance(static_cast<uint64_t>(i), JobsMax());
    for (const PackedObjective& of : kPackedObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectSameAsAllPairs(of, problem, &compared);
    }
  }
  RecordProperty("compared", compared);
  EXPECT_GT(compared, Instances() / 3);
}

TEST(PackedSolvers, WaterFillingLeavesNoJobThatCouldHaveMore) {
  int checked = 0;
  for (int i = FirstInstance(); i < FirstInstance() + Instances() / 3; ++i) {
    if (i % kInstanceFamilies == kExtremeFamily) continue;
    SCOPED_TRACE(i);
    const PolicyProblem problem = PackedInstance(static_cast<uint64_t>(i), 24);
    const PolicyResult some = By(SolverChoice::kAuto, kPackedFilling, problem);
    EXPECT_EQ(ShareErrors(problem, some), "");
    if (!OnDemand(some)) continue;
    ++checked;
    EXPECT_EQ(some.outcome, SolveOutcome::kOptimal) << some.detail;
    EXPECT_LE(some.gap, 1e-6);
    const std::vector<double> values =
        JobValues(problem, some.allocation, false);
    EXPECT_EQ(LexicographicErrors(problem, some.allocation, values, true, false,
                                  1e-6, 3e-9),
              "");
  }
  RecordProperty("checked", checked);
  EXPECT_GT(checked, Instances() / 10);
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
