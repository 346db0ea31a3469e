// The price method against HiGHS at tolerance 1e-9 as the referee, over random
// problems of all families and all policies that prices serve. Run with
// GAVEL_SOLVER_INSTANCES=10000 for as many (300 without).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "coordinator/policy/lp/price_pass.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/policy/certificate.h"
#include "tests/policy/share_kit.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

constexpr const char* kMaxima[] = {
    "max_min_fairness",
    "max_min_fairness_perf",
    "max_sum_throughput_perf",
    "max_sum_throughput_normalized_by_cost_perf",
    "max_sum_throughput_normalized_by_cost_perf_SLOs",
    "max_throughput_per_cost",
};
constexpr const char* kMinima[] = {
    "min_total_duration", "min_total_duration_perf", "finish_time_fairness",
    "finish_time_fairness_perf"};
constexpr const char* kFillings[] = {"max_min_fairness_water_filling",
                                     "max_min_fairness_water_filling_perf",
                                     "drf"};

int Instances() {
  const char* asked = std::getenv("GAVEL_SOLVER_INSTANCES");
  return asked == nullptr ? 300 : std::atoi(asked);
}

// J 1 to 10, n log-uniform up to `jobs_max`; by the seed's last digit: plain,
// equal jobs, exact ties between types, ratios up to 1e-6..1e6, gangs larger
// than types, few accelerators, many.
PolicyProblem Instance(uint64_t seed, size_t jobs_max) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t end) { return random() % end; };
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto log_between = [&](double low, double high) {
    return std::exp(between(std::log(low), std::log(high)));
  };
  const size_t types = 1 + below(10);
  const auto n =
      static_cast<size_t>(log_between(1, static_cast<double>(jobs_max) + 0.99));
  const uint64_t family = seed % 7;
  const double most = family == 5   ? 2
                      : family == 6 ? 4.0 * static_cast<double>(n)
                                    : static_cast<double>(n);
  std::vector<int> capacity(types);
  for (int& count : capacity) {
    count = below(10) == 0 ? 0 : static_cast<int>(between(0, most / 2 + 2));
  }
  const size_t kinds = family == 1 ? 1 + below(3) : n;
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < n; ++i) {
    if (i >= kinds) {
      rows.push_back(rows[below(kinds)]);
      continue;
    }
    std::vector<double> row;
    const double speed = log_between(0.1, 100);
    for (size_t j = 0; j < types; ++j) {
      double ratio = between(0.2, 5);
      if (family == 2) ratio = static_cast<double>(1 + below(3));
      if (family == 3) ratio = log_between(1e-6, 1e6);
      row.push_back(below(8) == 0 ? 0 : speed * ratio);
    }
    rows.push_back(std::move(row));
  }
  PolicyProblem problem = MakeProblem(std::move(capacity), rows);
  for (PolicyJob& job : problem.jobs) {
    job.scale_factor = 1 << below(family == 4 ? 7 : 3);
    const bool equal = family == 1 || family == 2;
    job.weight = equal || below(3) != 0 ? 1 : between(0.2, 5);
    job.steps_remaining = equal ? 1e5 : log_between(1e2, 1e7);
    job.time_since_start_s = below(2) == 0 ? 0 : log_between(1, 1e5);
    job.isolated_s = job.time_since_start_s * between(0, 1);
    if (below(4) == 0) job.deadline_s = log_between(1e3, 1e8);
  }
  for (size_t j = 0; j < types; ++j) {
    problem.cost.push_back(between(0.3, 4));
  }
  return problem;
}

PolicyResult By(SolverChoice choice, const char* policy,
                PolicyProblem problem) {
  problem.solver = choice;
  return Solved(policy, problem);
}

bool ByPrices(const PolicyResult& result) { return result.solver == "prices"; }

// What prices were to do and HiGHS had to.
struct Counts {
  int prices = 0;
  int fallbacks = 0;
  std::string whose;
};

// Objectives, bounds and gaps of both; `sign` -1: the least is best.
void ExpectAgreement(const char* policy, const PolicyProblem& problem,
                     double sign, Counts* counts) {
  const PolicyResult price = By(SolverChoice::kAuto, policy, problem);
  ASSERT_EQ(ShareErrors(problem, price), "");
  if (ByPrices(price)) ++counts->prices;
  // Deadlines that can't be met are relaxed by HiGHS.
  if (price.solver.find("after prices") != std::string::npos &&
      price.outcome != SolveOutcome::kInfeasible) {
    ++counts->fallbacks;
    StrAppend(&counts->whose, policy, " ");
  }
  if (!ByPrices(price)) return;
  EXPECT_EQ(price.outcome, SolveOutcome::kOptimal) << price.detail;
  EXPECT_LE(price.gap, 1e-6);
  EXPECT_LE(sign * price.objective, sign * price.bound);
  EXPECT_GT(price.iterations, 0);
  const PolicyResult highs = By(SolverChoice::kHighs, policy, problem);
  const double scale = std::max(std::abs(highs.objective), 1e-300);
  const double slack =
      std::max({1e-7 * scale, std::abs(highs.bound - highs.objective),
                std::abs(price.bound - price.objective)});
  if (highs.outcome == SolveOutcome::kOptimal) {
    EXPECT_NEAR(price.objective, highs.objective, slack * (1 + 1e-9));
  }
  // No achieved value is beyond a bound.
  EXPECT_LE(sign * highs.objective, sign * price.bound + 1e-9 * scale);
  EXPECT_LE(sign * price.objective, sign * highs.bound + 1e-9 * scale);
}

TEST(Solvers, PricesAndHighsAgree) {
  Counts counts;
  for (int i = 0; i < Instances(); ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem =
        Instance(static_cast<uint64_t>(i), Instances() > 300 ? 2000 : 300);
    const size_t maxima = std::size(kMaxima);
    // One of each a time: all of them in a few instances of each family.
    const char* maximum = kMaxima[static_cast<size_t>(i) % maxima];
    const char* minimum = kMinima[static_cast<size_t>(i) % std::size(kMinima)];
    SCOPED_TRACE(std::string(maximum) + " " + minimum);
    ExpectAgreement(maximum, problem, 1, &counts);
    ExpectAgreement(minimum, problem, -1, &counts);
    if (HasFatalFailure()) return;
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  EXPECT_LE(counts.fallbacks * 20, counts.prices) << counts.whose;
}

// [n] sorted amounts of the policy.
std::vector<double> SortedValues(const char* policy,
                                 const PolicyProblem& problem,
                                 const PolicyResult& result) {
  const bool agnostic = std::string(policy) != kFillings[1];
  std::vector<double> values = JobValues(problem, result.allocation, agnostic);
  if (std::string(policy) == "drf") {
    values = JobThroughputs(problem, result.allocation, true);
    for (size_t m = 0; m < values.size(); ++m) {
      values[m] *= problem.jobs[m].scale_factor / problem.jobs[m].weight;
    }
  }
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::sort(values.begin(), values.end());
  return values;
}

TEST(Solvers, WaterFillingByPricesAndByHighsAgreeInEveryLevel) {
  Counts counts;
  for (int i = 0; i < Instances(); ++i) {
    SCOPED_TRACE(i);
    const PolicyProblem problem = Instance(static_cast<uint64_t>(i), 128);
    const char* policy = kFillings[static_cast<size_t>(i) % 3];
    SCOPED_TRACE(policy);
    const PolicyResult price = By(SolverChoice::kAuto, policy, problem);
    ASSERT_EQ(ShareErrors(problem, price), "");
    if (price.solver.find("after prices") != std::string::npos) {
      ++counts.fallbacks;
    }
    if (!ByPrices(price)) continue;
    ++counts.prices;
    EXPECT_LE(price.gap, 1e-6);
    const PolicyResult highs = By(SolverChoice::kHighs, policy, problem);
    if (highs.outcome != SolveOutcome::kOptimal) continue;
    const std::vector<double> a = SortedValues(policy, problem, price);
    const std::vector<double> b = SortedValues(policy, problem, highs);
    ASSERT_EQ(a.size(), b.size());
    // The first rank that differs, if any, is in favour of prices: HiGHS stops
    // at its tolerance. At ratios of 1e12 what that leaves out at one rank is
    // much more at the next ones, so there it is any difference that counts.
    const double differs = i % 7 == 3 ? 1e-10 : 1e-6;
    for (size_t rank = 0; rank < a.size(); ++rank) {
      ASSERT_GE(a[rank], b[rank] * (1 - std::max(differs, 2e-9)))
          << "of rank " << rank;
      if (a[rank] > b[rank] * (1 + differs)) break;
    }
  }
  RecordProperty("prices", counts.prices);
  RecordProperty("fallbacks", counts.fallbacks);
  EXPECT_LE(counts.fallbacks * 20, counts.prices);
}

TEST(PricePass, AllVersionsGiveTheSameBits) {
  std::mt19937_64 random(1);
  const auto uniform = [&] {
    return std::uniform_real_distribution<double>(0, 1)(random);
  };
  for (const size_t types : {size_t{1}, size_t{3}, size_t{7}}) {
    const size_t blocks = 1500;  // more than one sum
    const size_t jobs = blocks * kPriceLanes;
    std::vector<double> throughputs(jobs * types);
    for (double& one : throughputs) one = random() % 6 == 0 ? 0 : uniform();
    std::vector<double> held(jobs);
    std::vector<double> a(jobs);
    std::vector<double> b(jobs);
    std::vector<double> c(jobs);
    std::vector<double> gain(jobs);
    for (size_t m = 0; m < jobs; ++m) {
      held[m] = 1 + static_cast<double>(random() % 4);
      a[m] = uniform();
      b[m] = 2 + uniform();
      c[m] = uniform();
      gain[m] = uniform();
    }
    std::vector<double> prices;
    std::vector<double> worth;
    for (size_t j = 0; j < types; ++j) {
      prices.push_back(uniform());
      worth.push_back(uniform());
    }
    PricePass pass;
    pass.blocks = blocks;
    pass.types = types;
    pass.throughputs = throughputs.data();
    pass.accelerators = held.data();
    pass.a = a.data();
    for (const int kind : {0, 1, 2, 3}) {
      pass.curve = kind == 2 ? DemandCurve::kFinish : DemandCurve::kRamp;
      pass.b = kind == 2 ? b.data() : nullptr;
      pass.c = kind == 0 ? nullptr : c.data();
      pass.gain = kind == 3 ? gain.data() : nullptr;
      pass.worth = kind == 3 ? worth.data() : nullptr;
      const double level = kind == 2 ? -1.5 : 0.4;
      const PriceSums scalar =
          SumPass(pass, level, prices, PassVersion::kScalar);
      const PricePoint point{level, 0.7, prices.data()};
      std::vector<double> shares(jobs * types, 0.0);
      AddShares(pass, {&point, 1}, shares, PassVersion::kScalar);
      for (const PassVersion version :
           {PassVersion::kAvx2, PassVersion::kAvx512}) {
        if (!Supported(version)) continue;
        const PriceSums sums = SumPass(pass, level, prices, version);
        EXPECT_EQ(sums.cost, scalar.cost);
        EXPECT_EQ(sums.slope, scalar.slope);
        for (size_t j = 0; j < types; ++j) {
          EXPECT_EQ(sums.usage[j], scalar.usage[j]);
        }
        std::vector<double> others(jobs * types, 0.0);
        AddShares(pass, {&point, 1}, others, version);
        EXPECT_EQ(others, shares);
      }
    }
  }
}

TEST(PricePass, AJobHasItsDemandAtTheLeastCost) {
  // 1 step/s for 1, 3 steps/s for 2, 4 steps/s for 6: the first is above the
  // line from nothing to the second.
  std::vector<double> throughputs(3 * kPriceLanes, 0.0);
  throughputs[0] = 1;
  throughputs[kPriceLanes] = 3;
  throughputs[2 * kPriceLanes] = 4;
  std::vector<double> held(kPriceLanes, 0.0);
  held[0] = 2;
  std::vector<double> demand(kPriceLanes, 0.0);
  demand[0] = 1;
  PricePass pass;
  pass.blocks = 1;
  pass.types = 3;
  pass.throughputs = throughputs.data();
  pass.accelerators = held.data();
  pass.a = demand.data();
  const std::vector<double> prices = {1, 2, 6};
  const PriceSums low = SumPass(pass, 1.5, prices, PassVersion::kScalar);
  EXPECT_DOUBLE_EQ(low.usage[1], 1);
  EXPECT_DOUBLE_EQ(low.cost, 2);
  EXPECT_DOUBLE_EQ(low.slope, 2 * 2.0 / 3);
  const PriceSums high = SumPass(pass, 3.5, prices, PassVersion::kScalar);
  EXPECT_DOUBLE_EQ(high.usage[0], 0);
  EXPECT_DOUBLE_EQ(high.usage[1], 1);
  EXPECT_DOUBLE_EQ(high.usage[2], 1);
  EXPECT_DOUBLE_EQ(high.cost, 8);
  EXPECT_DOUBLE_EQ(high.slope, 2 * 4.0);
}

}  // namespace
}  // namespace gavel::testing
