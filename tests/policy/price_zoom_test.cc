#include "coordinator/policy/lp/price_zoom.h"

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/lp/price_pass.h"
#include "gtest/gtest.h"
#include "tests/policy/pass_case.h"

namespace gavel::testing {
namespace {

constexpr size_t kZoomJobs = 6000;
constexpr size_t kZoomTypes = 4;

enum class DemandKind { kProportional, kCapped, kFinish, kGain };
constexpr DemandKind kDemandKinds[] = {DemandKind::kProportional,
                                       DemandKind::kCapped, DemandKind::kFinish,
                                       DemandKind::kGain};

// Some throughputs are 0, some are the same on two types.
PassCase ZoomCaseOf(DemandKind kind) {
  std::mt19937_64 random(7);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  PassCase out;
  out.jobs = MakePriceJobs(kZoomJobs, {500, 200, 300, 400});
  out.demand.curve =
      kind == DemandKind::kFinish ? DemandCurve::kFinish : DemandCurve::kRamp;
  out.level = kind == DemandKind::kFinish ? -3 : 1;
  for (size_t m = 0; m < kZoomJobs; ++m) {
    out.jobs.accelerators[m] = static_cast<double>(1 << random() % 4);
    double fastest = 0;
    for (size_t j = 0; j < kZoomTypes; ++j) {
      double one = j > 0 && random() % 6 == 0 ? 0 : between(0.2, 5);
      if (j == 3 && random() % 5 == 0) one = out.jobs.Throughput(m, 0);
      out.jobs.Throughput(m, j) = one;
      fastest = std::max(fastest, one);
    }
    switch (kind) {
      case DemandKind::kProportional:
        out.demand.a.push_back(between(0.1, 0.8) * fastest);
        break;
      case DemandKind::kCapped:
        out.demand.a.push_back(between(0.1, 0.8) * fastest);
        out.demand.b.push_back(between(0, 0.2) * fastest);
        out.demand.c.push_back(between(0.2, 1) * fastest);
        break;
      case DemandKind::kFinish:
        out.demand.a.push_back(between(0.1, 1) * fastest);
        out.demand.b.push_back(between(1, 2));
        out.demand.c.push_back(between(0, 1));
        break;
      case DemandKind::kGain:
        out.demand.a.push_back(0);
        out.demand.b.push_back(random() % 2 == 0 ? 0
                                                 : between(0, 0.9) * fastest);
        out.gain.push_back(between(0, 0.001));
        break;
    }
  }
  PadDemand(out.jobs, &out.demand);
  if (kind == DemandKind::kGain) {
    out.gain.resize(out.jobs.accelerators.size(), 0.0);
    out.worth = {1, 0.5, 2, 1};
  }
  return out;
}

struct Point {
  double level = 0;
  std::vector<double> prices;
};

// A search that closes in on a point, with a jump away now and then.
std::vector<Point> Points(double level) {
  std::mt19937_64 random(3);
  const auto around = [&](double width) {
    return 1 + std::uniform_real_distribution<double>(-width, width)(random);
  };
  std::vector<Point> points;
  double width = 0.3;
  for (int i = 0; i < 60; ++i, width *= 0.8) {
    const double wide = i % 13 == 12 ? 0.3 : width;
    Point point = {level * around(wide * 0.1), {2e-4, 1e-3, 4e-4, 5e-4}};
    for (double& price : point.prices) price *= around(wide);
    points.push_back(std::move(point));
  }
  return points;
}

void ExpectSameSums(const PriceSums& a, const PriceSums& b, double scale) {
  EXPECT_NEAR(a.cost, b.cost, 1e-11 * scale);
  EXPECT_NEAR(a.slope, b.slope, 1e-10 * scale);
  for (size_t j = 0; j < kZoomTypes; ++j) {
    EXPECT_NEAR(a.usage[j], b.usage[j], 1e-11 * kZoomJobs * 8);
  }
}

TEST(PriceZoom, SumsAreThoseOfAPassAndCostLessAndLess) {
  for (const DemandKind kind : kDemandKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const PassCase one = ZoomCaseOf(kind);
    const PricePass pass = one.Pass();
    PriceZoom zoom(pass, one.jobs.capacity, FastestVersion());
    const std::vector<Point> points = Points(one.level);
    double before = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      SCOPED_TRACE(i);
      if (i == 40) before = zoom.work();
      const PriceSums sums = zoom(points[i].level, points[i].prices);
      const PriceSums all = SumPass(pass, points[i].level, points[i].prices,
                                    PassVersion::kScalar);
      ExpectSameSums(sums, all, std::abs(all.cost) + 10);
    }
    // Of the last 20 points one jumps away, of 20 passes.
    EXPECT_LT(zoom.work() - before, 9);
  }
}

TEST(PriceZoom, WhatIsExpectedChangesNoSum) {
  const PassCase one = ZoomCaseOf(DemandKind::kProportional);
  const PricePass pass = one.Pass();
  PriceZoom zoom(pass, one.jobs.capacity, FastestVersion());
  const std::vector<double> prices = {2e-4, 1e-3, 4e-4, 5e-4};
  zoom.Expect(1, prices, 0.01);
  ExpectSameSums(zoom(1, prices),
                 SumPass(pass, 1, prices, PassVersion::kScalar), 10);
  // The split and what is left open.
  EXPECT_LT(zoom.work(), 1.3);
}

TEST(PriceZoom, ACertainJobIsSettledAndOneAtATieIsOpen) {
  // Job 0: both types cost the same per step. Job 1: the first is the cheaper.
  PriceJobs jobs = MakePriceJobs(2, {1, 1});
  jobs.Throughput(0, 0) = jobs.Throughput(0, 1) = 2;
  jobs.Throughput(1, 0) = 4;
  jobs.Throughput(1, 1) = 1;
  PriceDemand demand;
  demand.a = {1, 1};
  PadDemand(jobs, &demand);
  const std::vector<double> prices = {0.5, 0.5};
  const std::vector<double> radius = {0.01, 0.01};
  std::vector<uint32_t> open;
  const PriceSettled settled =
      SplitPass(PassOf(jobs, demand), {1, 0.1, prices.data(), radius.data()},
                &open, FastestVersion());
  EXPECT_EQ(open, std::vector<uint32_t>{0});
  EXPECT_DOUBLE_EQ(settled.usage[0][0], 0.25);
  EXPECT_DOUBLE_EQ(settled.usage[0][1], 0.25);
  EXPECT_EQ(settled.usage[1][0], 0);
}

TEST(PriceZoom, AllVersionsSplitAndShareAlike) {
  for (const DemandKind kind : kDemandKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const PassCase one = ZoomCaseOf(kind);
    const PricePass pass = one.Pass();
    const std::vector<double> prices = {2e-4, 1e-3, 4e-4, 5e-4};
    std::vector<double> radius = prices;
    for (double& part : radius) part *= 0.03;
    const PriceBox box = {one.level, 0.01, prices.data(), radius.data()};
    std::vector<uint32_t> open;
    const PriceSettled settled =
        SplitPass(pass, box, &open, PassVersion::kScalar);
    EXPECT_GT(open.size(), 0U);
    EXPECT_LT(open.size(), kZoomJobs / 2);
    std::vector<double> other = prices;
    other[1] *= 1.02;
    const std::vector<PricePoint> points = {
        {one.level, 0.3, prices.data()},
        {one.level * 1.001, 0.7, other.data()}};
    std::vector<double> shares(one.jobs.accelerators.size() * kZoomTypes, 0.0);
    AddShares(pass, points, shares, PassVersion::kScalar);
    for (const PassVersion version :
         {PassVersion::kAvx2, PassVersion::kAvx512}) {
      if (!Supported(version)) continue;
      std::vector<uint32_t> others;
      const PriceSettled sums = SplitPass(pass, box, &others, version);
      EXPECT_EQ(others, open);
      EXPECT_EQ(sums.gain, settled.gain);
      for (size_t j = 0; j < kZoomTypes; ++j) {
        for (size_t k = 0; k < kPriceTerms; ++k) {
          EXPECT_EQ(sums.usage[j][k], settled.usage[j][k]);
        }
      }
      std::vector<double> same(shares.size(), 0.0);
      AddShares(pass, points, same, version);
      EXPECT_EQ(same, shares);
    }
    // The shares are what the passes said.
    for (size_t j = 0; j < kZoomTypes; ++j) {
      double used = 0;
      for (size_t m = 0; m < kZoomJobs; ++m) {
        used += one.jobs.accelerators[m] * shares[m * kZoomTypes + j];
      }
      double expected = 0;
      for (const PricePoint& point : points) {
        expected += point.weight * SumPass(pass, point.level,
                                           {point.prices, kZoomTypes},
                                           PassVersion::kScalar)
                                       .usage[j];
      }
      EXPECT_NEAR(used, expected, 1e-9 * (1 + expected));
    }
  }
}

}  // namespace
}  // namespace gavel::testing
