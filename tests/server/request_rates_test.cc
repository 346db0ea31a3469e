#include <cstddef>

#include "coordinator/server/limits.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(RequestRates, AllowABurstThenSoManyASecondOfEach) {
  RequestRates rates(20);
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(rates.Take(5, "alice"));
  EXPECT_FALSE(rates.Take(5, "alice"));
  EXPECT_TRUE(rates.Take(5, "bob"));
  EXPECT_FALSE(rates.Take(5.04, "alice"));
  EXPECT_TRUE(rates.Take(5.1, "alice"));
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += rates.Take(6 + i * 0.01, "alice");
  EXPECT_NEAR(taken, 20 * 11, 2);
  // A user that was away for long has one burst, not more. A clock that stands
  // still, or goes back, gives nothing.
  taken = 0;
  for (int i = 0; i < 1000; ++i) taken += rates.Take(1e6, "alice");
  EXPECT_EQ(taken, 200);
  EXPECT_FALSE(rates.Take(0, "alice"));
  EXPECT_TRUE(RequestRates(0).Take(0, "alice"));
}

TEST(RequestRates, WhatIsSpentBeyondTheBurstIsOwed) {
  RequestRates rates(10);
  EXPECT_EQ(rates.WaitFor(0, "alice"), 0);
  rates.Spend(0, "alice", 150);  // a burst is 100
  EXPECT_EQ(rates.WaitFor(0, "alice"), 5);
  EXPECT_EQ(rates.WaitFor(0, "bob"), 0);
  EXPECT_EQ(rates.WaitFor(4, "alice"), 1);
  EXPECT_EQ(rates.WaitFor(5, "alice"), 0);
  EXPECT_FALSE(rates.Take(5.05, "alice"));
  EXPECT_TRUE(rates.Take(5.06, "alice", 0.5));
}

TEST(RequestRates, TheTableOfBucketsDoesNotGrow) {
  RequestRates rates(1);
  for (int i = 0; i < 10; ++i) rates.Take(0, "alice");
  EXPECT_FALSE(rates.Take(0, "alice"));
  for (size_t i = 0; i < RequestRates::kBucketsMax; ++i) {
    EXPECT_TRUE(rates.Take(0, StrCat("user-", i)));
  }
  EXPECT_TRUE(rates.Take(0, "alice"));  // forgotten
}

}  // namespace
}  // namespace gavel
