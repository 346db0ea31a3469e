// Compares the price method with HiGHS for every policy that prices serve, on
// random problems of all families (problems.h): 126 problems of up to 300 jobs.
// By hand, GAVEL_SOLVER_INSTANCES sets the number of problems,
// GAVEL_SOLVER_JOBS the largest number of jobs, and GAVEL_SOLVER_FIRST the
// first seed.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

struct Objective {
  const char* policy;
  bool minimises = false;
};
constexpr Objective kObjectives[] = {
    {"max_min_fairness"},
    {"max_min_fairness_perf"},
    {"max_sum_throughput_perf"},
    {"max_sum_throughput_normalized_by_cost_perf"},
    {"max_sum_throughput_normalized_by_cost_perf_SLOs"},
    {"max_throughput_per_cost"},
    {"min_total_duration", true},
    {"min_total_duration_perf", true},
    {"finish_time_fairness", true},
    {"finish_time_fairness_perf", true},
};
constexpr const char* kFillings[] = {"max_min_fairness_water_filling",
                                     "max_min_fairness_water_filling_perf",
                                     "drf"};
constexpr Objective kPackedObjectives[] = {
    {"max_min_fairness_packed"},
    {"max_sum_throughput_normalized_by_cost_packed_SLOs"},
    {"min_total_duration_packed", true},
    {"finish_time_fairness_packed", true},
};
constexpr char kPackedFilling[] = "max_min_fairness_water_filling_packed";

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* asked = std::getenv(name);
  return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

bool Tells(const PolicyResult& result, const char* word) {
  return result.solver.find(word) != std::string::npos;
}

// The counts of one test, which prints them in one line.
struct Tally {
  explicit Tally(const char* test) : what(test) {}
  ~Tally() {
    std::printf("%s: %d answers, %d compared, %d handed over\n", what, asked,
                compared, handed_over);
    EXPECT_GE(compared * 10, asked * 9) << what << ": HiGHS gave up";
  }
  const char* what;
  int asked = 0;        // of the method that is tested
  int compared = 0;     // with an optimum by HiGHS
  int handed_over = 0;  // to HiGHS, as the method found no proof
};

// Runs `check(problem, tally)` on the problems of all families.
template <class Check>
void OnFamilies(const char* what, size_t jobs_max, bool pairs, Check check) {
  Tally tally(what);
  const uint64_t first = FromEnvironment("GAVEL_SOLVER_FIRST", 0);
  const uint64_t count = FromEnvironment("GAVEL_SOLVER_INSTANCES", 126);
  jobs_max =
      std::min<size_t>(jobs_max, FromEnvironment("GAVEL_SOLVER_JOBS", 300));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    ProblemShape shape = FamilyShape(seed, jobs_max);
    // Two thirds of the problems with pairs have jobs of ten kinds; in the
    // others each job has its own kind.
    shape.pairs = pairs;
    if (pairs && seed / kFamilies % 3 > 0) shape.kinds = 10;
    shape.servers = !pairs && seed / kFamilies % 2 == 1;
    check(RandomProblem(seed, shape), seed, &tally);
  }
  EXPECT_GT(tally.asked, static_cast<int>(count / 3)) << what;
  // Few problems are degenerate.
  EXPECT_LE(tally.handed_over * 12, tally.asked) << what;
}

// Both answers are right by their own account, they agree, and no value exceeds
// a bound.
void ExpectAgreement(const Objective& of, const PolicyProblem& problem,
                     const PolicyResult& tested, const PolicyResult& highs,
                     Tally* tally) {
  if (tested.allocation.units().empty()) return;  // no job fits anywhere
  ++tally->asked;
  EXPECT_EQ(FormulaErrors(of.policy, problem, tested), "");
  // Each solver relaxes deadlines that can't be met in its own way.
  if (highs.outcome == SolveOutcome::kInfeasible) {
    ++tally->compared;
    EXPECT_EQ(tested.outcome, SolveOutcome::kInfeasible);
    EXPECT_EQ(ShareErrors(problem, tested), "");
    return;
  }
  EXPECT_EQ(AnswerErrors(problem, tested, of.minimises), "");
  const double sign = of.minimises ? -1 : 1;
  const double slack = kOptimality * std::abs(highs.objective);
  EXPECT_LE(sign * highs.objective, sign * tested.bound + slack);
  EXPECT_LE(sign * tested.objective, sign * highs.bound + slack);
  if (highs.outcome != SolveOutcome::kOptimal) return;
  ++tally->compared;
  EXPECT_NEAR(tested.objective, highs.objective, slack);
}

TEST(Solvers, PricesAndHighsAgree) {
  OnFamilies("PricesAndHighsAgree", 2000, /*pairs=*/false,
             [](const PolicyProblem& problem, uint64_t, Tally* tally) {
               for (const Objective& of : kObjectives) {
                 SCOPED_TRACE(of.policy);
                 const PolicyResult tested = Solved(of.policy, problem);
                 tally->handed_over +=
                     Tells(tested, "after prices") &&
                     tested.outcome != SolveOutcome::kInfeasible;
                 ExpectAgreement(
                     of, problem, tested,
                     SolvedBy(SolverChoice::kHighs, of.policy, problem), tally);
               }
             });
}

// [n] The amount that the policy gives each job; NaN for jobs that run nowhere.
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

void ExpectSameLevels(const std::string& policy, const PolicyProblem& problem,
                      const PolicyResult& tested, const PolicyResult& highs) {
  if (tested.outcome != SolveOutcome::kOptimal ||
      highs.outcome != SolveOutcome::kOptimal) {
    return;
  }
  const std::vector<double> a = Sorted(Amounts(policy, problem, tested));
  const std::vector<double> b = Sorted(Amounts(policy, problem, highs));
  ASSERT_EQ(a.size(), b.size());
  for (size_t rank = 0; rank < a.size(); ++rank) {
    EXPECT_NEAR(a[rank], b[rank], kOptimality * b[rank]) << "rank " << rank;
  }
}

TEST(Solvers, WaterFillingHasTheLevelsOfHighs) {
  OnFamilies("WaterFillingHasTheLevelsOfHighs", 128, /*pairs=*/false,
             [](PolicyProblem problem, uint64_t seed, Tally* tally) {
               // Tiers make the filling take many stages.
               if (seed % 3 == 0 && !problem.placement_sensitive()) {
                 RestrictToTiers(&problem);
               }
               for (const char* policy : kFillings) {
                 SCOPED_TRACE(policy);
                 const PolicyResult tested = Solved(policy, problem);
                 const PolicyResult highs =
                     SolvedBy(SolverChoice::kHighs, policy, problem);
                 tally->handed_over += Tells(tested, "after prices");
                 ExpectAgreement({policy}, problem, tested, highs, tally);
                 ExpectSameLevels(policy, problem, tested, highs);
               }
             });
}

// Adds entities of all kinds; some jobs of some problems belong to none.
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
  OnFamilies("HierarchiesByPricesAndByHighsAgree", 128, /*pairs=*/false,
             [](const PolicyProblem& flat, uint64_t seed, Tally* tally) {
               const PolicyProblem problem = WithEntities(flat, seed);
               const char* policy = kFillings[seed % 2];
               const PolicyResult tested = Solved(policy, problem);
               const PolicyResult highs =
                   SolvedBy(SolverChoice::kHighs, policy, problem);
               tally->handed_over += Tells(tested, "after prices");
               ++tally->asked;
               EXPECT_EQ(AnswerErrors(problem, tested, false), "");
               if (highs.outcome != SolveOutcome::kOptimal) return;
               ++tally->compared;
               EXPECT_NEAR(tested.objective, highs.objective,
                           kOptimality * highs.objective);
             });
}

// Compares pairs that are listed on demand (share_program.h) with all pairs.
TEST(PackedSolvers, PairsOnDemandAndAllPairsAgree) {
  OnFamilies("PairsOnDemandAndAllPairsAgree", 128, /*pairs=*/true,
             [](const PolicyProblem& problem, uint64_t, Tally* tally) {
               for (const Objective& of : kPackedObjectives) {
                 SCOPED_TRACE(of.policy);
                 const PolicyResult some = Solved(of.policy, problem);
                 if (!Tells(some, "on demand")) continue;
                 ExpectAgreement(
                     of, problem, some,
                     SolvedBy(SolverChoice::kHighs, of.policy, problem), tally);
               }
             });
}

// For one problem in ten, linear programs, one for each job, prove that no job
// can have more.
TEST(PackedSolvers, WaterFillingIsTheHighestAtEveryRank) {
  OnFamilies("WaterFillingIsTheHighestAtEveryRank", 50, /*pairs=*/true,
             [](const PolicyProblem& problem, uint64_t seed, Tally* tally) {
               const PolicyResult some = Solved(kPackedFilling, problem);
               if (!Tells(some, "on demand")) return;
               const PolicyResult all =
                   SolvedBy(SolverChoice::kHighs, kPackedFilling, problem);
               ExpectAgreement({kPackedFilling}, problem, some, all, tally);
               if (seed % 10 != 0) return;
               EXPECT_EQ(
                   LexicographicErrors(
                       problem, some.allocation,
                       JobValues(problem, some.allocation, false), true, false),
                   "");
             });
}

// The share of a kind is spread over its jobs: all of them have the same value,
// and the answer lists few of thousands of pairs.
TEST(PackedSolvers, EqualJobsHaveTheSameOfFewPairs) {
  const PolicyProblem problem = RandomProblem(8, {.types_min = 3,
                                                  .jobs_min = 300,
                                                  .jobs_max = 300,
                                                  .capacity_more = 100,
                                                  .weights = false,
                                                  .kinds = 10,
                                                  .pairs = true});
  const PolicyResult result = Solved("max_min_fairness_packed", problem);
  ASSERT_TRUE(Tells(result, "on demand")) << result.solver;
  EXPECT_LT(result.allocation.units().size(), 30 * problem.jobs.size());
  const std::vector<double> values =
      JobValues(problem, result.allocation, false);
  for (size_t m = 0; m < values.size(); ++m) {
    const size_t first = problem.kinds[m];
    if (std::isnan(values[m]) || std::isnan(values[first])) continue;
    EXPECT_NEAR(values[m], values[first], 1e-9 * values[first]) << m;
  }
}

// The throughputs of one job differ by more than a million, so the last digits
// of a frozen job are whole accelerators for other jobs.
TEST(Solvers, ExtremeRatiosAreLeftToHighs) {
  const PolicyProblem problem =
      MakeProblem({1, 1}, {{1, 1e-7}, {1, 0}, {0, 1}, {0, 1}});
  const PolicyResult result = Solved(kFillings[1], problem);
  EXPECT_TRUE(Tells(result, "highs")) << result.solver;
  EXPECT_EQ(AnswerErrors(problem, result, false), "");
}

}  // namespace
}  // namespace gavel::testing
