// Unknown words and flags: the message suggests what exists instead.
#include "CLI/CLI.hpp"
#include "coordinator/cli/command_line.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class CommandAdviceTest : public Test {
 protected:
  std::string Unknown(const std::vector<std::string>& words) const {
    return UnknownCommand(*app_, words);
  }
  std::string Flags(const std::vector<std::string>& words) const {
    return FlagsOfOriginal(*app_, words);
  }

  // The message about the other words of a line whose commands are known.
  std::string Unexpected(std::vector<std::string> words) {
    std::ranges::reverse(words);
    try {
      app_->parse(words);
    } catch (const CLI::ParseError&) {
      return UnexpectedWords(*app_);
    }
    return "";
  }

  int exit_code_ = 0;
  const std::unique_ptr<CLI::App> app_ =
      MakeCommandLine("gavel 1", {}, &exit_code_);
};

TEST_F(CommandAdviceTest, CommandsAreKnown) {
  EXPECT_EQ(Unknown({"queue", "--watch"}), "");
  EXPECT_EQ(Unknown({"user", "add", "ada"}), "");
  EXPECT_EQ(Unknown({"reproduce", "las-single"}), "");
  EXPECT_EQ(Unknown({"reproduce", "reality", "--list"}), "");
  EXPECT_EQ(Unknown({"--help"}), "");
  EXPECT_EQ(Unknown({}), "");
}

TEST_F(CommandAdviceTest, TheNearestNameIsSuggested) {
  EXPECT_EQ(Unknown({"quue"}),
            "there is no command \"gavel quue\"; did you mean `gavel queue`? "
            "`gavel --help` lists them");
  EXPECT_THAT(Unknown({"sumbit"}), HasSubstr("`gavel submit`"));
  EXPECT_THAT(Unknown({"user", "revok"}), HasSubstr("`gavel user revoke`"));
  EXPECT_THAT(Unknown({"frobnicate"}),
              AllOf(HasSubstr("no command \"gavel frobnicate\""),
                    Not(HasSubstr("did you mean"))));
}

TEST_F(CommandAdviceTest, TopicsAreNamedWithTheirPlace) {
  EXPECT_THAT(Unknown({"throughputs"}), HasSubstr("docs/simulator.md"));
  EXPECT_THAT(Unknown({"policies"}), HasSubstr("gavel solve --list-policies"));
  EXPECT_THAT(Unknown({"policies"}), Not(HasSubstr("did you mean")));
}

TEST_F(CommandAdviceTest, WordsOfOtherSchedulersAreOurs) {
  EXPECT_EQ(Unknown({"scancel", "7"}),
            "there is no command \"gavel scancel\"; here it is `gavel cancel`");
  EXPECT_THAT(Unknown({"squeue"}), HasSubstr("`gavel queue`"));
  EXPECT_THAT(Unknown({"sinfo"}), HasSubstr("`gavel nodes`"));
  EXPECT_THAT(Unknown({"sbatch", "a.sh"}), HasSubstr("`gavel submit`"));
  EXPECT_THAT(Unknown({"scontrol"}), HasSubstr("`gavel release`"));
  EXPECT_THAT(Unknown({"simulate_scheduler_with_trace.py"}),
              HasSubstr("`gavel simulate`"));
}

TEST_F(CommandAdviceTest, GuessedWordsAreOurs) {
  EXPECT_THAT(Unknown({"version"}), HasSubstr("`gavel --version`"));
  EXPECT_THAT(Unknown({"servers"}), HasSubstr("`gavel nodes`"));
  EXPECT_THAT(Unknown({"info", "3"}),
              HasSubstr("`gavel why`, `gavel queue`, `gavel history`"));
  EXPECT_THAT(Unknown({"suspend"}), HasSubstr("`gavel hold`"));
  EXPECT_THAT(Unknown({"config"}), HasSubstr("`gavel help --files`"));
  EXPECT_THAT(Unknown({"add-user"}), HasSubstr("`gavel user add`"));
  EXPECT_THAT(Unknown({"health"}), HasSubstr("`gavel status`"));
  EXPECT_THAT(Unknown({"unhold"}), HasSubstr("`gavel release`"));
  EXPECT_THAT(Unknown({"quit"}), HasSubstr("`gavel shutdown`"));
}

TEST_F(CommandAdviceTest, TheNearestOptionIsSuggested) {
  EXPECT_EQ(Unexpected({"coordinator", "--quota-job", "3"}),
            "`gavel coordinator` does not take \"--quota-job 3\"; did you mean "
            "`--quota-jobs`? `gavel coordinator --help` tells its options");
}

TEST_F(CommandAdviceTest, AMistypedOptionIsToldOfBeforeAMissingOne) {
  EXPECT_THAT(Unexpected({"keygen", "--nod", "n1"}), HasSubstr("`--node`"));
  EXPECT_THAT(Unexpected({"--versoin"}), HasSubstr("`--version`"));
}

TEST_F(CommandAdviceTest, ACommandBehindAnotherOneIsSuggestedAlone) {
  EXPECT_THAT(Unexpected({"nodes", "drain", "x", "y"}),
              AllOf(HasSubstr("\"drain x y\""),
                    HasSubstr("did you mean `gavel drain x y`?")));
}

TEST_F(CommandAdviceTest, AJobWithoutItsOptionIsSuggestedWithIt) {
  EXPECT_THAT(Unexpected({"history", "1"}),
              HasSubstr("did you mean `gavel history --job 1`?"));
}

TEST_F(CommandAdviceTest, ALineWithoutACommandListsThem) {
  EXPECT_THAT(Unexpected({}), "");
  EXPECT_THAT(MissingCommand(*app_),
              AllOf(HasSubstr("  submit "), HasSubstr("  queue ")));
}

TEST_F(CommandAdviceTest, TheFileOfPrincipalsIsTakenBehindTheCommandToo) {
  for (const char* command : {"list", "revoke", "add"}) {
    const CLI::App* user = app_->get_subcommand("user");
    EXPECT_NE(
        user->get_subcommand(command)->get_option_no_throw("--principals"),
        nullptr)
        << command;
  }
}

TEST_F(CommandAdviceTest, FlagsOfTheOriginalGetAHint) {
  EXPECT_EQ(Flags({"simulate", "-c", "25:25:25", "-p", "fifo"}),
            "-c is the original Gavel's: write --cluster "
            "v100:25,p100:25,k80:25\n"
            "-p is the original Gavel's: write --policy NAME\n");
  EXPECT_THAT(Flags({"simulate", "--throughputs_file=a.json"}),
              HasSubstr("write --throughputs FILE.json"));
  EXPECT_THAT(Flags({"-c", "25:25:25", "-p", "fifo"}),
              HasSubstr("see docs/from-gavel.md"));
  EXPECT_THAT(Flags({"sweep", "-p", "fifo"}),
              HasSubstr("see docs/from-gavel.md"));
  EXPECT_THAT(Flags({"coordinator", "-p", "fifo"}),
              HasSubstr("write --policy NAME"));
}

TEST_F(CommandAdviceTest, OurOwnFlagsGetNone) {
  EXPECT_EQ(Flags({"simulate", "--cluster", "v100:4", "--nonsense"}), "");
  EXPECT_EQ(Flags({"sweep", "-j", "2"}), "");
  EXPECT_EQ(Flags({"queue", "-f"}), "");  // it may mean "follow"
}

}  // namespace
}  // namespace gavel::testing
