#include "coordinator/policy/lp/price_classes.h"

#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_pass.h"
#include "gtest/gtest.h"

namespace gavel::testing {
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
      ExpectSame((*classes)(level, prices),
                 SumPass(pass, level, prices, PassVersion::kScalar));
    }
  }
}

TEST(PriceClasses, NobodyUsesAnythingAtLevelZero) {
  const auto classes = ClassesOf(RandomCase(1), kKinds);
  const PriceSums sums =
      (*classes)(0, std::vector<double>{0.005, 0.005, 0.005});
  EXPECT_EQ(sums.cost, 0);
  for (size_t j = 0; j < kTypes; ++j) EXPECT_EQ(sums.usage[j], 0);
}

TEST(PriceClasses, TooManyKindsAreNoClasses) {
  EXPECT_FALSE(ClassesOf(RandomCase(1), kKinds - 1).has_value());
}

TEST(PriceClasses, SharesOfAJobAreThoseOfThePass) {
  const Case one = RandomCase(2);
  const auto classes = ClassesOf(one, kKinds);
  const PriceLevel found =
      HighestLevel(classes->Evaluator(), one.jobs.capacity, 1, {});
  ASSERT_TRUE(found.converged);
  const std::vector<double> all = SharesOf(
      one.jobs, PassOf(one.jobs, one.demand), found.mixture, FastestVersion());
  for (size_t m = 0; m < kJobs; ++m) {
    const std::vector<double> row = classes->Shares(
        {classes->class_of()[m], one.demand.a[m]}, found.mixture);
    double rate = 0;
    for (size_t j = 0; j < kTypes; ++j) {
      EXPECT_NEAR(row[j], all[m * kTypes + j], 1e-12);
      rate += row[j] * one.jobs.Throughput(m, j);
    }
    EXPECT_GE(rate, found.level * one.demand.a[m] * (1 - 1e-9));
  }
}

// Ten times one job in fifty ends and another one comes, some of kinds never
// seen: which class a row is of is carried over.
TEST(PriceClasses, AfterTenChangesTheyAreAsIfBuiltAnew) {
  Case one = RandomCase(3);
  auto classes = ClassesOf(one, kKinds);
  std::mt19937_64 random(3);
  std::vector<double> row(kTypes);
  const auto member = [&](size_t m) {
    for (size_t j = 0; j < kTypes; ++j) row[j] = one.jobs.Throughput(m, j);
    return PriceClasses::Member{classes->ClassOf(row, one.jobs.accelerators[m]),
                                one.demand.a[m]};
  };
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    std::vector<PriceClasses::Member> gone;
    std::vector<PriceClasses::Member> come;
    for (size_t m = random() % 50; m < kJobs; m += 50) {
      gone.push_back(member(m));
      const size_t like = random() % kJobs;
      for (size_t j = 0; j < kTypes; ++j) {
        one.jobs.Throughput(m, j) =
            one.jobs.Throughput(like, j) * (m % 7 == 0 ? 1.5 : 1);
      }
      one.jobs.accelerators[m] = one.jobs.accelerators[like];
      one.demand.a[m] = 0.7 * one.demand.a[like];
      come.push_back(member(m));
    }
    ASSERT_TRUE(classes->Change(gone, come));
    EXPECT_EQ(classes->jobs(), kJobs);
    const std::vector<double> prices = {0.004, 0.005, 0.01};
    ExpectSame((*classes)(0.5, prices),
               SumPass(PassOf(one.jobs, one.demand), 0.5, prices,
                       PassVersion::kScalar));
  }
}

TEST(PriceClasses, WhoIsNotThereCannotGo) {
  const Case one = RandomCase(4);
  auto classes = ClassesOf(one, kKinds);
  const std::vector<double> prices = {0.004, 0.005, 0.01};
  const PriceSums before = (*classes)(0.5, prices);
  EXPECT_FALSE(classes->Change({{0, -1}}, {{1, 0.3}}));
  EXPECT_EQ(classes->jobs(), kJobs);
  EXPECT_EQ((*classes)(0.5, prices).cost, before.cost);
}

TEST(PriceClasses, AWarmStartFindsTheSameLevelInFewerPasses) {
  const Case one = RandomCase(5);
  auto classes = ClassesOf(one, kKinds);
  const PriceLevel cold =
      HighestLevel(classes->Evaluator(), one.jobs.capacity, 1, {});
  ASSERT_TRUE(classes->Change({{classes->class_of()[0], one.demand.a[0]}},
                              {{classes->class_of()[0], 0.1}}));
  const PriceLevel fresh =
      HighestLevel(classes->Evaluator(), one.jobs.capacity, 1, {});
  const PriceLevel warm =
      HighestLevel(classes->Evaluator(), one.jobs.capacity, 1, {},
                   {cold.prices, cold.level, cold.mixture, 0.01});
  ASSERT_TRUE(warm.converged);
  EXPECT_NEAR(warm.level, fresh.level, 2e-9 * fresh.level);
  EXPECT_LT(warm.passes, fresh.passes);
}

}  // namespace
}  // namespace gavel::testing
