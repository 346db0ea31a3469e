// Stages of water filling by prices, on jobs that can use some of the types
// only: each ends because types are full, so there are at most as many.
#include "coordinator/policy/lp/price_water.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {

using namespace policy;
namespace {

// Jobs that can use a few of the types only.
PolicyProblem Restricted(uint64_t seed) {
  std::mt19937_64 random(seed);
  PolicyProblem problem = RandomProblem(seed, {.types_min = 2,
                                               .types_max = 6,
                                               .jobs_min = 10,
                                               .jobs_max = 60,
                                               .capacity_min = 4,
                                               .capacity_more = 12,
                                               .gang_log_max = 2,
                                               .unusable = false});
  const size_t types = problem.types.size();
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const size_t certain = random() % types;
    for (size_t j = 0; j < types; ++j) {
      if (j != certain && random() % 3 != 0) {
        problem.throughputs[m * types + j] = 0;
      }
    }
  }
  return problem;
}

// [n] the rates at level 1: what the policy normalises by.
std::vector<double> RatesOf(const PolicyProblem& problem) {
  const double all =
      std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0.0);
  std::vector<double> rates;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    double mean = 0;
    for (size_t j = 0; j < problem.types.size(); ++j) {
      mean += problem.Row(m)[j] * problem.capacity[j] / all;
    }
    rates.push_back(problem.jobs[m].weight * mean /
                    problem.jobs[m].scale_factor);
  }
  return rates;
}

PriceWater Fill(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  PriceJobs jobs =
      MakePriceJobs(n, {problem.capacity.begin(), problem.capacity.end()});
  std::vector<double> caps;
  for (size_t m = 0; m < n; ++m) {
    const auto row = problem.Row(m);
    jobs.accelerators[m] = problem.jobs[m].scale_factor;
    for (size_t j = 0; j < row.size(); ++j) jobs.Throughput(m, j) = row[j];
    caps.push_back(*std::max_element(row.begin(), row.end()));
  }
  return FillByPrices(jobs, RatesOf(problem), caps, {});
}

// [n] steps/s.
std::vector<double> Throughputs(const PolicyProblem& problem,
                                const std::vector<double>& shares) {
  const size_t types = problem.types.size();
  std::vector<double> throughputs;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    throughputs.push_back(std::inner_product(
        problem.Row(m).begin(), problem.Row(m).end(), &shares[m * types], 0.0));
  }
  return throughputs;
}

TEST(PriceWater, StagesAreOneToAsManyAsTypes) {
  int several = 0;
  int most = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem = Restricted(seed);
    const PriceWater water = Fill(problem);
    EXPECT_GE(water.stages, 1);
    EXPECT_LE(water.stages, static_cast<int>(problem.types.size()));
    several += water.stages > 1 ? 1 : 0;
    most = std::max(most, water.stages);
  }
  EXPECT_GT(several, 100);
  EXPECT_GE(most, 4);
}

TEST(PriceWater, OfSeveralStagesEachJobHasWhatHighsGives) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    PolicyProblem problem = Restricted(seed);
    const PriceWater water = Fill(problem);
    if (!water.converged || water.stages < 2) continue;
    ++compared;
    problem.solver = SolverChoice::kHighs;
    const PolicyResult highs =
        Solved("max_min_fairness_water_filling_perf", problem);
    ASSERT_EQ(highs.outcome, SolveOutcome::kOptimal);
    const std::vector<double> throughputs = Throughputs(problem, water.shares);
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      const std::vector<double> row = highs.allocation.Row(problem.jobs[m].id);
      const double other = std::inner_product(row.begin(), row.end(),
                                              problem.Row(m).begin(), 0.0);
      EXPECT_NEAR(throughputs[m], other, 1e-6 * other) << m;
    }
  }
  EXPECT_GT(compared, 30);
}

// Two jobs of the rate 1 + j for each type j, which run nowhere else: each type
// fills up at a level of its own.
TEST(PriceWater, AStageForEachType) {
  constexpr size_t kStages = 5;
  PriceJobs jobs = MakePriceJobs(2 * kStages, std::vector<double>(kStages, 1));
  std::vector<double> rates;
  for (size_t m = 0; m < 2 * kStages; ++m) {
    jobs.Throughput(m, m % kStages) = 1;
    rates.push_back(1 + static_cast<double>(m % kStages));
  }
  const PriceWater water =
      FillByPrices(jobs, rates, std::vector<double>(2 * kStages, 1.0), {});
  EXPECT_TRUE(water.converged);
  EXPECT_EQ(water.stages, static_cast<int>(kStages));
  for (size_t m = 0; m < 2 * kStages; ++m) {
    EXPECT_NEAR(water.shares[m * kStages + m % kStages], 0.5, 1e-9);
  }
}

// Jobs 0 and 1 share a type, of which both are short; job 0 could also run, at
// `speed`, on the one where job 2 is alone. [3] what each has.
std::vector<double> FillBeside(double speed) {
  PriceJobs jobs = MakePriceJobs(3, {1, 1});
  jobs.Throughput(0, 0) = jobs.Throughput(1, 0) = jobs.Throughput(2, 1) = 1;
  jobs.Throughput(0, 1) = speed;
  const std::vector<double> rates = {1, 1, 0.2};
  const PriceWater water =
      FillByPrices(jobs, rates, std::vector<double>(3, 1.0), {});
  EXPECT_TRUE(water.converged);
  EXPECT_EQ(water.stages, 2);
  std::vector<double> has;
  for (size_t m = 0; m < 3; ++m) {
    has.push_back(water.shares[2 * m] * jobs.Throughput(m, 0) +
                  water.shares[2 * m + 1] * jobs.Throughput(m, 1));
  }
  return has;
}

TEST(PriceWater, AFrozenJobKeepsWhatItNeeds) {
  // All of its time, to have as much as job 1: x + (1 - x) speed = 1 - x.
  constexpr double kSpeed = 1e-3;
  const double on_own = (1 - kSpeed) / (2 - kSpeed);
  const std::vector<double> has = FillBeside(kSpeed);
  EXPECT_NEAR(has[0], 1 - on_own, 1e-9);
  EXPECT_NEAR(has[1], 1 - on_own, 1e-9);
  EXPECT_NEAR(has[2], on_own, 1e-9);
}

}  // namespace
}  // namespace gavel::testing
