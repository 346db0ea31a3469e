#include "coordinator/server/coordinator_server.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(EngineSetup, PlansTheNextRoundALeaseAhead) {
  EngineOptions options;
  options.lease_duration_s = 47;
  SetUpFor(**MakePolicy("fifo"), &options);
  EXPECT_EQ(options.plan_lead_s, 47);
}

// Without a limit a round's new workers connect all at once, and for seconds
// nobody's lease is renewed in time.
TEST(EngineSetup, SpreadsLaunches) {
  EngineOptions options;
  SetUpFor(**MakePolicy("fifo"), &options);
  EXPECT_EQ(options.launches_per_s, kLaunchesPerSecond);
}

}  // namespace
}  // namespace gavel::testing
