#include "coordinator/server/client_requests.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(WireReport, TellsWhatHasGrownOnceAMinute) {
  WireReport report;
  WireCounts counts;
  EXPECT_FALSE(report.Next(0, counts).has_value());
  counts.frames_dropped = 7;
  const auto first = report.Next(1, counts);
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(*first, HasSubstr("frames dropped 7 (7 new)"));
  EXPECT_FALSE(report.Next(100, counts).has_value());
  counts.connections_cut = 2;
  EXPECT_FALSE(report.Next(60, counts).has_value());
  const auto second = report.Next(61, counts);
  ASSERT_TRUE(second.has_value());
  EXPECT_THAT(*second, HasSubstr("frames dropped 7 (0 new)"));
  EXPECT_THAT(*second, HasSubstr("connections cut 2 (2 new)"));
}

// A port that is looked at now and then is no news, a flood is.
TEST(WireReport, TellsOfHandshakesThatFailOnceThereAreMany) {
  WireReport report;
  WireCounts counts;
  counts.handshakes_failed = WireReport::kHandshakesToTell - 1;
  EXPECT_FALSE(report.Next(0, counts).has_value());
  ++counts.handshakes_failed;
  const auto line = report.Next(1, counts);
  ASSERT_TRUE(line.has_value());
  EXPECT_THAT(*line, HasSubstr("handshakes failed 100 (100 new)"));
}

}  // namespace
}  // namespace gavel
