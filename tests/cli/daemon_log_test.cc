#include <fcntl.h>

#include "coordinator/cli/daemon_options.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class DaemonLog : public Test {
 protected:
  std::shared_ptr<spdlog::logger> Open(const LogOptions& options) {
    return MakeLog(
        Descriptor(open(Path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)),
        options);
  }
  std::string Text() const { return ReadText(Path()); }

 private:
  std::string Path() const { return folder_.path() + "/log"; }
  TemporaryFolder folder_;
};

TEST_F(DaemonLog, JsonHasOneObjectALine) {
  Open({"json", "info"})->warn("server {} is \"lost\"\nnow \xff", "a");
  const std::string text = Text();
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_THAT(line["message"].get<std::string>(),
              HasSubstr("server a is \"lost\"\nnow"));
  EXPECT_THAT(line["time"].get<std::string>(),
              MatchesRegex("....-..-..T..:..:..[.]...Z"));
}

TEST_F(DaemonLog, TextOfOthersMakesNoLinesOfItsOwn) {
  Open({})->info("failed: {}",
                 "no such file\n2026 critical all is lost\x1b[0m");
  const std::string text = Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(DaemonLog, ALevelLeavesOutWhatIsBelowIt) {
  auto log = Open({"text", "warning"});
  log->info("small");
  log->error("large");
  SetLogLevel(*log, "debug");
  log->debug("smallest");
  log.reset();
  EXPECT_THAT(Text(), Not(HasSubstr("small\n")));
  EXPECT_THAT(Text(), HasSubstr("error large\n"));
  EXPECT_THAT(Text(), HasSubstr("debug smallest\n"));
}

}  // namespace
}  // namespace gavel
