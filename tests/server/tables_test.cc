#include "coordinator/server/client_requests.h"
#include "coordinator/server/peer_links.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(PeerTable, KnowsTheLatestPeer) {
  PeerTable<std::string> table(10);
  EXPECT_EQ(table.Find("here"), nullptr);
  table.Saw("here", "a");
  table.Saw("here", "b");
  ASSERT_NE(table.Find("here"), nullptr);
  EXPECT_EQ(*table.Find("here"), "b");
  table.Forget("here");
  EXPECT_EQ(table.Find("here"), nullptr);
}

TEST(PeerTable, IsBoundedAndLetsTheLowestGo) {
  PeerTable<int> table(3);
  for (int key = 1; key <= 5; ++key) table.Saw(key, "peer");
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(table.Find(2), nullptr);
  EXPECT_NE(table.Find(3), nullptr);
  table.Saw(4, "other");  // known: nobody gives way
  EXPECT_NE(table.Find(3), nullptr);
}

TEST(PendingTable, HandlesAreNeverUsedTwice) {
  PendingTable<int> table(10);
  const auto first = table.Add(0, 7);
  ASSERT_TRUE(first.has_value());
  EXPECT_NE(*first, 0u);
  EXPECT_EQ(table.Take(*first), 7);
  EXPECT_EQ(table.Take(*first), std::nullopt);
  EXPECT_NE(table.Add(0, 8), first);
}

TEST(PendingTable, RefusesWhenItIsFull) {
  PendingTable<int> table(2);
  EXPECT_TRUE(table.Add(0, 1).has_value());
  const auto second = table.Add(0, 2);
  EXPECT_FALSE(table.Add(0, 3).has_value());
  table.Take(*second);
  EXPECT_TRUE(table.Add(0, 3).has_value());
}

TEST(PendingTable, GivesUpTheOldestFirst) {
  PendingTable<int> table(10);
  table.Add(1, 1);
  table.Add(2, 2);
  table.Add(3, 3);
  EXPECT_EQ(table.TakeOlderThan(1), std::nullopt);
  EXPECT_EQ(table.TakeOlderThan(3), 1);
  EXPECT_EQ(table.TakeOlderThan(3), 2);
  EXPECT_EQ(table.TakeOlderThan(3), std::nullopt);
}

}  // namespace
}  // namespace gavel::testing
