#include "coordinator/server/engine_setup.h"

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

TEST(EngineSetup, PlansTheNextRoundALeaseAhead) {
  EngineOptions options;
  options.lease_duration_s = 47;
  SetUpFor(**MakePolicy("fifo"), &options);
  EXPECT_EQ(options.plan_lead_s, 47);
}

}  // namespace
}  // namespace gavel::testing
