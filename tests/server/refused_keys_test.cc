#include "coordinator/server/gatekeeper.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool Unknown(const std::string&) { return false; }

TEST(RefusedKeys, AKeyThatIsKnownAMomentLaterIsNotToldOf) {
  RefusedKeys refused;
  const auto start = RefusedKeys::Clock::now();
  EXPECT_FALSE(refused.Note(start, "worker", "10.0.0.1", ""));
  EXPECT_TRUE(refused.Take(start, Unknown).empty());
  const auto known = [](const std::string& key) { return key == "worker"; };
  EXPECT_TRUE(refused.Take(start + seconds(2), known).empty());
  EXPECT_TRUE(refused.Take(start + seconds(4), Unknown).empty());
}

TEST(RefusedKeys, AnUnknownKeyIsToldOfOnceAMinute) {
  RefusedKeys refused;
  const auto start = RefusedKeys::Clock::now();
  int told = 0;
  uint64_t attempts = 0;
  for (int i = 0; i < 600; ++i) {
    const auto now = start + i * milliseconds(200);
    EXPECT_EQ(refused.Note(now, "key", "10.0.0.1", "alice (user)"), i >= 5);
    for (const RefusedKey& key : refused.Take(now, Unknown)) {
      ++told;
      attempts += key.attempts;
      EXPECT_EQ(key.was, "alice (user)");
      EXPECT_EQ(key.address, "10.0.0.1");
    }
  }
  EXPECT_EQ(told, 2);
  EXPECT_GT(attempts, 300U);
}

TEST(RefusedKeys, AfterARestartUnknownKeysAreToldOfOnceAgentsCouldReturn) {
  const auto start = RefusedKeys::Clock::now();
  RefusedKeys refused;
  refused.ExpectWorkersUntil(start + seconds(20));
  refused.Note(start, "worker", "10.0.0.1", "");
  refused.Note(start, "gone", "10.0.0.1", "");
  refused.Note(start, "revoked", "10.0.0.1", "alice (user)");
  ASSERT_EQ(refused.Take(start + seconds(2), Unknown).size(), 1U);
  EXPECT_TRUE(refused.Take(start + seconds(19), Unknown).empty());
  const auto known = [](const std::string& key) { return key == "worker"; };
  const auto told = refused.Take(start + seconds(20), known);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].key, "gone");
}

TEST(RefusedKeys, ManyKeysTakeBoundedRoom) {
  RefusedKeys refused;
  const auto start = RefusedKeys::Clock::now();
  for (int i = 0; i < 10'000; ++i) {
    refused.Note(start + milliseconds(i % 100), StrCat("key-", i), "", "");
  }
  EXPECT_EQ(refused.Take(start + seconds(5), Unknown).size(),
            RefusedKeys::kKeysMax);
}

}  // namespace
}  // namespace gavel
