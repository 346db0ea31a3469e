#include "coordinator/mechanism/free_places.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

// Servers of 1 to 4 accelerators of two types.
// Whatever came and went, it gives what one gives that was just made.
TEST(FreePlaces, KeptOnesGiveTheSamePlacesAsFreshOnes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Cluster cluster = MixedServers(12, random);
    const size_t count = cluster.accelerators().size();
    std::vector<uint8_t> given(count, 0);
    FreePlaces kept(cluster, given);
    for (int change = 0; change < 200; ++change) {
      const size_t i = random() % count;
      const AcceleratorId id(i + 1);
      given[i] == 0 ? kept.Claim(id) : kept.Release(id);
      given[i] ^= 1;
      EXPECT_EQ(kept.IsFree(id), given[i] == 0);
      FreePlaces fresh(cluster, given);
      ASSERT_EQ(kept.Counts(), fresh.Counts());
      const size_t type = random() % 2;
      const size_t wanted = 1 + random() % 5;
      const std::string home = StrCat("server-", random() % 14);
      const std::vector<AcceleratorId> own = {
          AcceleratorId(1 + random() % count)};
      const std::vector<AcceleratorId> places =
          kept.Take(cluster, type, wanted, home, own);
      ASSERT_EQ(places, fresh.Take(cluster, type, wanted, home, own))
          << "seed " << seed << " change " << change;
      for (const AcceleratorId place : places) {
        EXPECT_FALSE(kept.IsFree(place));
        kept.Release(place);
      }
    }
  }
}

TEST(FreePlaces, AnAcceleratorThatIsNotUsableIsNeverGiven) {
  Cluster cluster = MakeCluster({{"a", {"gpu", "gpu"}}, {"b", {"gpu"}}});
  cluster.MarkLost(AcceleratorId(1));
  FreePlaces places(cluster, std::vector<uint8_t>(3, 0));
  EXPECT_EQ(places.Counts(), std::vector<int>{2});
  EXPECT_EQ(places.Take(cluster, 0, 2, "", {}), Ids({2, 3}));
  EXPECT_TRUE(places.Take(cluster, 0, 1, "", {}).empty());
}

}  // namespace
}  // namespace gavel::testing
