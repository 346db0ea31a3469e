#include "coordinator/cli/history_table.h"

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

}  // namespace
}  // namespace gavel
