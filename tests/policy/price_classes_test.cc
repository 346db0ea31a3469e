#include <cmath>
#include <random>

#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

constexpr size_t kJobs = 1000;
constexpr size_t kTypes = 3;
constexpr size_t kKinds = 12;

struct Case {
  PriceJobs jobs;
  PriceDemand demand;
};

// One kind can't run on the first type, one is slower on all dearer ones.
Case RandomCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<double> rows;
  for (size_t i = 0; i < kKinds * kTypes; ++i) rows.push_back(between(0.2, 5));
  rows[0] = 0;
  Case out{MakePriceJobs(kJobs, {60, 90, 30}), {}};
  for (size_t m = 0; m < kJobs; ++m) {
    const size_t kind = random() % kKinds;
    double fastest = 0;
    for (size_t j = 0; j < kTypes; ++j) {
      out.jobs.Throughput(m, j) = rows[kind * kTypes + j];
      fastest = std::max(fastest, rows[kind * kTypes + j]);
    }
    out.jobs.accelerators[m] = static_cast<double>(1 + kind % 3);
    out.demand.a.push_back(between(0, 1) * fastest);
  }
  PadDemand(out.jobs, &out.demand);
  return out;
}

std::optional<PriceClasses> ClassesOf(const Case& one, size_t classes_max) {
  return PriceClasses::Of(one.jobs, std::span(one.demand.a).first(kJobs),
                          classes_max);
}

void ExpectSame(const PriceSums& a, const PriceSums& b) {
  EXPECT_NEAR(a.cost, b.cost, 1e-12 * (1 + std::abs(b.cost)));
  EXPECT_NEAR(a.slope, b.slope, 1e-12 * (1 + std::abs(b.slope)));
  for (size_t j = 0; j < kTypes; ++j) {
    EXPECT_NEAR(a.usage[j], b.usage[j], 1e-12 * kJobs);
  }
}

TEST(PriceClasses, SumsAreThoseOfAPassOverAllJobs) {
  const Case one = RandomCase(1);
  const auto classes = ClassesOf(one, kKinds);
  ASSERT_TRUE(classes.has_value());
  EXPECT_EQ(classes->size(), kKinds);
  const PricePass pass = PassOf(one.jobs, one.demand);
  for (const std::vector<double>& prices :
       {std::vector<double>{0.005, 0.005, 0.005},
        {0.001, 0.004, 0.02},
        {0.01, 0, 0.01}}) {
    // At 1.5 some demand more than they can have.
    for (const double level : {0.1, 0.6, 1.0, 1.5}) {
      ExpectSame(classes->Evaluator().sums(level, prices),
                 SumPass(pass, level, prices));
    }
  }
}

TEST(PriceClasses, NobodyUsesAnythingAtLevelZero) {
  const auto classes = ClassesOf(RandomCase(1), kKinds);
  const PriceSums sums =
      classes->Evaluator().sums(0, std::vector<double>{0.005, 0.005, 0.005});
  EXPECT_EQ(sums.cost, 0);
  for (size_t j = 0; j < kTypes; ++j) EXPECT_EQ(sums.usage[j], 0);
}

TEST(PriceClasses, TooManyKindsAreNoClasses) {
  EXPECT_FALSE(ClassesOf(RandomCase(1), kKinds - 1).has_value());
}

TEST(PriceClasses, TheLevelIsThatOfAPassOverAllJobs) {
  const Case one = RandomCase(2);
  const auto classes = ClassesOf(one, kKinds);
  const PriceLevel found =
      HighestLevel(classes->Evaluator(), one.jobs.capacity, 1);
  ASSERT_TRUE(found.converged);
  const PricePass pass = PassOf(one.jobs, one.demand);
  const PriceEvaluator of_all = {
      [&](double level, std::span<const double> prices) {
        return SumPass(pass, level, prices);
      },
      /*idle_at_zero=*/true};
  const PriceLevel all = HighestLevel(of_all, one.jobs.capacity, 1);
  EXPECT_NEAR(found.level, all.level, 2e-9 * all.level);
}

}  // namespace
}  // namespace gavel::testing
