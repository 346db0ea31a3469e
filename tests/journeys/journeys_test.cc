// Follows docs/journeys word by word: types the shell blocks of each document
// into one shell, in order, and compares their output with the document.
//
// In these documents a ```sh block is typed and has to succeed. A ```text block
// behind it has the output, of stdout and stderr. There is no other kind of
// block. In an output
//   - "…" stands for any text within a line,
//   - a line with nothing but "…" stands for any number of lines,
//   - several spaces count as one, and those at the ends of a line as none.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/free_port.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAnything = "…";
constexpr double kJourneyPatience_s = 3 * kPatience_s;

struct Step {
  int line = 0;  // of the document, where its block begins
  std::string commands;
  std::optional<std::string> prints;
};

struct Journey {
  std::vector<Step> steps;
  std::vector<std::string> faults;  // what would be neither typed nor compared
};

Journey ParseJourney(const std::string& document) {
  Journey journey;
  std::vector<Step>& steps = journey.steps;
  std::istringstream lines(document);
  std::string* block = nullptr;  // null between blocks
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (block != nullptr) {
      if (line == "```") {
        block = nullptr;
      } else {
        StrAppend(block, line, "\n");
      }
    } else if (line == "```sh") {
      steps.emplace_back().line = number;
      block = &steps.back().commands;
    } else if (line == "```text" && !steps.empty() && !steps.back().prints) {
      block = &steps.back().prints.emplace();
    } else if (line.find("```") != std::string::npos ||
               line.starts_with("    ")) {
      journey.faults.push_back(StrCat("line ", number, ": ", line));
    }
  }
  if (block != nullptr) journey.faults.push_back("the last block has no end");
  return journey;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string kept;
    for (std::string word; words >> word;) {
      StrAppend(&kept, kept.empty() ? "" : " ", word);
    }
    lines.push_back(std::move(kept));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

bool LineMatches(std::string_view expected, std::string_view actual) {
  const size_t mark = expected.find(kAnything);
  if (mark == std::string_view::npos) return expected == actual;
  if (!actual.starts_with(expected.substr(0, mark))) return false;
  expected.remove_prefix(mark + kAnything.size());
  actual.remove_prefix(mark);
  while (!LineMatches(expected, actual)) {
    if (actual.empty()) return false;
    actual.remove_prefix(1);
  }
  return true;
}

// The first line of `expected` at which no way of reading it matches; empty if
// one matches `actual` as a whole.
std::string FirstDifference(const std::string& expected,
                            const std::string& actual) {
  const std::vector<std::string> wanted = LinesOf(expected);
  const std::vector<std::string> lines = LinesOf(actual);
  // Numbers of lines that the lines of `wanted` up to here may have matched.
  std::set<size_t> matched = {0};
  for (const std::string& want : wanted) {
    std::set<size_t> now;
    for (const size_t i : matched) {
      if (want == kAnything) {
        for (size_t end = i; end <= lines.size(); ++end) now.insert(end);
      } else if (i < lines.size() && LineMatches(want, lines[i])) {
        now.insert(i + 1);
      }
    }
    if (now.empty()) return StrCat("not printed: ", want);
    matched = std::move(now);
  }
  if (matched.contains(lines.size())) return "";
  return StrCat("not in the document: ", lines[*matched.rbegin()]);
}

// Types each file of $STEPS into this shell. Programs that a step starts in the
// background run beside the next steps.
constexpr char kTypist[] = R"(set -eo pipefail
for step in "$STEPS"/*.sh; do
  . "$step" > "$step.out" 2>&1 < /dev/null
  : > "$step.done"
done
)";

class JourneyTest : public GavelClusterTest {
 protected:
  void SetUp() override {
    for (const char* name : {"home", "steps", "here"}) {
      fs::create_directory(Path(name));
    }
    // A checkout's examples are where the documents say.
    fs::create_directory_symlink(GAVEL_SOURCE_DIR "/examples",
                                 Here("examples"));
    Set("HOME", Path("home"));
    Set("STEPS", Path("steps"));
    Set("PATH", StrCat(GAVEL_BINARY_DIR ":", getenv("PATH")));
    unsetenv("XDG_CONFIG_HOME");
  }
  static void Set(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  }
  // A path in the folder in which the journey is made.
  std::string Here(const std::string& name) const {
    return Path("here/" + name);
  }

  void Follow(const std::string& name) {
    const std::string path =
        StrCat(GAVEL_SOURCE_DIR "/docs/journeys/", name, ".md");
    const Journey journey = ParseJourney(ReadText(path));
    ASSERT_THAT(journey.steps, Not(IsEmpty())) << path;
    EXPECT_THAT(journey.faults, IsEmpty())
        << path << " has blocks that are neither typed nor compared";
    const auto file_of = [&](size_t step) {
      return StrCat("steps/", 100 + step, ".sh");  // in order by name
    };
    for (size_t i = 0; i < journey.steps.size(); ++i) {
      Write(file_of(i), journey.steps[i].commands);
    }
    const std::string cd = StrCat("cd '", Path("here"), "'\n");
    // A session of its own, all of which ends here.
    Process shell({"/usr/bin/setsid", "/bin/bash", "-c", cd + kTypist},
                  Path("shell.out"));
    const std::optional<int> code = shell.Wait(kJourneyPatience_s);
    kill(-shell.pid(), SIGKILL);
    for (size_t i = 0; i < journey.steps.size(); ++i) {
      const Step& step = journey.steps[i];
      const std::string printed = ReadText(Path(file_of(i) + ".out"));
      const std::string what = StrCat(path, ":", step.line, "\n", step.commands,
                                      "printed:\n", printed);
      ASSERT_TRUE(fs::exists(Path(file_of(i) + ".done")))
          << what << "and " << (code ? "failed" : "did not end");
      if (!step.prints) continue;
      EXPECT_EQ(FirstDifference(*step.prints, printed), "") << what;
    }
    EXPECT_EQ(code, 0) << shell.errors();
  }
};

TEST(Journey, HasItsShellBlocksAndWhatTheyPrint) {
  const Journey journey = ParseJourney(
      "# Title\n```sh\na\nb\n```\ntext\n```sh\nc\n```\n\n```text\nd\n```\n");
  EXPECT_THAT(journey.faults, IsEmpty());
  ASSERT_EQ(journey.steps.size(), 2);
  EXPECT_EQ(journey.steps[0].line, 2);
  EXPECT_EQ(journey.steps[0].commands, "a\nb\n");
  EXPECT_FALSE(journey.steps[0].prints);
  EXPECT_EQ(journey.steps[1].commands, "c\n");
  EXPECT_EQ(journey.steps[1].prints, "d\n");
}

TEST(Journey, NamesBlocksThatNobodyWouldFollow) {
  EXPECT_THAT(ParseJourney("```toml\n```\n").faults,
              Contains("line 1: ```toml"));
  EXPECT_THAT(ParseJourney("    gavel queue\n").faults, SizeIs(1));
  EXPECT_THAT(ParseJourney("```text\n```\n").faults, Not(IsEmpty()));
  EXPECT_THAT(ParseJourney("```sh\ngavel queue\n").faults, SizeIs(1));
}

TEST(Journey, WhatIsPrintedIsAsTheDocumentHasItButForTheMarks) {
  EXPECT_EQ(FirstDifference("", ""), "");
  EXPECT_EQ(FirstDifference("a b\n", "a   b \n"), "");
  EXPECT_EQ(FirstDifference("a … c\n", "a 12 c\n"), "");
  EXPECT_EQ(FirstDifference("a …c… e\n", "a c c d e\n"), "");
  EXPECT_EQ(FirstDifference("…\nb\n…\n", "a\nb\n"), "");
  EXPECT_EQ(FirstDifference("a\n…\nd\n", "a\nb\nd\nc\nd\n"), "");
  EXPECT_EQ(FirstDifference("a\n", "b\n"), "not printed: a");
  EXPECT_EQ(FirstDifference("a … c\n", "a 12 d\n"), "not printed: a … c");
  EXPECT_EQ(FirstDifference("a\n", "a\nb\n"), "not in the document: b");
  EXPECT_EQ(FirstDifference("…\nc\n", "a\nb\n"), "not printed: c");
}

bool HasTraining() {
  return fs::exists(GAVEL_BINARY_DIR "/train_language_model");
}

// The team's cluster is there; the document begins with its address.
TEST_F(JourneyTest, AnEngineerSubmitsWatchesTunesAndFetchesTheBestCheckpoint) {
  if (!HasTraining()) GTEST_SKIP() << "no training programs (no LibTorch)";
  WriteCluster(2, 4, 1.5);
  ASSERT_NO_FATAL_FAILURE(StartCoordinator());
  agent_ = StartAgent();
  ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  Set("GAVEL_COORDINATOR", endpoint_);
  Follow("engineer");
}

TEST_F(JourneyTest, AnOperatorSetsUpWatchesDrainsUpgradesAndRestores) {
  if (!HasTraining()) GTEST_SKIP() << "no training programs (no LibTorch)";
  if (!fs::exists("/usr/bin/curl")) GTEST_SKIP() << "curl is not installed";
  Set("GAVEL_COORDINATOR", StrCat("127.0.0.1:", FreePort()));
  Set("GAVEL_DASHBOARD", StrCat("127.0.0.1:", FreePort()));
  Follow("operator");
}

TEST_F(JourneyTest, AResearcherSimulatesSweepsAndReports) {
  Follow("researcher");
}

}  // namespace
}  // namespace gavel::testing
