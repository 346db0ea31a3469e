// The price method against HiGHS at tolerance 1e-9 as the referee: every
// policy that prices serve, on random problems of all families
// (solver_instances.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/policy/share_kit.h"
#include "tests/policy/solver_instances.h"

namespace gavel::testing {
namespace {

struct Objective {
  const char* policy;
  double sign;  // -1: the least is best
};
constexpr Objective kObjectives[] = {
    {"max_min_fairness", 1},
    {"max_min_fairness_perf", 1},
    {"max_sum_throughput_perf", 1},
    {"max_sum_throughput_normalized_by_cost_perf", 1},
    {"max_sum_throughput_normalized_by_cost_perf_SLOs", 1},
    {"max_throughput_per_cost", 1},
    {"min_total_duration", -1},
    {"min_total_duration_perf", -1},
    {"finish_time_fairness", -1},
    {"finish_time_fairness_perf", -1},
};
constexpr const char* kFillings[] = {"max_min_fairness_water_filling",
                                     "max_min_fairness_water_filling_perf",
                                     "drf"};

// What prices were to do and HiGHS had to.
struct Counts {
  int prices = 0;
  int fallbacks = 0;
  std::string whose;
};

// The answer, feasible, by prices or after them.
PolicyResult CountedAnswer(const char* policy, const PolicyProblem& problem,
                           Counts* counts) {
  PolicyResult price = By(SolverChoice::kAuto, policy, problem);
  EXPECT_EQ(ShareErrors(problem, price), "");
  if (ByPrices(price)) ++counts->prices;
  // Deadlines that can't be met are relaxed by HiGHS.
  if (price.solver.find("after prices") != std::string::npos &&
      price.outcome != SolveOutcome::kInfeasible) {
    ++counts->fallbacks;
    StrAppend(&counts->whose, policy, " ");
  }
  return price;
}

// Objectives, bounds and gaps of both.
void ExpectAgreement(const Objective& of, const PolicyProblem& problem,
                     Counts* counts) {
  const PolicyResult price = CountedAnswer(of.policy, problem, counts);
  if (!ByPrices(price)) return;
  EXPECT_EQ(price.outcome, SolveOutcome::kOptimal) << price.detail;
  EXPECT_LE(price.gap, 1e-6);
  EXPECT_LE(of.sign * price.objective, of.sign * price.bound);
  EXPECT_GT(price.iterations, 0);
  const PolicyResult highs = By(SolverChoice::kHighs, of.policy, problem);
  const double scale = std::max(std::abs(highs.objective), 1e-300);
  const double slack =
      std::max({1e-7 * scale, std::abs(highs.bound - highs.objective),
                std::abs(price.bound - price.objective)});
  if (highs.outcome == SolveOutcome::kOptimal) {
    EXPECT_NEAR(price.objective, highs.objective, slack * (1 + 1e-9));
  }
  // No achieved value is beyond a bound.
  EXPECT_LE(of.sign * highs.objective, of.sign * price.bound + 1e-9 * scale);
  EXPECT_LE(of.sign * price.objective, of.sign * highs.bound + 1e-9 * scale);
}

TEST(Solvers, PricesAndHighsAgree) {
  Counts counts;
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem =
        Instance(static_cast<uint64_t>(i), InstanceJobsMax());
    for (const Objective& of : kObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectAgreement(of, problem, &counts);
    }
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  EXPECT_LE(counts.fallbacks * 20, counts.prices) << counts.whose;
}

// Where gangs fill the servers, and where they don't.
TEST(Solvers, PricesAndHighsAgreeOnPlacement) {
  Counts counts;
  for (int i = FirstInstance(); i < FirstInstance() + Instances() / 3; ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem =
        PlacedInstance(static_cast<uint64_t>(i), InstanceJobsMax());
    for (const Objective& of : kObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectAgreement(of, problem, &counts);
    }
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  EXPECT_GT(counts.prices, Instances());
  EXPECT_LE(counts.fallbacks * 20, counts.prices) << counts.whose;
}

// [n] amounts of the policy; NaN for jobs that run nowhere.
std::vector<double> Amounts(const std::string& policy,
                            const PolicyProblem& problem,
                            const PolicyResult& result) {
  std::vector<double> values =
      JobValues(problem, result.allocation, policy != kFillings[1]);
  if (policy != "drf") return values;
  const std::vector<double> times =
      JobThroughputs(problem, result.allocation, true);
  for (size_t m = 0; m < values.size(); ++m) {
    if (std::isnan(values[m])) continue;
    values[m] =
        times[m] * problem.jobs[m].scale_factor / problem.jobs[m].weight;
  }
  return values;
}

std::vector<double> Sorted(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::sort(values.begin(), values.end());
  return values;
}

// Whether prices have less than HiGHS at any rank, and no more at an earlier
// one: where throughputs differ by many powers of ten, the tenth digit of one
// value is all of another, and the lower rank counts.
bool AnyLower(const std::vector<double>& price,
              const std::vector<double>& highs) {
  for (size_t rank = 0; rank < price.size(); ++rank) {
    if (price[rank] < highs[rank] * (1 - 1e-7)) return true;
    if (price[rank] > highs[rank] * (1 + 1e-12)) return false;
  }
  return false;
}

TEST(Solvers, WaterFillingByPricesIsTheHighestAtEveryRank) {
  Counts counts;
  int disputes = 0;
  const size_t jobs_max = std::min<size_t>(InstanceJobsMax(), 128);
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem = Instance(static_cast<uint64_t>(i), jobs_max);
    for (const char* policy : kFillings) {
      SCOPED_TRACE(policy);
      const PolicyResult price = CountedAnswer(policy, problem, &counts);
      if (!ByPrices(price)) continue;
      EXPECT_LE(price.gap, 1e-6);
      const PolicyResult highs = By(SolverChoice::kHighs, policy, problem);
      if (highs.outcome != SolveOutcome::kOptimal) continue;
      const std::vector<double> amounts = Amounts(policy, problem, price);
      const std::vector<double> a = Sorted(amounts);
      const std::vector<double> b = Sorted(Amounts(policy, problem, highs));
      ASSERT_EQ(a.size(), b.size());
      if (!a.empty()) {
        EXPECT_GE(a[0], b[0] * (1 - 1e-7));
      }
      // In a dispute it is linear programs, one a job, that tell whether any
      // could have more; and now and then without one, but where ratios are
      // beyond what those can tell.
      const bool dispute = AnyLower(a, b);
      if (dispute) ++disputes;
      const bool extreme = i % kInstanceFamilies == kExtremeFamily;
      if (!dispute && (extreme || i % 10 != 0)) continue;
      EXPECT_EQ(LexicographicErrors(problem, price.allocation, amounts, false,
                                    policy != kFillings[1], 1e-6, 3e-9),
                "");
    }
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  RecordProperty("disputes", disputes);
  // Where jobs exchange time in more ways than price_water.cc follows.
  EXPECT_LE(counts.fallbacks * 50, counts.prices) << counts.whose;
  // Ratios beyond the solvers' precision only.
  EXPECT_LE(disputes * 50, counts.prices);
}

// Entities of all kinds, and some jobs of none.
PolicyProblem WithEntities(PolicyProblem problem, uint64_t seed) {
  const char* const inside[] = {"fairness", "fifo", "isolated", "fairness"};
  for (uint64_t e = 0; e < 1 + seed % 6; ++e) {
    problem.entities.push_back({StrCat("e", e),
                                1 + static_cast<double>(seed % (e + 2)),
                                inside[(seed + e) % 4]});
  }
  const size_t parts = problem.entities.size() + (seed % 3 == 0 ? 1 : 0);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const size_t e = m % parts;
    problem.jobs[m].entity =
        e < problem.entities.size() ? static_cast<int>(e) : -1;
  }
  return problem;
}

TEST(Solvers, HierarchiesByPricesAndByHighsAgree) {
  Counts counts;
  const size_t jobs_max = std::min<size_t>(InstanceJobsMax(), 60);
  for (int i = FirstInstance(); i < FirstInstance() + Instances() / 2; ++i) {
    SCOPED_TRACE(i);
    const auto seed = static_cast<uint64_t>(i);
    const PolicyProblem problem =
        WithEntities(Instance(seed, jobs_max), seed / kInstanceFamilies);
    const char* const policy = kFillings[i % 2];
    const PolicyResult price = CountedAnswer(policy, problem, &counts);
    if (!ByPrices(price)) continue;
    EXPECT_EQ(price.outcome, SolveOutcome::kOptimal) << price.detail;
    EXPECT_LE(price.gap, 1e-6);
    const PolicyResult highs = By(SolverChoice::kHighs, policy, problem);
    if (highs.outcome != SolveOutcome::kOptimal) continue;
    const double slack = 1e-7 * highs.bound;
    EXPECT_NEAR(price.objective, highs.objective, slack);
    EXPECT_LE(highs.objective, price.bound + slack);
    // There the last digits of what was given first are all that is left.
    if (i % kInstanceFamilies == kExtremeFamily) continue;
    const std::vector<double> a = Amounts(policy, problem, price);
    const std::vector<double> b = Amounts(policy, problem, highs);
    for (size_t m = 0; m < a.size(); ++m) {
      if (std::isnan(a[m])) continue;
      // What rounding leaves of one job goes to the next in the line.
      EXPECT_NEAR(a[m], b[m], 1e-6 * std::max({a[m], b[m], highs.bound}));
    }
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  EXPECT_LE(counts.fallbacks * 12, counts.prices) << counts.whose;
}

}  // namespace
}  // namespace gavel::testing
