#include "coordinator/server/submission.h"

#include <filesystem>

#include "core/text.h"
#include "tests/server/temporary_folder.h"
#include "tests/support/status_matchers.h"

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
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(kPlain), "/state", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/home/ann/jobs");
  EXPECT_EQ(spec.checkpoint_directory, "/state/checkpoints/7-a");
}

TEST(Submission, RelativePathsAreThoseOfItsFile) {
  const std::string toml = StrCat(kPlain,
                                  "working_directory = \"../bin/\"\n"
                                  "checkpoint_directory = \"saved\"\n");
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(toml), "/state", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/home/ann/bin");
  EXPECT_EQ(spec.checkpoint_directory, "/home/ann/jobs/saved");
}

TEST(Submission, AbsolutePathsStay) {
  const std::string toml =
      StrCat(kPlain, "working_directory = \"/opt/train\"\n");
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(toml), "/state", JobId(7)));
  EXPECT_EQ(spec.working_directory, "/opt/train");
}

TEST(Submission, CheckpointsOfAnEarlierJournalAreNotReused) {
  const TemporaryFolder folder;
  for (const char* left : {"7-a", "7-a.2"}) {
    std::filesystem::create_directories(
        StrCat(folder.path(), "/checkpoints/", left));
  }
  EXPECT_EQ(DefaultCheckpointDirectory(folder.path(), "a", JobId(7)),
            folder.path() + "/checkpoints/7-a.3");
  EXPECT_EQ(DefaultCheckpointDirectory(folder.path(), "a", JobId(8)),
            folder.path() + "/checkpoints/8-a");
}

TEST(Submission, AnUnknownKeyIsNamedWithItsPlace) {
  EXPECT_THAT(ReadSubmission(Request(StrCat(kPlain, "colour = 1\n")), "/state",
                             JobId(7)),
              StatusIs(kInvalidArgument, "job.toml:3:"));
}

TEST(Submission, ADirectoryThatIsNotAbsoluteIsRefused) {
  SubmitRequest request = Request(kPlain);
  request.directory = "jobs";
  EXPECT_THAT(ReadSubmission(request, "/state", JobId(7)),
              StatusIs(kInvalidArgument, "not absolute"));
}

}  // namespace
}  // namespace gavel::testing
