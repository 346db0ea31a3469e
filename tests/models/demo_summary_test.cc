
#include "examples/demo/summary.h"
#include "tests/support/test.h"

namespace gavel::demo {
namespace {

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
    EXPECT_THAT(ParseSummary(text), IsInvalid("no"));
  }
}

TEST(FillThreads, TakesThemFromTheDeclaredAccelerators) {
  ASSERT_OK_AND_ASSIGN(Summary summary, ParseSummary(kSummary));
  AcceleratorInfo first;
  first.uuid = "here-0";
  first.threads = 2;
  AcceleratorInfo second;
  second.uuid = "here-1";
  second.threads = 3;
  ASSERT_OK(FillThreads({second, first}, &summary));
  EXPECT_EQ(summary.jobs[0].accelerators_used[0].threads, 2);
  EXPECT_EQ(summary.jobs[0].accelerators_used[1].threads, 3);
  EXPECT_THAT(FillThreads({first}, &summary), StatusIs(kNotFound, "here-1"));
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

TEST(WasPausedAndMoved, NeedsThemToHaveOneThreadCount) {
  JobSummary job = Job();
  for (UsedAccelerator& used : job.accelerators_used) used.threads = 2;
  EXPECT_TRUE(WasPausedAndMoved(job));
  job.accelerators_used[1].threads = 1;
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
