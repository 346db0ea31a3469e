// The daemons as an operator runs them, with real processes: configuration
// files, reloads, exit codes, units of systemd.

#include <csignal>
#include <cstdlib>
#include <string>

#include "core/text.h"
#include "tests/cli/gavel_fixture.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(submit().exit_code, 1);
  WriteConfig("weight-max = 10.0\n");
  coordinator->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return submit().exit_code == 0; }))
      << coordinator->errors();
  EXPECT_THAT(
      coordinator->errors(),
      HasSubstr(R"("level":"info","message":"configuration read again)"));
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(coordinator->Wait(), 0);
}

TEST_F(DaemonTest, AWrongConfigurationIsTwoAndNamesTheLine) {
  const Ended ended =
      Run({"coordinator", "--config", WriteConfig("polcy = \"fifo\"\n")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("coordinator.toml:4:1: "));
  EXPECT_THAT(ended.errors, HasSubstr("policy"));
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
