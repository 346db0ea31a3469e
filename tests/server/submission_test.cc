#include "coordinator/server/incoming.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

SubmitRequest Request(std::string toml) {
  SubmitRequest request;
  request.source = "job.toml";
  request.toml = std::move(toml);
  request.directory = "/home/ann/jobs";
  return request;
}

constexpr char kPlain[] = "name = \"a\"\ncommand = [\"./train\"]\n";

TEST(Submission, RunsInTheDirectoryOfItsFile) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ReadSubmission(Request(kPlain), "/state", "5eed", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/home/ann/jobs");
  EXPECT_EQ(spec.checkpoint_directory, "/state/checkpoints/5eed-7-a");
}

TEST(Submission, RelativePathsAreThoseOfItsFile) {
  const std::string toml = StrCat(kPlain,
                                  "working_directory = \"../bin/\"\n"
                                  "checkpoint_directory = \"saved\"\n");
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ReadSubmission(Request(toml), "/state", "5eed", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/home/ann/bin");
  EXPECT_EQ(spec.checkpoint_directory, "/home/ann/jobs/saved");
}

TEST(Submission, AbsolutePathsStay) {
  const std::string toml =
      StrCat(kPlain, "working_directory = \"/opt/train\"\n");
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ReadSubmission(Request(toml), "/state", "5eed", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/opt/train");
}

TEST(Submission, CheckpointsOfAnEarlierJournalAreNotReused) {
  EXPECT_EQ(DefaultCheckpointDirectory("/state", "5eed", "a", JobId(7)),
            "/state/checkpoints/5eed-7-a");
  EXPECT_NE(DefaultCheckpointDirectory("/state", "5eed", "a", JobId(7)),
            DefaultCheckpointDirectory("/state", "beef", "a", JobId(7)));
}

TEST(Submission, AnUnknownKeyIsNamedWithItsPlace) {
  EXPECT_THAT(ReadSubmission(Request(StrCat(kPlain, "colour = 1\n")), "/state",
                             "5eed", JobId(7)),
              IsInvalid("job.toml:3:"));
}

TEST(Submission, ANameThatCommandsWouldMistakeIsRefused) {
  const auto read = [](const std::string& name) {
    return ReadSubmission(
        Request(StrCat("name = \"", name, "\"\ncommand = [\"./train\"]\n")),
        "/state", "5eed", JobId(7));
  };
  EXPECT_THAT(read("12"), IsInvalid("\"job-12\""));
  EXPECT_THAT(read("42_7"), IsInvalid("the id of a job"));
  EXPECT_THAT(read("-f"), IsInvalid("an option"));
  EXPECT_OK(read("12a").status());
  EXPECT_OK(read("a-1").status());
}

TEST(Submission, VariablesOfTheAgentAreRefused) {
  const auto read = [](const std::string& name) {
    return ReadSubmission(
        Request(StrCat(kPlain, "[environment]\n", name, " = \"1\"\n")),
        "/state", "5eed", JobId(7));
  };
  EXPECT_THAT(read("GAVEL_PROCESS"), IsInvalid("can't set GAVEL_PROCESS"));
  EXPECT_THAT(read("GAVEL_RANK"), IsInvalid("GAVEL_RANK"));
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "GAVEL_WORLD_SIZE_MIN", "GAVEL_WORLD_SIZE_MAX"}) {
    EXPECT_THAT(read(name), IsInvalid(StrCat("can't set ", name)));
  }
  EXPECT_OK(read("MASTER_ADDR").status());
  EXPECT_OK(read("GAVEL_CHECKPOINT_INTERVAL_S").status());
  EXPECT_OK(read("GAVEL_FAILURE_INTERVAL_S").status());
}

TEST(Submission, ADirectoryThatIsNotAbsoluteIsRefused) {
  SubmitRequest request = Request(kPlain);
  request.directory = "jobs";
  EXPECT_THAT(ReadSubmission(request, "/state", "5eed", JobId(7)),
              IsInvalid("not absolute"));
}

}  // namespace
}  // namespace gavel::testing
