#include "coordinator/cli/terminal.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressBar, TellsTheTimeLeft) {
  const std::string bar = RenderBar("sweep", 0.25, 60, "3/12 runs", 100);
  EXPECT_THAT(bar, AllOf(HasSubstr("sweep ["), HasSubstr("25 %"),
                         HasSubstr("3 min 00 s left"), HasSubstr("3/12 runs")));
  EXPECT_EQ(bar.back(), '\n');
  EXPECT_THAT(RenderBar("sweep", 0, 60, "", 100), Not(HasSubstr("left")));
  EXPECT_LE(RenderBar("sweep", 0.5, 60, std::string(200, 'x'), 60).size(), 64);
}

TEST(WallTime, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(*ParseWallTime("90s", 1000), 910);
  EXPECT_EQ(*ParseWallTime("2h", 10000), 2800);
  EXPECT_EQ(*ParseWallTime("1d", 100000), 13600);
  EXPECT_EQ(*ParseTimeAhead("2h", 10000), 17200);
  EXPECT_NE(
      ParseTimeAhead("2x", 0).status().message().find("two hours from now"),
      std::string::npos);
  const double day = *ParseWallTime("2026-11-21", 0);
  EXPECT_EQ(*ParseWallTime("2026-11-21T18:30", 0), day + 18.5 * 3600);
  EXPECT_EQ(*ParseWallTime("2026-11-21 18:30:05", 0), day + 18.5 * 3600 + 5);
  EXPECT_EQ(FormatWallTime(day + 61), "2026-11-21T00:01:01");
  EXPECT_EQ(FormatWallTime(0), "-");
  for (const char* bad :
       {"", "soon", "12", "-3h", "2026-13-01", "2026-11-21x"}) {
    EXPECT_THAT(ParseWallTime(bad, 0), testing::IsInvalid("is no time")) << bad;
  }
}

}  // namespace
}  // namespace gavel
