#include "coordinator/workload/trace_generator.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

std::vector<size_t> Draw(PythonRandom& random, size_t size, int count) {
  std::vector<size_t> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(random.Below(size));
  return drawn;
}

// All numbers below are those of CPython 3.11.
struct Golden {
  uint64_t seed;
  double first;
  double second;
  double third;
  std::vector<size_t> below_26;
  size_t below_1000;
  size_t below_2_40;
  size_t below_2_33_less_1;
  double uniform;  // (-2.5, 7)
};

TEST(PythonRandom, DrawsTheNumbersOfPython) {
  const std::vector<Golden> all = {
      {0,
       0x1.b0580f98a7dbep-1,
       0x1.84129978f9c1ap-1,
       0.420571580830845,
       {8, 16, 15, 12, 25, 9, 15, 11},
       597,
       619073466650,
       4895170863,
       -1.5991077469698687},
      {1,
       0x1.132d8f91b7584p-3,
       0x1.b1e2d5b3584f8p-1,
       0.763774618976614,
       {8, 3, 15, 24, 14, 15, 20, 12},
       807,
       207060179245,
       2095328386,
       5.986511904297533},
      {42,
       0x1.4762f307200c5p-1,
       0x1.99c6b5eeb2060p-6,
       0.27502931836911926,
       {7, 4, 23, 3, 21, 23, 17, 2},
       604,
       70531617177,
       127978094,
       -0.42293923936576805},
      // Where a seed begins to have two digits of 32 bits.
      {4294967295,
       0x1.454d9227a7013p-1,
       0x1.a0274a3720bf8p-3,
       0.6073666030347188,
       {9, 19, 10, 12, 21, 22, 8, 11},
       918,
       904078697522,
       276052667,
       6.7266129449162015},
      {4294967296,
       0x1.ced31cb3df170p-4,
       0x1.abdb5477a4f26p-2,
       0.0166763664992291,
       {19, 25, 24, 10, 17, 14, 0, 4},
       77,
       953297164300,
       2152139213,
       0.7556115202752745},
      {18446744073709551615U,
       0x1.659799fd7f980p-6,
       0x1.5a35a94f333d8p-2,
       0.21196748656082065,
       {19, 3, 11, 24, 23, 22, 23, 1},
       754,
       1033078744380,
       7122883700,
       6.522710001045837},
  };
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.seed);
    PythonRandom random(golden.seed);
    EXPECT_EQ(random.Random(), golden.first);
    EXPECT_EQ(random.Random(), golden.second);
    EXPECT_EQ(random.Random(), golden.third);
    EXPECT_EQ(Draw(random, 26, 8), golden.below_26);
    EXPECT_EQ(random.Below(1000), golden.below_1000);
    EXPECT_EQ(random.Below(size_t{1} << 40), golden.below_2_40);
    EXPECT_EQ(random.Below((size_t{1} << 33) - 1), golden.below_2_33_less_1);
    EXPECT_EQ(random.Uniform(-2.5, 7), golden.uniform);
  }
}

// Each state of the generator gives 624 words.
TEST(PythonRandom, GoesOnThroughManyStates) {
  PythonRandom random(7);
  double last = 0;
  for (int i = 0; i < 2000; ++i) last = random.Random();
  EXPECT_EQ(last, 0.034373654913951945);
  EXPECT_THAT(Draw(random, 1, 1), ElementsAre(0));
  EXPECT_THAT(Draw(random, 2, 1), ElementsAre(1));
  EXPECT_EQ(random.Random(), 0.6282493437994602);
}

TEST(PythonRandom, CopiesGoTheirOwnWay) {
  PythonRandom random(3);
  PythonRandom copy = random;
  EXPECT_EQ(Draw(random, 100, 5), Draw(copy, 100, 5));
}

}  // namespace
}  // namespace gavel
