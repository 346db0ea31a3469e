#include "coordinator/cli/history_table.h"

#include "coordinator/cli/terminal.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using Json = nlohmann::ordered_json;

TEST(HistoryTable, JobsLookAsInSacct) {
  const Json rows = Json::array({{{"job", 7},
                                  {"name", "resnet"},
                                  {"user", "ada"},
                                  {"state", "F"},
                                  {"submitted_s", 1000.0},
                                  {"started_s", 1060.0},
                                  {"ended_s", 0.0},
                                  {"run_s", 3600.0},
                                  {"steps_done", 500},
                                  {"steps_total", 1000},
                                  {"exit_code", 3},
                                  {"signal", 0},
                                  {"accelerator_s", {{"v100", 7200.0}}},
                                  {"reason", "held: 4 failures"}}});
  const std::string text = RenderHistory("jobs", rows, 1000 + 3600 + 125, 400);
  EXPECT_THAT(text, HasSubstr("JOBID"));
  EXPECT_THAT(text, HasSubstr("resnet"));
  EXPECT_THAT(text, HasSubstr("00:02:05"));  // waited
  EXPECT_THAT(text, HasSubstr("01:00:00"));  // ran
  EXPECT_THAT(text, HasSubstr("500/1000"));
  EXPECT_THAT(text, HasSubstr("3:0"));
  EXPECT_THAT(text, HasSubstr("v100=2.00h"));
  EXPECT_THAT(text, HasSubstr("held: 4 failures"));
}

TEST(HistoryTable, OtherTablesHaveTheirColumns) {
  const Json lease = Json::array({{{"job", 1},
                                   {"server", "here"},
                                   {"type", "k80"},
                                   {"from_s", 10.0},
                                   {"to_s", 20.0},
                                   {"steps_from", 5},
                                   {"steps_to", 25},
                                   {"ended", "paused"}}});
  const std::string leases = RenderHistory("leases", lease, 0, 400);
  EXPECT_THAT(leases, HasSubstr("00:00:10"));
  EXPECT_THAT(leases, HasSubstr("20"));
  EXPECT_THAT(leases, HasSubstr("paused"));
  EXPECT_THAT(
      RenderHistory("rounds",
                    Json::array({{{"round", 4}, {"busy", {{"k80", 2.0}}}}}), 0,
                    400),
      HasSubstr("k80=2"));
  EXPECT_THAT(RenderHistory("steps", Json::array(), 0, 400),
              HasSubstr("STEPS/S"));
}

TEST(HistoryTable, ElapsedTimesCountDays) {
  EXPECT_EQ(FormatElapsed(0), "00:00:00");
  EXPECT_EQ(FormatElapsed(3723.9), "01:02:03");
  EXPECT_EQ(FormatElapsed(86400 + 60), "1-00:01:00");
  EXPECT_EQ(FormatElapsed(-5), "00:00:00");
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
