#include "coordinator/cli/job_commands.h"
#include "core/messages.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

QueueRow JobIn(const std::string& state, const std::string& code) {
  QueueRow job;
  job.id = 3;
  job.name = "lm";
  job.state = state;
  job.code = code;
  job.reason = "held: for a test";
  return job;
}

TEST(ExitCodeOfJob, IsThatOfItsLastFailureUnlessSomebodyEndedIt) {
  EXPECT_EQ(ExitCodeOfJob(JobIn("CD", "finished")), 0);
  QueueRow failed = JobIn("F", "held_failures");
  failed.exit = ExitRow{3, 7, std::nullopt};
  EXPECT_EQ(ExitCodeOfJob(failed), 7);
  failed.exit = ExitRow{3, std::nullopt, 9};
  EXPECT_EQ(ExitCodeOfJob(failed), 137);
  EXPECT_EQ(ExitCodeOfJob(JobIn("F", "held_launch")), 1) << "it never ran";

  // Its earlier failures are not why it ended.
  for (const auto& [state, code] :
       {std::pair("CA", "cancelled"), std::pair("F", "held_by_user"),
        std::pair("F", "held_time_limit")}) {
    QueueRow ended = JobIn(state, code);
    ended.exit = ExitRow{1, 7, std::nullopt};
    EXPECT_EQ(ExitCodeOfJob(ended), kExitEvicted) << code;
  }
}

TEST(OutcomeText, NamesTheJobAndWhy) {
  EXPECT_EQ(OutcomeText(JobIn("CD", "finished")), "Job 3 (lm) finished");
  EXPECT_EQ(OutcomeText(JobIn("F", "held_launch")),
            "Job 3 (lm) is held: for a test");
  EXPECT_EQ(OutcomeJson(JobIn("CA", "cancelled"))["exit_code"], 75);
}

}  // namespace
}  // namespace gavel
