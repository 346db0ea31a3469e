// The daemons as an operator runs them, with real processes: configuration
// files, reloads, exit codes, units of systemd.

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "coordinator/cli/command_line.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

class DaemonTest : public GavelTest {
 protected:
  std::string WriteConfig(const std::string& more) {
    return Write("coordinator.toml",
                 StrCat("listen = \"tcp://127.0.0.1:0\"\nstate = \"", state(),
                        "\"\nlog-format = \"json\"\n", more));
  }
};

TEST_F(DaemonTest, AReloadChangesWhatNeedsNoRestart) {
  WriteCluster(1, 10, 5);
  const std::string config = WriteConfig("weight-max = 1.0\n");
  const auto coordinator = Start({"coordinator", "--config", config});
  const std::string endpoint = EndpointOf(*coordinator);
  ASSERT_NE(endpoint, "") << coordinator->errors();
  const std::string job = WriteJob("heavy", {}, "weight = 2\n");
  const auto submit = [&] {
    return Run({"submit", "--coordinator", endpoint, job});
  };
  EXPECT_EQ(submit().exit_code, 1);
  WriteConfig("weight-max = \"many\"\n");
  coordinator->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return coordinator->errors().find("nothing is changed: ") !=
           std::string::npos;
  })) << coordinator->errors();
  EXPECT_THAT(coordinator->errors(), HasSubstr("coordinator.toml:4:1: "));
  EXPECT_EQ(submit().exit_code, 1);
  WriteConfig("weight-max = 10.0\nstop-grace = 3\n");
  coordinator->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return submit().exit_code == 0; }))
      << coordinator->errors();
  EXPECT_THAT(
      coordinator->errors(),
      HasSubstr(R"("level":"info","message":"configuration read again)"));
  EXPECT_TRUE(Eventually([&] {
    return coordinator->errors().find("stop-grace has changed") !=
           std::string::npos;
  })) << coordinator->errors();
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(coordinator->Wait(), 0);
}

TEST_F(DaemonTest, AHangUpWithoutAConfigurationStopsInOrder) {
  const auto coordinator =
      Start({"coordinator", "--listen", "127.0.0.1:0", "--state", state()});
  ASSERT_NE(EndpointOf(*coordinator), "") << coordinator->errors();
  coordinator->Signal(SIGHUP);
  EXPECT_EQ(coordinator->Wait(), 0);
  EXPECT_THAT(coordinator->errors(), HasSubstr("no --config to read again"));
}

TEST_F(DaemonTest, AWrongConfigurationIsTwoAndNamesTheLine) {
  const Ended ended =
      Run({"coordinator", "--config", WriteConfig("polcy = \"fifo\"\n")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("coordinator.toml:4:1: "));
  EXPECT_THAT(ended.errors, HasSubstr("policy"));
}

// Its agent has seen rows that are not in it, and a job that is not.
TEST_F(DaemonTest, ARestoredBackupIsAcceptedWithItsLoss) {
  WriteCluster(2, 30, 5);
  const std::string config =
      WriteConfig("round-duration = 30\nlease-duration = 3\n");
  auto coordinator = Start({"coordinator", "--config", config});
  const std::string endpoint = EndpointOf(*coordinator);
  ASSERT_NE(endpoint, "") << coordinator->errors();
  const auto agent = StartAgent(endpoint, {"--jobs-as-root"});
  const auto submit = [&](const std::string& name) {
    const Ended submitted = Run({"submit", "--coordinator", endpoint,
                                 WriteJob(name, {"--steps", "100000"})});
    EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
    EXPECT_TRUE(ReachesStep(endpoint, name, 20))
        << agent->errors() << coordinator->errors();
  };
  submit("kept");
  const Ended backup = Run({"backup", Path("copy"), "--state", state()});
  EXPECT_EQ(backup.exit_code, 0) << backup.errors;
  EXPECT_EQ(Run({"backup", Path("copy"), "--state", state()}).exit_code, 1)
      << "nothing is written over";
  EXPECT_THAT(Run({"backup", Path("none/copy"), "--state", state()}).errors,
              HasSubstr(Path("none/copy") + " can't be written"));
  std::filesystem::copy_file(Path("copy"), Path("part"));
  std::filesystem::resize_file(Path("part"),
                               std::filesystem::file_size(Path("part")) / 2);
  EXPECT_THAT(Run({"restore", Path("part"), "--state", Path("new")}).errors,
              HasSubstr(Path("part") + " is incomplete or damaged"));
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  submit("lost");
  coordinator->Signal(SIGKILL);
  coordinator->Wait();
  const std::vector<std::string> restore = {"restore", Path("copy"), "--state",
                                            state()};
  EXPECT_THAT(Run(restore).errors, HasSubstr("journal.db is there"));
  for (const char* part : {"", "-wal", "-shm", ".term"}) {
    std::filesystem::remove(state() + "/journal.db" + part);
  }
  const Ended restored = Run(restore);
  EXPECT_EQ(restored.exit_code, 0) << restored.errors;
  EXPECT_THAT(restored.output, HasSubstr("--accept-loss"));

  const auto start = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"coordinator", "--config", config,
                                          "--listen", endpoint};
    Append(more, &arguments);
    coordinator = Start(arguments);
    EXPECT_EQ(EndpointOf(*coordinator), endpoint) << coordinator->errors();
  };
  start({});
  EXPECT_EQ(coordinator->Wait(), kExitFenced) << coordinator->errors();
  EXPECT_THAT(coordinator->errors(), HasSubstr("start it with --accept-loss"));
  start({"--accept-loss"});
  EXPECT_TRUE(ReachesStep(endpoint, "kept", 40)) << coordinator->errors();
  EXPECT_TRUE(QueueRow(endpoint, "lost").is_null());
  submit("new");
  EXPECT_GT(QueueRow(endpoint, "new")["id"].get<int>(), 10'000);
  // Once accepted it is the journal, as any other.
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(coordinator->Wait(), 0) << coordinator->errors();
  start({});
  EXPECT_TRUE(ReachesStep(endpoint, "kept", 60)) << coordinator->errors();
  EXPECT_THAT(Run({"audit", "--state", state()}).output,
              HasSubstr("accept loss"));
}

TEST_F(DaemonTest, UnitsOfSystemdAreClean) {
  if (std::system("systemd-analyze --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "systemd-analyze is not there";
  }
  for (const char* unit :
       {"gavel-coordinator.service", "gavel-agent.service"}) {
    std::string text =
        ReadText(StrCat(GAVEL_SOURCE_DIR "/cmake/systemd/", unit));
    const std::string start = "ExecStart=gavel ";
    ASSERT_NE(text.find(start), std::string::npos) << unit;
    text.replace(text.find(start), start.size(),
                 "ExecStart=" GAVEL_BINARY_DIR "/gavel ");
    const std::string path = Write(unit, text);
    const std::string output = Path("verified");
    const int code = std::system(
        StrCat("systemd-analyze verify --man=no ", path, " > ", output, " 2>&1")
            .c_str());
    EXPECT_EQ(code, 0) << ReadText(output);
    EXPECT_EQ(ReadText(output), "");
  }
}

// The files that the packages bring as examples are taken as they are.
TEST_F(DaemonTest, ExamplesOfConfigurationAreValid) {
  for (const char* daemon : {"coordinator", "agent"}) {
    const Ended ended =
        Run({daemon, "--help", "--config",
             StrCat(GAVEL_SOURCE_DIR "/cmake/systemd/", daemon, ".toml")});
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  }
}

}  // namespace
}  // namespace gavel::testing
