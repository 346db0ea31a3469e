// The texts that `gavel` makes from what its parsers use: the document of keys,
// the list of commands, and completions.
#include <cstdio>
#include <fstream>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "coordinator/cli/command_line.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

std::vector<Command> Commands() {
  int exit_code = 0;
  return ListCommands(*MakeCommandLine("gavel 1.2.3", {}, &exit_code));
}

const Command& Find(const std::vector<Command>& commands,
                    const std::string& words) {
  const auto found = std::ranges::find(commands, words, &Command::words);
  EXPECT_NE(found, commands.end()) << words;
  return found == commands.end() ? commands.front() : *found;
}

TEST(FilesDocument, IsDocsFilesMd) {
  EXPECT_EQ(ReadText(GAVEL_SOURCE_DIR "/docs/files.md"), FilesDocument())
      << "after a change of keys: gavel help --files > docs/files.md";
}

TEST(CommandList, HasGroupsAndCommandsBelowCommands) {
  const std::vector<Command> commands = Commands();
  EXPECT_EQ(commands.front().words, "gavel");
  EXPECT_THAT(commands.front().commands, Contains("submit"));
  EXPECT_THAT(Find(commands, "gavel user").commands,
              ElementsAre("add", "list", "revoke"));
  std::vector<std::string> names;
  for (const CommandOption& option : Find(commands, "gavel keygen").options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  EXPECT_THAT(names, Contains("--node"));  // of an option group
  EXPECT_EQ(std::ranges::count(names, "--help"), 1);
}

TEST(CommandList, EveryCommandSaysWhatItIs) {
  for (const Command& command : Commands()) {
    EXPECT_NE(command.meaning, "") << command.words;
  }
}

TEST(CommandList, EveryArgumentByPlaceSaysWhatItIs) {
  for (const Command& command : Commands()) {
    for (const CommandOption& option : command.options) {
      if (!option.place.empty()) {
        EXPECT_NE(option.argument, "TEXT") << command.words;
      }
    }
  }
}

class BashCompletionTest : public Test {
 protected:
  // The words that bash offers for the last word of a line.
  std::vector<std::string> Offered(const std::vector<std::string>& words) {
    const std::string script = folder_.path() + "/completion";
    std::ofstream(script) << BashCompletion(Commands());
    std::string line = StrCat("bash -c 'source ", script, "; COMP_WORDS=(");
    for (const std::string& word : words) StrAppend(&line, "\"", word, "\" ");
    StrAppend(&line, "); COMP_CWORD=", words.size() - 1,
              "; _gavel; echo \"${COMPREPLY[*]}\"'");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> bash(
        popen(line.c_str(), "r"), pclose);
    std::string text;
    for (int c = 0; (c = std::fgetc(bash.get())) != EOF;) {
      text += static_cast<char>(c);
    }
    std::erase(text, '\n');
    return absl::StrSplit(text, ' ', absl::SkipWhitespace());
  }

  TemporaryFolder folder_;
};

TEST_F(BashCompletionTest, OffersCommandsOptionsAndValues) {
  EXPECT_THAT(Offered({"gavel", "sol"}), ElementsAre("solve"));
  EXPECT_THAT(Offered({"gavel", "user", "re"}), ElementsAre("revoke"));
  EXPECT_THAT(Offered({"gavel", "queue", "--wa"}), ElementsAre("--watch"));
  EXPECT_THAT(Offered({"gavel", "queue", "--watch", "--js"}),
              ElementsAre("--json"));
  EXPECT_THAT(Offered({"gavel", "solve", "--policy", "all"}),
              ElementsAre("allox"));
  EXPECT_THAT(Offered({"gavel", "solve", "--solver", "=", "pr"}),
              ElementsAre("prices"));
  EXPECT_THAT(Offered({"gavel", "history", "--show", "ro"}),
              ElementsAre("rounds"));
  EXPECT_THAT(Offered({"gavel", "completion", "z"}), ElementsAre("zsh"));
  EXPECT_THAT(Offered({"gavel", "submit", "job"}), IsEmpty());  // a file
  EXPECT_THAT(Offered({"gavel", "drain", ""}), IsEmpty());
  EXPECT_THAT(Offered({"gavel", "policy", "max_min_fairness_w"}),
              Contains("max_min_fairness_water_filling"));
  EXPECT_THAT(Offered({"gavel", "policy", "fifo", "--prev"}),
              ElementsAre("--preview"));
  EXPECT_THAT(Offered({"gavel", "help", "canc"}), ElementsAre("cancel"));
  EXPECT_THAT(Offered({"gavel", "user", "add", "--role", ""}),
              ElementsAre("user", "operator", "viewer", "node"));
}

TEST_F(BashCompletionTest, KnowsEveryCommand) {
  const std::vector<std::string> offered = Offered({"gavel", ""});
  EXPECT_EQ(offered, Commands().front().commands);
}

TEST(ZshCompletion, NamesEveryCommandAndUsesNoneOfZshsOwnNames) {
  const std::vector<Command> commands = Commands();
  const std::string script = ZshCompletion(commands);
  EXPECT_THAT(script, StartsWith("#compdef gavel\n"));
  for (const std::string& command : commands.front().commands) {
    EXPECT_THAT(script, HasSubstr("'" + command + ":"));
  }
  EXPECT_THAT(script, Not(HasSubstr(" commands=(")));
  EXPECT_THAT(script, Not(HasSubstr(" options=(")));
}

}  // namespace
}  // namespace gavel::testing
