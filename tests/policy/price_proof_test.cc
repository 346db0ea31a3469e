#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"
#include "coordinator/policy/price_program.h"
#include "coordinator/policy/share_problem.h"
#include "coordinator/policy/share_program.h"
#include "tests/policy/problems.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr size_t kProofJobs = 37;
constexpr size_t kProofTypes = 5;

struct ProofCase {
  PriceJobs jobs;
  PriceDemand demand;
  std::vector<double> gain;  // empty: the pass has no gains
  std::vector<double> worth;
  double level = 0;
  std::vector<double> prices;

  PricePass Pass() const {
    PricePass pass = PassOf(jobs, demand);
    if (!gain.empty()) {
      pass.gain = gain.data();
      pass.worth = worth.data();
    }
    return pass;
  }
};

// `form`: 0 in proportion, 1 with caps and floors, 2 finish-time, 3 gains.
ProofCase ProofCaseOf(uint64_t seed, int form) {
  std::mt19937_64 random(seed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  ProofCase out;
  out.jobs = MakePriceJobs(kProofJobs, {4, 3, 5, 2, 6});
  out.demand.curve = form == 2 ? DemandCurve::kFinish : DemandCurve::kRamp;
  out.level = form == 2 ? -3 : 0.7;
  for (size_t m = 0; m < kProofJobs; ++m) {
    out.jobs.accelerators[m] = static_cast<double>(1 << random() % 3);
    double fastest = 0;
    for (size_t j = 0; j < kProofTypes; ++j) {
      const bool none = j > 0 && random() % 4 == 0;
      out.jobs.Throughput(m, j) = none ? 0 : between(0.2, 5);
      fastest = std::max(fastest, out.jobs.Throughput(m, j));
    }
    out.demand.a.push_back(form == 3 ? 0 : between(0.2, 1) * fastest);
    if (form == 1) out.demand.b.push_back(between(0, 0.3) * fastest);
    if (form == 1) out.demand.c.push_back(between(0.3, 1) * fastest);
    if (form == 2) out.demand.b.push_back(between(1, 2));
    if (form == 2) out.demand.c.push_back(between(0, 1));
    if (form == 3) out.demand.b.push_back(between(0, 0.9) * fastest);
    if (form == 3) out.gain.push_back(between(0, 0.05));
  }
  PadDemand(out.jobs, &out.demand);
  if (form == 3) {
    out.gain.resize(out.jobs.accelerators.size(), 0.0);
    out.worth = {1, 0.5, 2, 1, 1.5};
  }
  double all = 0;
  for (size_t j = 0; j < kProofTypes; ++j) {
    out.prices.push_back(random() % 4 == 0 ? 0 : between(0, 1));
    all += out.prices[j] * out.jobs.capacity[j];
  }
  for (double& price : out.prices) price /= std::max(all, 1e-9);
  return out;
}

TEST(PriceProof, TheLeastCostIsThatOfThePass) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const int form : {0, 1, 2, 3}) {
      SCOPED_TRACE(seed * 10 + static_cast<uint64_t>(form));
      const ProofCase one = ProofCaseOf(seed, form);
      const LeastCost least = LeastCostOf(one.Pass(), one.level, one.prices);
      const PriceSums sums = SumPass(one.Pass(), one.level, one.prices);
      const double scale = std::abs(sums.cost) + 1e-3;
      EXPECT_NEAR(least.cost, sums.cost, 1e-11 * scale);
      if (form == 3) continue;
      EXPECT_NEAR(least.slope, sums.slope, 1e-9 * std::abs(sums.slope) + 1e-12);
    }
  }
}

double LevelMaxOf(const PriceJobs& jobs, const PriceDemand& demand) {
  double most = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < jobs.size; ++m) {
    double fastest = 0;
    for (size_t j = 0; j < jobs.types; ++j) {
      fastest = std::max(fastest, jobs.Throughput(m, j));
    }
    most = std::min(most, fastest / demand.a[m]);
  }
  return most;
}

TEST(PriceProof, ABoundThatItsPricesDoNotProveIsRaised) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const ProofCase one = ProofCaseOf(seed, 0);
    const double level_max = LevelMaxOf(one.jobs, one.demand);
    const PriceLevel right = HighestLevel(one.jobs, one.demand, level_max);
    ASSERT_TRUE(right.converged);
    // Too low, as if a sum of the search had been too high.
    PriceLevel wrong = right;
    wrong.bound *= 0.9;
    ProveBound(one.jobs, one.Pass(), level_max, kPriceGap, &wrong);
    EXPECT_GE(wrong.bound, right.level * (1 - kBoundRounding));
    // Other prices prove less.
    wrong.prices = one.prices;
    wrong.bound = right.bound * 0.9;
    ProveBound(one.jobs, one.Pass(), level_max, kPriceGap, &wrong);
    EXPECT_GE(wrong.bound, right.level * (1 - kBoundRounding));
    if (wrong.converged) continue;
    ++refused;
    EXPECT_GT(wrong.bound, right.level * (1 + kPriceGap));
  }
  EXPECT_GT(refused, 40);
}

TEST(PriceProof, ALevelAboveItsBoundIsNoProof) {
  const ProofCase one = ProofCaseOf(1, 0);
  const double level_max = LevelMaxOf(one.jobs, one.demand);
  PriceLevel level = HighestLevel(one.jobs, one.demand, level_max);
  level.level *= 1.01;
  ProveBound(one.jobs, one.Pass(), level_max, kPriceGap, &level);
  EXPECT_FALSE(level.converged);
}

// The demands of entities may be flat: the first job has all that it can from
// level 1 on, the second asks for the first one's type from level 2 on.
TEST(PriceProof, WhereDemandsAreFlatACostOfOneProvesNothing) {
  const auto cost_at = [](double level) {
    return std::min(level, 1.0) + std::max(0.0, level - 2);
  };
  EXPECT_NEAR(ProvedLevel(cost_at, 1, 5), 2, 1e-8);
  EXPECT_EQ(ProvedLevel(cost_at, 3, 5), 3);
  EXPECT_EQ(ProvedLevel(cost_at, 1, 1.5), 1.5);
}

}  // namespace
}  // namespace gavel::testing
