// `gavel shell` with real processes and terminals on a CPU slot.
#include <cstdlib>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/typed_run.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class ShellTest : public GavelClusterTest {
 protected:
  std::vector<std::string> Line(const std::vector<std::string>& options,
                                const std::vector<std::string>& program = {
                                    "sh"}) {
    std::vector<std::string> words = {"shell", "--coordinator", endpoint_};
    Append(options, &words);
    if (program.empty()) return words;
    words.emplace_back("--");
    Append(program, &words);
    return words;
  }
  std::string State(const std::string& name) {
    const json row = QueueRow(endpoint_, name);
    return row.is_object() ? row.value("state", "") : "";
  }
};

TEST_F(ShellTest, IsATerminalOnAnAcceleratorThatEndsWithTheShellsCode) {
  StartCluster(1);
  TypedRun shell(Line({"--name", "try"}));
  shell.Resize(33, 77);
  shell.Type(
      "echo $((40 + 2))-$GAVEL_JOB; test -t 0 && echo is-a-$((1))-tty\n");
  ASSERT_TRUE(shell.Shows("42-1"));
  ASSERT_TRUE(shell.Shows("is-a-1-tty"));
  shell.Type("stty size\n");
  EXPECT_TRUE(shell.Shows("33 77"));
  shell.Resize(44, 88);
  shell.Type("sleep 1; stty size\n");
  EXPECT_TRUE(shell.Shows("44 88"));
  EXPECT_EQ(State("try"), "R");
  shell.Type("exit 7\n");
  EXPECT_EQ(shell.ExitCode(), 7);
  EXPECT_EQ(State("try"), "CD");
  EXPECT_THAT(QueueRow(endpoint_, "try").value("reason", ""),
              HasSubstr("finished with exit code 7"));
  EXPECT_THAT(Do({"logs", "try"}).output, HasSubstr("42-1"));
}

TEST_F(ShellTest, CtrlCEndsTheProgramInTheShellAndNotTheShell) {
  StartCluster(1);
  TypedRun shell(Line({}));
  shell.Type("echo begins-$((1)); sleep 1000; echo ne-ver\n");
  ASSERT_TRUE(shell.Shows("begins-1"));
  shell.Type(kCtrlC);
  shell.Type("echo af-$((1))-ter\n");
  EXPECT_TRUE(shell.Shows("af-1-ter"));
  shell.Type("exit\n");
  shell.ExitCode();
}

TEST_F(ShellTest, PausesATrainingJobAndGivesItsAcceleratorBack) {
  StartCluster(1);
  Submit(WriteJob("long", {"--steps", "100000", "--step-ms", "5"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "long", 20));
  TypedRun shell(Line({}));
  shell.Type("echo starts-$((1))\n");
  ASSERT_TRUE(shell.Shows("starts-1"));
  EXPECT_NE(State("long"), "R");
  const uint64_t step = QueueRow(endpoint_, "long").value("steps_done", 0);
  shell.Type("exit 0\n");
  EXPECT_EQ(shell.ExitCode(), 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "long", step + 20));
  EXPECT_EQ(QueueRow(endpoint_, "long").value("incarnations", 0), 1)
      << "it was parked, and not started anew";
}

TEST_F(ShellTest, RunsOnWithoutItsClientAndIsAttachedAgain) {
  StartCluster(1);
  {
    TypedRun shell(Line({"--name", "try"}));
    shell.Type("kept=$((6 * 7)); echo se-$((1))-t\n");
    ASSERT_TRUE(shell.Shows("se-1-t"));
    shell.Hang();
  }
  EXPECT_EQ(State("try"), "R");
  TypedRun again(Line({"--attach", "try"}, {}));
  ASSERT_TRUE(again.Shows("se-1-t")) << "the end of what it wrote";
  again.Type("echo kept-$kept\n");
  ASSERT_TRUE(again.Shows("kept-42"));
  // The latest client has it.
  TypedRun third(Line({"--attach", "try"}, {}));
  ASSERT_TRUE(third.Shows("kept-42"));
  EXPECT_TRUE(again.Shows("another client has attached"));
  third.Type("exit\n");
  EXPECT_EQ(third.ExitCode(), 0);
}

TEST_F(ShellTest, AProgramIsRunWithoutATerminalOfTheUser) {
  StartCluster(1);
  const Ended ended = Run(Line({}, {"sh", "-c", "echo out; exit 3"}));
  EXPECT_EQ(ended.exit_code, 3) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("out"));
}

TEST_F(ShellTest, AllOutputComesHoweverMuchItIs) {
  StartCluster(1);
  const Ended ended = Run(Line({}, {"sh", "-c", "seq 100000; echo the-end"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("the-end"));
  EXPECT_EQ(Count(ended.output, "\n"), 100'001);
}

TEST_F(ShellTest, InputThatEndsInTheMiddleOfALineEndsTheProgram) {
  StartCluster(1);
  const int status = std::system(StrCat("printf 'exit 3' | " GAVEL_BINARY_DIR
                                        "/gavel shell --coordinator ",
                                        endpoint_, " -- sh")
                                     .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(ShellTest, IsLeftWhileTheCoordinatorDoesNotAnswer) {
  StartCluster(1);
  TypedRun shell(Line({}));
  shell.Type("echo begins-$((1))\n");
  ASSERT_TRUE(shell.Shows("begins-1"));
  KillCoordinator();
  ASSERT_TRUE(shell.Shows("Ctrl-C three times leaves"));
  shell.Type(kCtrlC);
  shell.Type(kCtrlC);
  shell.Type(kCtrlC);
  EXPECT_EQ(shell.ExitCode(), 130);
}

TEST_F(ShellTest, IsWarnedAndEndedWhenNobodyUsesIt) {
  StartCluster(1);
  TypedRun shell(Line({"--idle-limit", "3"}));
  EXPECT_TRUE(shell.Shows("[gavel: idle: this job ends in"));
  EXPECT_EQ(shell.ExitCode(), 75);
  EXPECT_EQ(QueueRow(endpoint_, "sh").value("code", ""), "ended_idle");
}

TEST_F(ShellTest, TellsWhyItWaitsAndCtrlCCancelsIt) {
  StartCluster(1);
  TypedRun first(Line({}));
  first.Type("echo runs-$((1))\n");
  ASSERT_TRUE(first.Shows("runs-1"));
  TypedRun second(Line({}));
  ASSERT_TRUE(second.Shows("interactive job 1 keeps its cpu on "));
  second.Type(kCtrlC);
  EXPECT_TRUE(second.Shows("job 2 is cancelled"));
  EXPECT_EQ(second.ExitCode(), 130);
  EXPECT_EQ(State("sh-2"), "CA");
  first.Type("exit\n");
  first.ExitCode();
}

TEST_F(ShellTest, RefusesPlacesThatAreNotThereAndJobsWithoutATerminal) {
  StartCluster(1);
  const auto errors = [&](const std::vector<std::string>& options,
                          const std::vector<std::string>& program) {
    const Ended ended = Run(Line(options, program));
    EXPECT_EQ(ended.exit_code, 1);
    return ended.errors;
  };
  EXPECT_THAT(
      errors({"--server", "nowhere"}, {"sh"}),
      HasSubstr("there is no server \"nowhere\"; the cluster has here"));
  EXPECT_THAT(errors({"--types", "v100"}, {"sh"}),
              HasSubstr("the cluster does not have; it has cpu"));
  EXPECT_EQ(Do({"drain", "here"}).exit_code, 0);
  EXPECT_THAT(errors({"--server", "here"}, {"sh"}),
              AllOf(HasSubstr("server here is drained"),
                    HasSubstr("`gavel resume here`")));
  EXPECT_EQ(Do({"resume", "here"}).exit_code, 0);
  EXPECT_TRUE(Json({"queue"}).empty()) << "nothing was submitted";
  Submit(WriteJob("long", {"--steps", "100000", "--step-ms", "5"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "long", 20));
  EXPECT_THAT(errors({"--attach", "long"}, {}),
              HasSubstr("has no terminal: its class is not \"interactive\""));
}

TEST_F(ShellTest, RefusesAServerWithoutTheTypeThatItAsksFor) {
  StartCluster(1);
  Write("there.toml",
        "[[server]]\nname = \"there\"\n[[server.accelerator]]\n"
        "type = \"slow\"\ncount = 1\n");
  const auto other = Start({"agent", "--coordinator", endpoint_, "--server",
                            "there", "--cluster", Path("there.toml"), "--state",
                            Path("there"), "--jobs-as-root"});
  EXPECT_TRUE(Eventually([&] { return Json({"nodes"}).size() == 2; }));
  const Ended ended =
      Run(Line({"--server", "here", "--types", "slow"}, {"true"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors,
              AllOf(HasSubstr("job \"true\" can never run: it needs 1"),
                    HasSubstr("change its scale_factor, types, servers")));
  EXPECT_TRUE(Json({"queue"}).empty()) << "nothing was submitted";
  EXPECT_EQ(
      Run(Line({"--server", "there", "--types", "slow"}, {"true"})).exit_code,
      0);
}

}  // namespace
}  // namespace gavel::testing
