#include "coordinator/policy/price_pass.h"

#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
namespace {

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
  const PriceSums low = SumPass(pass, 1.5, prices);
  EXPECT_DOUBLE_EQ(low.usage[1], 1);
  EXPECT_DOUBLE_EQ(low.cost, 2);
  EXPECT_DOUBLE_EQ(low.slope, 2 * 2.0 / 3);
  const PriceSums high = SumPass(pass, 3.5, prices);
  EXPECT_DOUBLE_EQ(high.usage[0], 0);
  EXPECT_DOUBLE_EQ(high.usage[1], 1);
  EXPECT_DOUBLE_EQ(high.usage[2], 1);
  EXPECT_DOUBLE_EQ(high.cost, 8);
  EXPECT_DOUBLE_EQ(high.slope, 2 * 4.0);
}

}  // namespace
}  // namespace gavel::testing
