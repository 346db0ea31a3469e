#include "core/radix_sort.h"

#include <compare>
#include <cstddef>
#include <limits>
#include <random>
#include <span>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

struct Keyed {
  uint64_t key = 0;
  uint64_t tie = 0;
  friend auto operator<=>(const Keyed&, const Keyed&) = default;
};

TEST(RadixSort, SortsByKeyAndThenByTheRest) {
  std::mt19937_64 random(1);
  for (const size_t size : {0, 1, 1023, 1024, 5000, 40'000}) {
    for (const uint64_t mask :
         {~uint64_t{0}, uint64_t{0}, uint64_t{0xff}, uint64_t{0xf} << 60,
          (uint64_t{1} << 33) - 1, uint64_t{0xff} << 20}) {
      std::vector<Keyed> entries(size);
      for (Keyed& entry : entries) entry = {random() & mask, random()};
      std::vector<Keyed> expected = entries;
      std::sort(expected.begin(), expected.end());
      RadixSort(std::span(entries), std::less<>());
      ASSERT_TRUE(entries == expected) << size << " " << mask;
    }
  }
}

TEST(OrderedBits, OrdersAsNumbersDo) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {-inf,   -1e300, -1, -1e-300, 0,
                                      1e-300, 1,      2,  1e300,   inf};
  for (size_t i = 1; i < values.size(); ++i) {
    EXPECT_LT(OrderedBits(values[i - 1]), OrderedBits(values[i]));
  }
  EXPECT_EQ(OrderedBits(-0.0), OrderedBits(0.0));
}

}  // namespace
}  // namespace gavel::testing
