#include <random>

#include "coordinator/policy/price_water.h"
#include "gtest/gtest.h"

namespace gavel::testing {

using namespace policy;
namespace {

std::vector<double> At(const Demands& demands, size_t jobs, double level) {
  std::vector<double> amounts(jobs);
  demands.At(level, amounts);
  return amounts;
}

using Amounts = std::vector<double>;

TEST(Demands, FlatOnesRiseByWeightUpToTheirCaps) {
  const Demands demands = Demands::Flat({1, 2, 4}, {1, 1, 8});
  EXPECT_EQ(At(demands, 3, 0.25), (Amounts{0.25, 0.5, 1}));
  EXPECT_EQ(At(demands, 3, 1), (Amounts{1, 1, 4}));
  EXPECT_NEAR(demands.TopLevel(), 2, 1e-9);
  EXPECT_EQ(At(demands, 3, demands.TopLevel()), (Amounts{1, 1, 8}));
}

TEST(Demands, ALoweredCapLeavesTheRestToTheTier) {
  Demands demands({1, 1}, {9, 9}, {{2, {{0, 1}}}});
  demands.LowerCap(0, 1.5);
  demands.Advance(1, At(demands, 2, 1), {false, false});
  EXPECT_EQ(At(demands, 2, 1), (Amounts{1.5, 2.5}));
}

TEST(Demands, InATierWhatOneCannotUseGoesToTheOthers) {
  const Demands demands({1, 1, 2}, {0.5, 9, 9}, {{4, {{0, 1, 2}}}});
  EXPECT_EQ(At(demands, 3, 0.25), (Amounts{0.25, 0.25, 0.5}));
  // 8 in all: 0.5 for the first, thirds of the rest.
  EXPECT_EQ(At(demands, 3, 2), (Amounts{0.5, 2.5, 5}));
}

TEST(Demands, TiersAreServedInOrder) {
  const Demands demands({1, 1}, {2, 3}, {{1, {{1}, {0}}}});
  EXPECT_EQ(At(demands, 2, 2), (Amounts{0, 2}));
  EXPECT_EQ(At(demands, 2, 4), (Amounts{1, 3}));
  EXPECT_EQ(At(demands, 2, 100), (Amounts{2, 3}));
}

TEST(Demands, AfterAStageTheFrozenStayAndTheRestDivideTheirPart) {
  Demands demands({1, 1, 1}, {9, 9, 1}, {{3, {{0, 1, 2}}}});
  demands.Advance(1, Amounts{1, 1, 1}, {true, false, false});
  EXPECT_TRUE(demands.frozen(0));
  EXPECT_FALSE(demands.frozen(1));
  EXPECT_TRUE(demands.frozen(2));  // at its cap
  EXPECT_EQ(demands.unfrozen(), 1u);
  EXPECT_EQ(At(demands, 3, 1), (Amounts{1, 4, 1}));
  demands.Advance(3, Amounts{1, 4, 1}, {false, true, false});
  EXPECT_EQ(demands.unfrozen(), 0u);
  EXPECT_EQ(demands.TopLevel(), 0);
}

TEST(Demands, NeverFallAndAddUpToTheLevelsOfTheirGroups) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0.1, 3);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> rates(6);
    std::vector<double> caps(6);
    for (double& rate : rates) rate = uniform(random);
    for (double& cap : caps) cap = uniform(random);
    const Demands demands(rates, caps,
                          {{1.5, {{0, 1}, {2}}}, {1, {{3, 4, 5}}}});
    Amounts before(6, 0.0);
    for (double level = 0.1; level < demands.TopLevel(); level += 0.1) {
      const Amounts now = At(demands, 6, level);
      for (size_t m = 0; m < 6; ++m) {
        EXPECT_GE(now[m], before[m] - 1e-12);
        EXPECT_LE(now[m], caps[m]);
      }
      EXPECT_NEAR(now[0] + now[1] + now[2],
                  std::min(1.5 * level, caps[0] + caps[1] + caps[2]), 1e-9);
      before = now;
    }
  }
}

// The floor holds until what rises with the level is more, whenever stages end.
TEST(Demands, JobsStayAtTheirFloorsUntilTheLevelIsAboveThem) {
  Demands demands = Demands::Flat({1, 1}, {10, 10}, {3, 0});
  EXPECT_EQ(At(demands, 2, 0), (Amounts{3, 0}));
  EXPECT_EQ(At(demands, 2, 2), (Amounts{3, 2}));
  EXPECT_EQ(At(demands, 2, 4), (Amounts{4, 4}));
  demands.Advance(2, At(demands, 2, 2), {false, false});
  EXPECT_EQ(At(demands, 2, 0.5), (Amounts{3, 2.5}));
  EXPECT_EQ(At(demands, 2, 2), (Amounts{4, 4}));
  demands.Advance(0.5, At(demands, 2, 0.5), {true, false});
  EXPECT_EQ(At(demands, 2, 4), (Amounts{3, 6.5}));
}

}  // namespace
}  // namespace gavel::testing
