#include "coordinator/server/submission.h"

#include "core/text.h"
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

std::map<JobId, Job> JobsNamed(const std::vector<std::string>& names) {
  std::map<JobId, Job> jobs;
  for (const std::string& name : names) {
    const JobId id(jobs.size() + 1);
    jobs[id].id = id;
    jobs[id].spec.name = name;
  }
  return jobs;
}

TEST(Submission, RunsInTheDirectoryOfItsFile) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(kPlain), "/state", {}));
  EXPECT_EQ(spec.working_directory, "/home/ann/jobs");
  EXPECT_EQ(spec.checkpoint_directory, "/state/checkpoints/a");
}

TEST(Submission, RelativePathsAreThoseOfItsFile) {
  const std::string toml = StrCat(kPlain,
                                  "working_directory = \"../bin/\"\n"
                                  "checkpoint_directory = \"saved\"\n");
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(toml), "/state", {}));
  EXPECT_EQ(spec.working_directory, "/home/ann/bin");
  EXPECT_EQ(spec.checkpoint_directory, "/home/ann/jobs/saved");
}

TEST(Submission, AbsolutePathsStay) {
  const std::string toml =
      StrCat(kPlain, "working_directory = \"/opt/train\"\n");
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       ReadSubmission(Request(toml), "/state", {}));
  EXPECT_EQ(spec.working_directory, "/opt/train");
}

TEST(Submission, AReusedNameDoesNotReuseCheckpoints) {
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      ReadSubmission(Request(kPlain), "/state", JobsNamed({"a", "b", "a"})));
  EXPECT_EQ(spec.checkpoint_directory, "/state/checkpoints/a.3");
}

TEST(Submission, AnUnknownKeyIsNamedWithItsPlace) {
  EXPECT_THAT(
      ReadSubmission(Request(StrCat(kPlain, "colour = 1\n")), "/state", {}),
      StatusIs(kInvalidArgument, "job.toml:3:"));
}

TEST(Submission, ADirectoryThatIsNotAbsoluteIsRefused) {
  SubmitRequest request = Request(kPlain);
  request.directory = "jobs";
  EXPECT_THAT(ReadSubmission(request, "/state", {}),
              StatusIs(kInvalidArgument, "not absolute"));
}

}  // namespace
}  // namespace gavel::testing
