#include "coordinator/http/http_server.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(DashboardTokens, StandForTheKeyThatTheyWereGivenTo) {
  DashboardTokens tokens;
  const std::string alice = tokens.Make(0, "alice");
  const std::string bob = tokens.Make(0, "bob");
  EXPECT_THAT(alice, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(alice, bob);
  EXPECT_EQ(tokens.Find(1, alice), "alice");
  EXPECT_EQ(tokens.Find(1, bob), "bob");
  EXPECT_EQ(tokens.Find(1, alice.substr(1)), std::nullopt);
  EXPECT_EQ(tokens.Find(1, ""), std::nullopt);
  // Without keys nobody has one, and a token is needed all the same.
  EXPECT_EQ(tokens.Find(1, tokens.Make(0, "")), "");
}

TEST(DashboardTokens, HoldForTwelveHours) {
  DashboardTokens tokens;
  const std::string token = tokens.Make(100, "alice");
  EXPECT_EQ(tokens.Find(100 + 12 * 3600 - 1, token), "alice");
  EXPECT_EQ(tokens.Find(100 + 12 * 3600, token), std::nullopt);
}

// Also where the same key is allowed again later.
TEST(DashboardTokens, EndWithTheirKey) {
  DashboardTokens tokens;
  const std::string alice = tokens.Make(0, "alice");
  const std::string bob = tokens.Make(0, "bob");
  tokens.EndUnless([](const std::string& key) { return key == "bob"; });
  EXPECT_EQ(tokens.Find(1, alice), std::nullopt);
  EXPECT_EQ(tokens.Find(1, bob), "bob");
}

TEST(DashboardTokens, OfOneKeyPushOutItsOwnOldestOnly) {
  DashboardTokens tokens;
  const std::string bob = tokens.Make(0, "bob");
  const std::string first = tokens.Make(0, "alice");
  std::string last;
  bool ends_oldest = true;
  for (size_t i = 1; i < DashboardTokens::kTokensOfOneKeyMax; ++i) {
    last = tokens.Make(1, "alice", &ends_oldest);
    EXPECT_FALSE(ends_oldest);
  }
  EXPECT_EQ(tokens.Find(1, first), "alice");
  last = tokens.Make(1, "alice", &ends_oldest);
  EXPECT_TRUE(ends_oldest);
  EXPECT_EQ(tokens.Find(1, first), std::nullopt);
  EXPECT_EQ(tokens.Find(1, last), "alice");
  EXPECT_EQ(tokens.Find(1, bob), "bob");
}

TEST(DashboardTokens, AreABoundedTable) {
  DashboardTokens tokens;
  const std::string first = tokens.Make(0, "first");
  std::string last;
  for (size_t i = 0; i < DashboardTokens::kTokensMax; ++i) {
    last = tokens.Make(1, StrCat("key ", i));
  }
  EXPECT_EQ(tokens.Find(1, first), std::nullopt);
  EXPECT_NE(tokens.Find(1, last), std::nullopt);
}

}  // namespace
}  // namespace gavel::testing
