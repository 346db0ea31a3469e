#include "coordinator/policy/lp/price_pass.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

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
