// Stages of water filling by prices, on jobs that can use some of the types
// only: each ends because types are full, so there are at most as many.
#include "coordinator/policy/price_water.h"

#include <numeric>
#include <random>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_pass.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

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
      FillByPrices(jobs, rates, std::vector<double>(2 * kStages, 1.0));
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
      FillByPrices(jobs, rates, std::vector<double>(3, 1.0));
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
