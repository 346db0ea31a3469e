// Mistakes of users: the error of each names the remedy, and nothing else is
// disturbed.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "core/text.h"
#include "gavel_paths.h"
#include "runtime/files/files.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

class BadInputTest : public GavelTest {
 protected:
  void SetUp() override { WriteCluster(2, 10, 5); }
};

TEST_F(BadInputTest, NobodyListensIsSaidWithinFiveSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const Ended queue = Run({"queue", "--coordinator", "127.0.0.1:1"});
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  EXPECT_EQ(queue.exit_code, 1);
  EXPECT_LT(took.count(), 5);
  EXPECT_THAT(queue.errors,
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("gavel coordinator"),
                    HasSubstr("GAVEL_COORDINATOR")));
}

TEST_F(BadInputTest, FewDescriptorsAreSaidBeforeTheyAreUsedUp) {
  Process coordinator(
      {"/usr/bin/prlimit", "--nofile=500:500", GAVEL_BINARY_DIR "/gavel",
       "coordinator", "--listen", "tcp://127.0.0.1:0", "--state", state()},
      Path("few"));
  EXPECT_NE(EndpointOf(coordinator), "");
  EXPECT_THAT(coordinator.errors(),
              AllOf(HasSubstr("500 files"), HasSubstr("LimitNOFILE")));
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(coordinator.Wait(), 0);
}

TEST_F(BadInputTest, AnUnknownKeyIsPointedAt) {
  const Ended local = RunLocal({WriteJob("job", {}, "scale_facto = 2\n")});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors,
              AllOf(HasSubstr("job.toml:3:"), HasSubstr("scale_facto"),
                    HasSubstr("scale_factor")));
  EXPECT_THAT(local.output, IsEmpty());
}

TEST_F(BadInputTest, CheckpointTakesJobsOrACommandForFiles) {
  const Ended nothing = Run({"checkpoint"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.errors, HasSubstr("jobs is required"));
  // `checkpoint` asks the coordinator about a job, while `checkpoint export`
  // asks no coordinator.
  EXPECT_THAT(Run({"checkpoint", "job", "--coordinator", "127.0.0.1:1"}).errors,
              HasSubstr("127.0.0.1:1"));
  const Ended no_files = Run({"checkpoint", "export", folder()});
  EXPECT_EQ(no_files.exit_code, 2);
  EXPECT_THAT(no_files.errors, HasSubstr("--pytorch"));
  const Ended exported =
      Run({"checkpoint", "export", folder(), "--pytorch", Path("to")});
  EXPECT_EQ(exported.exit_code, 1);
  EXPECT_THAT(exported.errors, HasSubstr("has no committed checkpoint"));
  const Ended imported =
      Run({"checkpoint", "import", folder(), "--pytorch", Path("from")});
  EXPECT_EQ(imported.exit_code, 1);
  EXPECT_THAT(imported.errors, HasSubstr(Path("from") + "/checkpoint.json"));
  const Ended list = Run({"checkpoint", "list", folder()});
  EXPECT_EQ(list.exit_code, 0) << list.errors;
  EXPECT_THAT(list.output, HasSubstr("GENERATION"));
}

TEST_F(BadInputTest, CheckpointsAreHandedToAJobThatNobodyInUseLoses) {
  const std::vector<std::string> adopt = {"checkpoint", "adopt", folder(),
                                          "digits"};
  const Ended empty = Run(adopt);
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.errors, HasSubstr("has no checkpoints"));
  std::filesystem::create_directories(folder() +
                                      "/generation-000000000001-000000000010");
  {
    const FileLock user = *FileLock::Take(folder() + "/.in-use");
    const Ended refused = Run(adopt);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, HasSubstr("hold or cancel that job"));
  }
  FileSystem& disk = FileSystem::Posix();
  EXPECT_OK(ClaimDirectory(disk, folder(), {"5eed", 1, "lm"}));
  const Ended adopted = Run(adopt);
  EXPECT_EQ(adopted.exit_code, 0) << adopted.errors;
  EXPECT_THAT(adopted.output,
              HasSubstr("job 'digits', no longer of job 'lm' (1 of"));
  EXPECT_OK(ClaimDirectory(disk, folder(), {"cafe", 7, "digits"}));
  EXPECT_EQ(Run({"checkpoint", "adopt", folder(), "a b"}).exit_code, 1);
  EXPECT_EQ(Run({"checkpoint", "adopt", Path("no"), "lm"}).exit_code, 1);
}

TEST_F(BadInputTest, AProgramInThePlaceOfAJobFileNeedsTwoDashes) {
  Write("train.sh", "#!/bin/sh\nexit 0\n");
  for (const std::string& program :
       {Path("train.sh"), std::string("/bin/sh")}) {
    const Ended ended = Run({"submit", program});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.errors,
                HasSubstr(StrCat("`gavel submit -- ", program, " ARGUMENTS")));
  }
}

TEST_F(BadInputTest, AMissingFileIsNamed) {
  const Ended local = RunLocal({Path("nothing.toml")});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors, AllOf(HasSubstr(Path("nothing.toml")),
                                  HasSubstr("no such file")));
  const Ended agent = Run({"agent", "--cluster", Path("none.toml")});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_THAT(agent.errors, HasSubstr(Path("none.toml")));
}

TEST_F(BadInputTest, AGpuThatIsDeclaredAndNotThereIsAnErrorOfTheFile) {
  for (const char* gpu : {"device = \"cuda:99\"", "uuid = \"GPU-deadbeef\""}) {
    const std::string file =
        Write("gpus.toml", StrCat("[[server]]\nname = \"here\"\n"
                                  "[[server.accelerator]]\ntype = \"a\"\n",
                                  gpu, "\n"));
    const Ended agent = Run({"agent", "--cluster", file, "--jobs-as-root"});
    EXPECT_EQ(agent.exit_code, 2);
    EXPECT_THAT(agent.errors, HasSubstr(file + ": server \"here\": "));
  }
}

TEST_F(BadInputTest, TwoFilesWithOneNameAreRefused) {
  const std::string first = WriteJob("job", {});
  const std::string second = Write("other.toml", ReadText(first));
  const Ended local = RunLocal({first, second});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors,
              AllOf(HasSubstr("other.toml"), HasSubstr("\"job\" is taken by"),
                    HasSubstr("job.toml")));
}

TEST_F(BadInputTest, ANameThatAJobHasIsRefused) {
  const std::string job = WriteJob("job", {"--steps", "100000"});
  const auto local = StartLocal({job});
  const std::string endpoint = EndpointOf(*local);
  ASSERT_TRUE(ReachesStep(endpoint, "job", 1));
  const Ended submitted = Run({"submit", "--coordinator", endpoint, job});
  EXPECT_EQ(submitted.exit_code, 1);
  EXPECT_THAT(submitted.errors, AllOf(HasSubstr("the name is taken by job 1"),
                                      HasSubstr("another name")));
  // `logs -f` does not wait for a rank that the job never has.
  const Ended logs =
      Run({"logs", "job", "-f", "--rank", "3", "--coordinator", endpoint});
  EXPECT_EQ(logs.exit_code, 1);
  EXPECT_THAT(logs.errors, HasSubstr("has no rank 3"));
}

TEST_F(BadInputTest, AScaleFactorThatFitsNowhereIsRefused) {
  const Ended local = RunLocal({WriteJob("fits", {"--steps", "100000"}),
                                WriteJob("big", {}, "scale_factor = 3\n")});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors, AllOf(HasSubstr("scale factor 3"),
                                  HasSubstr("lower it or add accelerators")));
}

TEST_F(BadInputTest, AServerThatTheClusterFileLacksIsNamed) {
  const Ended agent = Run({"agent", "--cluster", Path("cluster.toml"),
                           "--server", "there", "--state", state()});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_THAT(agent.errors,
              AllOf(HasSubstr("no server \"there\""), HasSubstr("here")));
}

TEST_F(BadInputTest, AWrongCommandLineIsTwo) {
  const Ended unknown = Run({"frobnicate"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("no command \"gavel frobnicate\""));
  EXPECT_THAT(Run({"coordinator", "--round-duration", "-1"}).errors,
              HasSubstr("-1 is not a number above 0"));
  EXPECT_EQ(Run({"queue", "--nonsense"}).exit_code, 2);
  EXPECT_EQ(Run({"local"}).exit_code, 2);
  const Ended bare = Run({});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_THAT(bare.errors, AllOf(HasSubstr("  submit "), HasSubstr("  why ")));
  EXPECT_EQ(Run({"help", "nosuch"}).exit_code, 2);
  EXPECT_EQ(Run({"help", "policy", "set"}).exit_code, 2);
  EXPECT_EQ(Run({"help", "job.toml"}).output, Run({"help", "--files"}).output);
  EXPECT_THAT(Run({"drain", "x", "--by", "2x"}).errors,
              HasSubstr("2h for two hours from now"));
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
  EXPECT_THAT(Run({"--version"}).output, HasSubstr("gavel 0."));
}

TEST_F(BadInputTest, AWrongAddressIsNamedBeforeAnyKey) {
  const Ended port =
      Run({"coordinator", "--listen", "127.0.0.1:x", "--state", state()});
  EXPECT_EQ(port.exit_code, 2);
  EXPECT_THAT(port.errors, HasSubstr("the port is not a number"));
  const Ended name = Run({"queue", "--coordinator", "nohost.invalid:7077"});
  EXPECT_EQ(name.exit_code, 1);
  EXPECT_THAT(name.errors,
              HasSubstr("the name nohost.invalid does not resolve"));
}

TEST_F(BadInputTest, AFailedStartIsALineOfJsonWhereTheLogIs) {
  const Ended start = Run({"coordinator", "--listen", "127.0.0.1:x", "--state",
                           state(), "--log-format", "json"});
  EXPECT_EQ(start.exit_code, 2);
  EXPECT_THAT(start.errors, ::testing::StartsWith("{\"time\":"));
  EXPECT_THAT(start.errors, HasSubstr(R"("level":"critical")"));
}

TEST_F(BadInputTest, AFifoIsNoJobFile) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  const Ended submitted = Run({"submit", Path("fifo")});
  EXPECT_EQ(submitted.exit_code, 1);
  EXPECT_THAT(submitted.errors, HasSubstr("is not a regular file"));
}

TEST_F(BadInputTest, AUnknownPolicyIsRefused) {
  const Ended coordinator = Run({"coordinator", "--listen", "tcp://127.0.0.1:0",
                                 "--state", state(), "--policy", "fastest"});
  EXPECT_EQ(coordinator.exit_code, 2);
  EXPECT_THAT(coordinator.errors, HasSubstr("fastest"));
}

TEST_F(BadInputTest, AJobThatDoesNotExistIsNamed) {
  const auto local = StartLocal({});
  const std::string endpoint = EndpointOf(*local);
  for (const char* command : {"why", "cancel", "logs", "release"}) {
    const Ended by_name = Run({command, "nobody", "--coordinator", endpoint});
    EXPECT_EQ(by_name.exit_code, 1) << command;
    EXPECT_THAT(by_name.errors, HasSubstr("no job named \"nobody\""));
    const Ended by_id = Run({command, "77", "--coordinator", endpoint});
    EXPECT_EQ(by_id.exit_code, 1) << command;
    EXPECT_THAT(by_id.errors, HasSubstr("there is no job 77"));
  }
  local->Signal(SIGINT);
  EXPECT_EQ(local->Wait(), 0) << local->errors();
}

}  // namespace
}  // namespace gavel::testing
