// `gavel reproduce` with fake workers in place of training programs.
#ifndef GAVEL_TESTS_CLI_LIVE_WORKLOAD_FIXTURE_H_
#define GAVEL_TESTS_CLI_LIVE_WORKLOAD_FIXTURE_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {

class LiveWorkloadTest : public GavelTest {
 protected:
  // One workload, "sleeper", of 50 steps/s, that never ends by itself.
  std::string WriteSleeper(const std::vector<std::string>& more = {}) {
    std::string command = "[\"" GAVEL_BINARY_DIR
                          "/tests/fake_worker\", \"--step-ms\", \"20\", "
                          "\"--log\", \"" +
                          Path("log") + "\"";
    for (const std::string& word : more) command += ", \"" + word + "\"";
    return Write("workloads.toml",
                 "[[workload]]\ntype = \"sleeper\"\ncommand = " + command +
                     "]\n[workload.environment]\nGAVEL_STEPS = \"1000000\"\n");
  }
  std::vector<std::string> Reproduce(const std::string& name,
                                     const std::vector<std::string>& more) {
    std::vector<std::string> command = {"reproduce",   name,
                                        "--workloads", Path("workloads.toml"),
                                        "--state",     state()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // Processes with the log of this test on their command line.
  int Workers() const {
    int count = 0;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc", error)) {
      const std::string line = ReadText(entry.path().string() + "/cmdline");
      count += line.find(Path("log")) != std::string::npos ? 1 : 0;
    }
    return count;
  }
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_CLI_LIVE_WORKLOAD_FIXTURE_H_
