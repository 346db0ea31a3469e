#include <fstream>

#include "CLI/CLI.hpp"
#include "coordinator/cli/daemon_options.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class DaemonConfig : public Test {
 protected:
  DaemonConfig() {
    AddConfigFlag(command_, &path_);
    command_.add_option("--state", state_);
    command_.add_option("--quota-jobs", jobs_);
    command_.add_flag("--jobs-as-root", as_root_);
  }
  std::string Write(const std::string& text) const {
    const std::string path = folder_.path() + "/gavel.toml";
    std::ofstream(path) << text;
    return path;
  }

  TemporaryFolder folder_;
  CLI::App command_;
  std::string path_, state_ = "here";
  int jobs_ = 1;
  bool as_root_ = false;
};

TEST_F(DaemonConfig, KeysAreTheOptionsAndWhatIsTypedCountsMore) {
  const std::string path = Write(
      "state = \"/var/lib/gavel\"\nquota-jobs = 7\njobs-as-root = true\n");
  ASSERT_OK_AND_ASSIGN(
      const auto all,
      WithConfigFile(command_, {"--config", path, "--state=mine"}));
  EXPECT_THAT(all, UnorderedElementsAre("--config", path, "--state=mine",
                                        "--quota-jobs=7", "--jobs-as-root"));
  ASSERT_OK(ParseAgain(command_, {"--config=" + path, "--state", "mine"}));
  EXPECT_EQ(state_, "mine");
  EXPECT_EQ(jobs_, 7);
  EXPECT_TRUE(as_root_);
}

TEST_F(DaemonConfig, WithoutAFileAllIsAsItWasTyped) {
  ASSERT_OK_AND_ASSIGN(const auto all,
                       WithConfigFile(command_, {"--state", "a"}));
  EXPECT_THAT(all, ElementsAre("--state", "a"));
}

TEST_F(DaemonConfig, ChangedKeysAreNamedThatNoReloadTakes) {
  EXPECT_THAT(ChangedKeys({"--state=a", "--quota-jobs=1", "--config", "x"},
                          {"--state=b", "--quota-jobs=2", "--config", "x",
                           "--jobs-as-root"},
                          {"quota-jobs"}),
              ElementsAre("state", "jobs-as-root"));
  EXPECT_THAT(ChangedKeys({"--state=a"}, {"--state=a"}, {}), ElementsAre());
  EXPECT_THAT(ChangedKeys({"--state=a"}, {}, {}), ElementsAre("state"));
}

TEST_F(DaemonConfig, WrongKeysAndValuesAreNamedWithTheirLine) {
  const auto with = [&](const std::string& text) {
    return WithConfigFile(command_, {"--config", Write(text)}).status();
  };
  EXPECT_THAT(with("\nquota-job = 7\n"), IsInvalid("gavel.toml:2:"));
  EXPECT_THAT(with("quota-job = 7\n"), IsInvalid("quota-jobs"));
  EXPECT_THAT(with("jobs-as-root = 1\n"), IsInvalid("true or false"));
  EXPECT_THAT(with("state = [\"a\"]\n"), IsInvalid("a text or a number"));
  EXPECT_THAT(with("state = \n"), IsInvalid("not TOML"));
  EXPECT_THAT(ParseAgain(command_, {"--config", Write("quota-jobs = 1.5\n")}),
              IsInvalid("gavel.toml:1:1: "));
  EXPECT_THAT(WithConfigFile(command_, {"--config", "/none.toml"}),
              StatusIs(kNotFound, "/none.toml"));
}

}  // namespace
}  // namespace gavel
