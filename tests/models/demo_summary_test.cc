#include <string>

#include "examples/demo/summary.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace gavel::demo {
namespace {

using ::testing::HasSubstr;
using testing::kInvalidArgument;
using testing::StatusIs;

constexpr char kSummary[] = R"({"rounds": 12, "jobs": [{
    "name": "digits", "state": "finished", "steps": 900,
    "scalars": {"loss": 0.25}, "pauses": 3, "moves": 2, "pausing_s": 0.5,
    "accelerators_used": [{"uuid": "here-0", "type": "cpu_fast"},
                          {"uuid": "here-1", "type": "cpu_fast"}],
    "final_generation": {"epoch": 7, "step": 900},
    "checkpoint_directory": "/state/digits"}]})";

JobSummary Job() { return ParseSummary(kSummary)->jobs.front(); }

TEST(ParseSummary, ReadsEveryField) {
  ASSERT_OK_AND_ASSIGN(const Summary summary, ParseSummary(kSummary));
  EXPECT_EQ(summary.rounds, 12);
  ASSERT_EQ(summary.jobs.size(), 1);
  const JobSummary& job = summary.jobs.front();
  EXPECT_EQ(job.name, "digits");
  EXPECT_EQ(job.state, "finished");
  EXPECT_EQ(job.steps, 900);
  EXPECT_EQ(job.scalars.at("loss"), 0.25);
  EXPECT_EQ(job.final_generation, (Generation{7, 900}));
  EXPECT_EQ(job.checkpoint_directory, "/state/digits");
  EXPECT_THAT(Render(summary), HasSubstr("0.2500"));
}

TEST(ParseSummary, RefusesWhatIsNoSummary) {
  for (const char* text : {"", "[]", R"({"rounds": 1, "jobs": [{}]})"}) {
    EXPECT_THAT(ParseSummary(text), StatusIs(kInvalidArgument, "no"));
  }
}

TEST(WasPausedAndMoved, NeedsTwoAcceleratorsOfOneType) {
  EXPECT_TRUE(WasPausedAndMoved(Job()));
  JobSummary job = Job();
  job.accelerators_used[1].type = "cpu_slow";
  EXPECT_FALSE(WasPausedAndMoved(job));
  job = Job();
  job.accelerators_used.pop_back();
  EXPECT_FALSE(WasPausedAndMoved(job));
}

TEST(WasPausedAndMoved, NeedsBoth) {
  JobSummary job = Job();
  job.pauses = 0;
  EXPECT_FALSE(WasPausedAndMoved(job));
  job = Job();
  job.moves = 0;
  EXPECT_FALSE(WasPausedAndMoved(job));
}

}  // namespace
}  // namespace gavel::demo
