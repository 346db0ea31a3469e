// The price method against HiGHS at tolerance 1e-9 as the referee: every
// policy that prices serve, on random problems of all families
// (solver_instances.h).
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/policy/lexicographic_judge.h"
#include "tests/policy/share_kit.h"
#include "tests/policy/solver_instances.h"

namespace gavel::testing {
namespace {

struct Objective {
  const char* policy;
  double sign;              // -1: the least is best
  double tolerance = 1e-7;  // relative, beside the referee's own gap
};
constexpr Objective kObjectives[] = {
    {"max_min_fairness", 1},
    {"max_min_fairness_perf", 1},
    {"max_sum_throughput_perf", 1},
    {"max_sum_throughput_normalized_by_cost_perf", 1},
    {"max_sum_throughput_normalized_by_cost_perf_SLOs", 1},
    {"max_throughput_per_cost", 1, 1e-6},
    {"min_total_duration", -1},
    {"min_total_duration_perf", -1},
    {"finish_time_fairness", -1},
    {"finish_time_fairness_perf", -1},
};
constexpr const char* kFillings[] = {"max_min_fairness_water_filling",
                                     "max_min_fairness_water_filling_perf",
                                     "drf"};

bool AfterPrices(const PolicyResult& result) {
  return result.solver.find("after prices") != std::string::npos;
}

// Feasible, and what it tells of itself is so.
void ExpectSound(double sign, const PolicyProblem& problem,
                 const PolicyResult& result) {
  EXPECT_EQ(ShareErrors(problem, result), "");
  EXPECT_LE(sign * result.objective, sign * result.bound);
  EXPECT_NEAR(result.gap,
              std::abs(result.bound - result.objective) /
                  std::max(1.0, std::abs(result.bound)),
              1e-15);
}

// Both answers to a problem that prices were asked about.
struct Pair {
  PolicyResult prices;  // forced to, where they did not prove it
  PolicyResult highs;
};

// nullopt: there was nothing to ask, or prices don't serve.
std::optional<Pair> PairOf(const char* policy, const PolicyProblem& problem,
                           Tally* tally) {
  PolicyResult first = By(SolverChoice::kAuto, policy, problem);
  EXPECT_EQ(ShareErrors(problem, first), "");
  if (ByPrices(first)) {
    tally->Ask();
    return Pair{std::move(first), By(SolverChoice::kHighs, policy, problem)};
  }
  // Deadlines that can't be met are relaxed by HiGHS.
  if (!AfterPrices(first) || first.outcome == SolveOutcome::kInfeasible) {
    return std::nullopt;
  }
  tally->Ask();
  tally->TakeFallback(policy);
  return Pair{By(SolverChoice::kPrices, policy, problem), std::move(first)};
}

// Objectives, bounds and gaps of both.
void ExpectAgreement(const Objective& of, const PolicyProblem& problem,
                     Tally* tally) {
  const std::optional<Pair> pair = PairOf(of.policy, problem, tally);
  if (!pair.has_value()) return;
  const auto& [prices, highs] = *pair;
  EXPECT_TRUE(ByPrices(prices)) << prices.solver;
  EXPECT_GT(prices.iterations, 0);
  for (const PolicyResult* result : {&prices, &highs}) {
    ExpectSound(of.sign, problem, *result);
    EXPECT_EQ(FormulaErrors(of.policy, problem, *result), "");
  }
  // No achieved value is beyond a bound.
  const double scale = std::max(std::abs(highs.objective), 1e-300);
  EXPECT_LE(of.sign * highs.objective, of.sign * prices.bound + 1e-9 * scale);
  EXPECT_LE(of.sign * prices.objective, of.sign * highs.bound + 1e-9 * scale);
  if (prices.outcome == SolveOutcome::kIterationLimit) {
    if (highs.outcome == SolveOutcome::kOptimal) {
      EXPECT_LE(std::abs(highs.bound - highs.objective),
                1e-6 * std::abs(highs.bound));
    }
    return;
  }
  EXPECT_LE(std::abs(prices.bound - prices.objective),
            1e-6 * std::abs(prices.bound));
  if (highs.outcome == SolveOutcome::kIterationLimit ||
      highs.outcome == SolveOutcome::kFailed) {
    return;
  }
  // Deadlines that have passed are told by both.
  EXPECT_EQ(prices.outcome, highs.outcome);
  EXPECT_EQ(prices.detail, highs.detail);
  const double difference = std::abs(prices.objective - highs.objective);
  EXPECT_LE(difference,
            std::max(of.tolerance * scale,
                     std::abs(highs.bound - highs.objective) * (1 + 1e-9)));
  tally->Compare(difference / scale);
}

void ExpectAllAgree(const char* what,
                    PolicyProblem (*make)(uint64_t seed, size_t jobs_max)) {
  Tally tally(what);
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    const PolicyProblem problem =
        make(static_cast<uint64_t>(i), InstanceJobsMax());
    for (const Objective& of : kObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectAgreement(of, problem, &tally);
    }
  }
  EXPECT_GT(tally.asked(), 5 * Instances());
  EXPECT_LE(tally.fallbacks() * 20, tally.asked()) << tally.whose();
}

TEST(Solvers, PricesAndHighsAgree) {
  ExpectAllAgree("PricesAndHighsAgree", &Instance);
}

// Where gangs fill the servers, and where they don't.
TEST(Solvers, PricesAndHighsAgreeOnPlacement) {
  ExpectAllAgree("PricesAndHighsAgreeOnPlacement", &PlacedInstance);
}

// HiGHS left one job a millionth of what it needs short, and told of it.
TEST(Solvers, WhoMissesNextToNothingIsNotTold) {
  Tally tally("WhoMissesNextToNothingIsNotTold");
  const PolicyProblem problem = Instance(80, 2000);
  for (const Objective& of : kObjectives) {
    SCOPED_TRACE(of.policy);
    ExpectAgreement(of, problem, &tally);
  }
  EXPECT_GT(tally.asked(), 0);
}

// Floors that took all there is were short by 2e-10 to 4e-8, and other jobs had
// more than any bound for it; needs of 4e-14 of the time were taken for dust.
TEST(Solvers, FloorsAreKeptToRounding) {
  Tally tally("FloorsAreKeptToRounding");
  const PolicyProblem problems[] = {
      PlacedInstance(3840, 300), PlacedInstance(6310, 2000),
      PlacedInstance(9250, 2000), PlacedInstance(6975, 300),
      Instance(7108, 2000)};
  for (const PolicyProblem& problem : problems) {
    for (const Objective& of : kObjectives) {
      SCOPED_TRACE(of.policy);
      ExpectAgreement(of, problem, &tally);
    }
  }
  EXPECT_GT(tally.asked(), 30);
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

// Amounts by prices against those by HiGHS, rank by rank.
void ExpectFilled(const char* policy, const PolicyProblem& problem, int i,
                  Tally* tally) {
  const std::optional<Pair> pair = PairOf(policy, problem, tally);
  if (!pair.has_value()) return;
  const auto& [prices, highs] = *pair;
  ExpectSound(1, problem, prices);
  EXPECT_GT(prices.iterations, 0);
  EXPECT_EQ(FormulaErrors(policy, problem, prices), "");
  EXPECT_LE(highs.objective, prices.bound * (1 + 1e-9));
  const bool known = highs.outcome == SolveOutcome::kOptimal;
  if (known) {
    tally->Compare(std::abs(prices.objective - highs.objective) /
                   highs.objective);
  }
  if (prices.outcome != SolveOutcome::kOptimal) return;
  EXPECT_LE(prices.bound - prices.objective, 1e-6 * prices.bound);
  if (!known) return;
  const std::vector<double> amounts = Amounts(policy, problem, prices);
  const std::vector<double> a = Sorted(amounts);
  const std::vector<double> b = Sorted(Amounts(policy, problem, highs));
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GE(a[0], b[0] * (1 - 1e-7));
  // In a dispute it is linear programs, one a job, that tell whether any could
  // have more; and now and then without one, but where ratios are beyond what
  // those can tell.
  const bool dispute = AnyLower(a, b);
  if (dispute) tally->Dispute();
  const bool extreme = i % kInstanceFamilies == kExtremeFamily;
  if (!dispute && (extreme || i % 10 != 0)) return;
  std::string traces;
  EXPECT_EQ(LexicographicErrors(problem, prices.allocation, amounts, false,
                                policy != kFillings[1], 1e-6, 3e-9,
                                /*give=*/1e-14, &traces),
            "");
  if (!traces.empty()) tally->TakeTraces();
}

void ExpectAllFilled(const char* what,
                     PolicyProblem (*make)(uint64_t seed, size_t jobs_max)) {
  Tally tally(what);
  const size_t jobs_max = std::min<size_t>(InstanceJobsMax(), 128);
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    const PolicyProblem problem = make(static_cast<uint64_t>(i), jobs_max);
    for (const char* policy : kFillings) {
      SCOPED_TRACE(policy);
      ExpectFilled(policy, problem, i, &tally);
    }
  }
  EXPECT_GT(tally.asked(), Instances());
  // Where jobs exchange time in more ways than price_water.cc follows.
  EXPECT_LE(tally.fallbacks() * 50, tally.asked()) << tally.whose();
  // Ratios beyond the solvers' precision only.
  EXPECT_LE(tally.disputes() * 50, tally.asked() + 50);
}

TEST(Solvers, WaterFillingByPricesIsTheHighestAtEveryRank) {
  ExpectAllFilled("WaterFillingByPricesIsTheHighestAtEveryRank", &Instance);
}

TEST(Solvers, WaterFillingByPricesIsTheHighestOnServers) {
  ExpectAllFilled("WaterFillingByPricesIsTheHighestOnServers", &PlacedInstance);
}

// Jobs that are held there had time on a free type, for 6e-11 of what they
// have, that is a hundredth and more of what those who rise on have.
TEST(Solvers, WhoRisesOnHasWhatIsWorthNothingToOthers) {
  for (const PolicyProblem& problem :
       {Instance(6191, 128), PlacedInstance(6191, 128),
        PlacedInstance(1648, 128)}) {
    const PolicyResult prices =
        By(SolverChoice::kPrices, kFillings[1], problem);
    ASSERT_EQ(prices.outcome, SolveOutcome::kOptimal) << prices.detail;
    const PolicyResult highs = By(SolverChoice::kHighs, kFillings[1], problem);
    EXPECT_FALSE(AnyLower(Sorted(Amounts(kFillings[1], problem, prices)),
                          Sorted(Amounts(kFillings[1], problem, highs))));
  }
}

// And what is worth a billionth of the level to all who are held together, by
// exchanges of several of them.
TEST(Solvers, NobodyWhoRisesOnIsHeldBackForABillionth) {
  for (const PolicyProblem& problem :
       {Instance(556, 128), PlacedInstance(556, 128), Instance(1865, 128),
        PlacedInstance(2509, 128), PlacedInstance(2628, 128),
        Instance(6324, 128), PlacedInstance(6653, 128)}) {
    const PolicyResult prices =
        By(SolverChoice::kPrices, kFillings[1], problem);
    ASSERT_EQ(prices.outcome, SolveOutcome::kOptimal) << prices.detail;
    EXPECT_LE(prices.bound - prices.objective, 2e-9 * prices.bound);
    const std::vector<double> amounts = Amounts(kFillings[1], problem, prices);
    EXPECT_EQ(LexicographicErrors(problem, prices.allocation, amounts, false,
                                  /*agnostic=*/false, 1e-6, 3e-9,
                                  /*give=*/1e-11),
              "");
  }
}

// Who is held may have the same of other columns: those who can use a free
// column that nobody else wants leave another to who rises on, and exchange
// with the others what they have of the scarce ones.
TEST(Solvers, WhoIsHeldMakesRoomForWhoRisesOn) {
  const PolicyProblem problem = PlacedInstance(15534, 128);
  const PolicyResult prices = By(SolverChoice::kPrices, kFillings[1], problem);
  ASSERT_EQ(prices.outcome, SolveOutcome::kOptimal) << prices.detail;
  const std::vector<double> amounts = Amounts(kFillings[1], problem, prices);
  const PolicyResult highs = By(SolverChoice::kHighs, kFillings[1], problem);
  EXPECT_FALSE(
      AnyLower(Sorted(amounts), Sorted(Amounts(kFillings[1], problem, highs))));
  EXPECT_EQ(LexicographicErrors(problem, prices.allocation, amounts, false,
                                /*agnostic=*/false),
            "");
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

void ExpectSameAmounts(const char* policy, const PolicyProblem& problem, int i,
                       Tally* tally) {
  const std::optional<Pair> pair = PairOf(policy, problem, tally);
  if (!pair.has_value()) return;
  const auto& [prices, highs] = *pair;
  ExpectSound(1, problem, prices);
  EXPECT_GT(prices.iterations, 0);
  const double slack =
      std::max({1e-7 * highs.bound, std::abs(prices.bound - prices.objective),
                std::abs(highs.bound - highs.objective)});
  EXPECT_LE(highs.objective, prices.bound + slack);
  const bool known = highs.outcome == SolveOutcome::kOptimal;
  const double difference = std::abs(prices.objective - highs.objective);
  if (known) tally->Compare(difference / highs.bound);
  if (prices.outcome != SolveOutcome::kOptimal) return;
  EXPECT_LE(prices.bound - prices.objective, 1e-6 * prices.bound);
  if (!known) return;
  EXPECT_LE(difference, slack);
  // There the last digits of what was given first are all that is left.
  if (i % kInstanceFamilies == kExtremeFamily) return;
  const std::vector<double> a = Amounts(policy, problem, prices);
  const std::vector<double> b = Amounts(policy, problem, highs);
  for (size_t m = 0; m < a.size(); ++m) {
    if (std::isnan(a[m])) continue;
    // What rounding leaves of one job goes to the next in the line.
    EXPECT_NEAR(a[m], b[m], 1e-5 * std::max({a[m], b[m], highs.bound})) << m;
  }
}

TEST(Solvers, HierarchiesByPricesAndByHighsAgree) {
  Tally tally("HierarchiesByPricesAndByHighsAgree");
  const size_t jobs_max = std::min<size_t>(InstanceJobsMax(), 128);
  for (int i = FirstInstance(); i < FirstInstance() + Instances(); ++i) {
    SCOPED_TRACE(i);
    tally.Begin(i);
    const auto seed = static_cast<uint64_t>(i);
    const auto make = seed / 2 % 3 == 0 ? &PlacedInstance : &Instance;
    const PolicyProblem problem =
        WithEntities(make(seed, jobs_max), seed / kInstanceFamilies);
    ExpectSameAmounts(kFillings[i % 2], problem, i, &tally);
  }
  EXPECT_GT(tally.asked(), Instances() / 3);
  EXPECT_LE(tally.fallbacks() * 12, tally.asked()) << tally.whose();
}

// In its second stage a type is full that is worth 1e-11 of all, a rounding:
// nobody's level hangs on it, and the jobs of the entity go on using more of
// it.
TEST(Solvers, AFullTypeThatIsWorthNothingIsNotScarce) {
  Tally tally("AFullTypeThatIsWorthNothingIsNotScarce");
  ExpectSameAmounts(kFillings[1],
                    WithEntities(Instance(2731, 128), 2731 / kInstanceFamilies),
                    2731, &tally);
  EXPECT_EQ(tally.asked(), 1);
}

// From a level on all jobs that run on a scarce type have all that they can,
// and ask for no more of it until another job's turn comes.
TEST(Solvers, ABoundIsNotWhereDemandsAreFlat) {
  constexpr uint64_t kSeed = 6173;
  const PolicyProblem problem =
      WithEntities(Instance(kSeed, 128), kSeed / kInstanceFamilies);
  for (const SolverChoice choice :
       {SolverChoice::kPrices, SolverChoice::kHighs}) {
    const PolicyResult result = By(choice, kFillings[1], problem);
    EXPECT_LE(result.objective, result.bound);
    EXPECT_GE(result.bound, 4.1);
  }
}

}  // namespace
}  // namespace gavel::testing
