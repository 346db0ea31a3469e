// The commands that operators type while a cluster runs, with real processes.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <ctime>

#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class OperatorTest : public GavelClusterTest {
 protected:
  void SubmitLong(const std::string& name) {
    Submit(WriteJob(name, {"--steps", "100000"}));
  }
  void ExpectRefused(const std::vector<std::string>& arguments,
                     const std::string& error) {
    const Ended refused = Do(arguments);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, HasSubstr(error));
  }
  std::string NodeState() {
    const json nodes = Json({"nodes"});
    return nodes.empty() ? "" : nodes[0].value("state", "");
  }
  // The output of the command on a terminal, at which `keys` are typed.
  std::string OnATerminal(std::vector<std::string> arguments,
                          const std::string& keys = "") {
    arguments.insert(arguments.begin(), GAVEL_BINARY_DIR "/gavel");
    arguments.insert(arguments.end(), {"--coordinator", endpoint_});
    std::vector<char*> argv;
    for (std::string& one : arguments) argv.push_back(one.data());
    argv.push_back(nullptr);
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) {
      execv(argv.front(), argv.data());
      _exit(127);
    }
    if (write(terminal, keys.data(), keys.size()) < 0) return "";
    std::string written;
    std::array<char, 4096> some;
    ssize_t bytes = 0;
    while ((bytes = read(terminal, some.data(), some.size())) > 0) {
      written.append(some.data(), static_cast<size_t>(bytes));
    }
    close(terminal);
    waitpid(pid, nullptr, 0);
    return written;
  }
  std::string Why(const std::string& job) {
    return Json({"why", job}).value("reason", "");
  }
  // A thread writes the audit log.
  bool IsAudited(const std::string& text) {
    return Eventually([&] {
      return ReadText(state() + "/audit.log").find(text) != std::string::npos;
    });
  }
};

TEST_F(OperatorTest, DrainLetsJobsLeaveAndResumeGivesTheServerBack) {
  StartCluster(1);
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  const Ended drained = Do({"drain", "here"});
  EXPECT_EQ(drained.exit_code, 0) << drained.errors;
  EXPECT_THAT(drained.output, HasSubstr("here"));
  EXPECT_TRUE(Eventually([&] { return NodeState() == "drained"; }));
  EXPECT_THAT(Why("a"), HasSubstr("here: by `gavel drain`"));
  EXPECT_EQ(Count(LogOf(1), "pauses at step"), 1) << "nobody is killed";
  KillCoordinator();
  StartCoordinator();
  EXPECT_TRUE(Eventually([&] { return NodeState() == "drained"; }));
  EXPECT_EQ(Do({"resume", "here"}).exit_code, 0);
  const uint64_t step = QueueRow(endpoint_, "a").value("steps_done", 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "a", step + 20));
  ExpectRefused({"resume", "here"}, "is not drained");
}

TEST_F(OperatorTest, AgentThatGetsSigtermIsDrainedFirstAndThenDown) {
  StartCluster(1);
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  agent_->Signal(SIGTERM);
  EXPECT_EQ(agent_->Wait(), 0);
  EXPECT_EQ(Count(LogOf(1), "ended by the coordinator"), 1) << LogOf(1);
  // The server is down at once, without the timeout for silent agents.
  EXPECT_EQ(NodeState(), "down");
  EXPECT_EQ(Json({"nodes"})[0]["accelerators"][0]["state"], "down");
  agent_ = StartAgent();
  EXPECT_TRUE(ReachesState(endpoint_, "a", "R"));
  EXPECT_GE(CheckpointOf("a").steps, 20u);
}

TEST_F(OperatorTest, HoldRequeueAndCheckpointKeepEveryStep) {
  StartCluster(1);
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  EXPECT_EQ(Do({"checkpoint", "a"}).exit_code, 0);
  EXPECT_TRUE(
      Eventually([&] { return Count(LogOf(1), "checkpoint at step") == 1; }));
  EXPECT_EQ(Do({"hold", "a"}).exit_code, 0);
  EXPECT_TRUE(ReachesState(endpoint_, "a", "F"));
  EXPECT_THAT(Why("a"), HasSubstr("`gavel hold`"));
  ExpectRefused({"checkpoint", "a"}, "is held");
  EXPECT_EQ(Do({"release", "a"}).exit_code, 0);
  EXPECT_TRUE(ReachesState(endpoint_, "a", "R"));
  EXPECT_EQ(Do({"requeue", "a"}).exit_code, 0);
  EXPECT_TRUE(
      Eventually([&] { return Count(LogOf(1), "starts at step") == 3; }));

  for (const char* action : {"hold", "requeue", "checkpoint", "release"}) {
    EXPECT_TRUE(IsAudited(action));
  }
}

// Each error is reported, and the other jobs, servers and files are still
// handled.
TEST_F(OperatorTest, ACommandForSeveralGoesOnBehindAnError) {
  StartCluster(1);
  const std::string file = WriteJob("a", {"--steps", "100000"});
  Submit(file);
  const std::string other = WriteJob("b", {"--steps", "100000"});
  const Ended submitted = Do({"submit", file, other});
  EXPECT_EQ(submitted.exit_code, 1);
  EXPECT_THAT(submitted.output, HasSubstr("Submitted job 2 (b)"));
  const Ended held = Do({"hold", "none", "a", "--json", "no-other", "b"});
  EXPECT_EQ(held.exit_code, 1);
  EXPECT_EQ(json::parse(held.output), json({{{"id", 1}}, {{"id", 2}}}));
  EXPECT_THAT(held.errors, HasSubstr("gavel: there is no job named \"none\""));
  EXPECT_THAT(held.errors,
              HasSubstr("\ngavel: there is no job named \"no-other\""));
  for (const char* command : {"release", "cancel"}) {
    const Ended ended = Do({command, "none", "a", "b"});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, HasSubstr("job 1"));
    EXPECT_THAT(ended.output, HasSubstr("job 2"));
  }
  const Ended drained = Do({"drain", "nowhere", "here"});
  EXPECT_EQ(drained.exit_code, 1);
  EXPECT_THAT(drained.output, HasSubstr("here: "));
  EXPECT_TRUE(Eventually([&] { return NodeState() == "drained"; }));
}

TEST_F(OperatorTest, UpdateHasTheBoundsOfASubmission) {
  StartCluster(1);
  SubmitLong("a");
  EXPECT_EQ(Do({"update", "a", "--weight", "2", "--deadline", "500"}).exit_code,
            0);
  ExpectRefused({"update", "a", "--weight", "1e9"}, "weight");
  ExpectRefused({"update", "a", "--weight", "-1"}, "gavel: weight");
  ExpectRefused({"update", "a", "--scale-factor-min", "4"},
                "exceeds scale_factor");
  ExpectRefused({"update", "a", "--types", "h900"}, "no type \"h900\"");
  ExpectRefused({"update", "a"}, "nothing is to be changed");
}

TEST_F(OperatorTest, PolicyIsShownPreviewedSetAndSurvivesARestart) {
  StartCluster(2);
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "fifo");
  const json preview = Json({"policy", "max_min_fairness", "--preview"});
  ASSERT_EQ(preview["jobs"].size(), 1u);
  EXPECT_GT(preview["jobs"][0].value("share_then", 0.0), 0.9);
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "fifo");
  EXPECT_EQ(Do({"policy", "max_min_fairness"}).exit_code, 0);
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness");
  KillCoordinator();
  StartCoordinator({"--policy", "fifo"});
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness");
  EXPECT_TRUE(ReachesStep(endpoint_, "a", 40));
  EXPECT_EQ(Count(LogOf(1), "pauses at step"), 0) << "it was kept";
  ExpectRefused({"policy", "no_such_policy"}, "no_such_policy");
  ExpectRefused({"policy", "max_min_fairness"}, "decides already");
  // A policy that is given at the start replaces the one before.
  KillCoordinator();
  StartCoordinator({"--policy", "max_min_fairness_perf"});
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness_perf");
}

TEST_F(OperatorTest, IntrospectionIsSwitchedLiveAndSurvivesARestart) {
  StartCluster(1);
  const auto is_on = [&] {
    return Json({"policy"}).value("introspection", false);
  };
  EXPECT_FALSE(is_on());
  const Ended on = Do({"policy", "--introspection", "on"});
  EXPECT_EQ(on.exit_code, 0) << on.errors;
  EXPECT_THAT(on.output, HasSubstr("Introspection is on from now on"));
  EXPECT_THAT(Do({"policy"}).output, HasSubstr("fifo, with introspection"));
  EXPECT_TRUE(IsAudited("introspection on"));
  ExpectRefused({"policy", "--introspection", "on"}, "is on already");
  EXPECT_EQ(Do({"policy", "--introspection", "maybe"}).exit_code, 2);
  ExpectRefused({"policy", "fifo", "--introspection", "off", "--preview"},
                "without --introspection");
  KillCoordinator();
  StartCoordinator({"--policy", "fifo"});
  EXPECT_TRUE(is_on());
  EXPECT_EQ(
      Do({"policy", "max_min_fairness", "--introspection", "off"}).exit_code,
      0);
  EXPECT_FALSE(is_on());
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness");
}

TEST_F(OperatorTest, CommandsForManyJobsCountThemAndWantAYes) {
  StartCluster(1);
  for (const char* name : {"lm-1", "lm-2", "lm-3", "vision"}) {
    Submit(WriteJob(name, {"--steps", "100000"},
                    *name == 'l' ? "app = \"search\"\n" : ""));
  }
  ASSERT_TRUE(ReachesStep(endpoint_, "lm-1", 20));
  ExpectRefused({"cancel", "--name", "lm-*"},
                "would cancel 3 jobs (1 lm-1, 2 lm-2, 3 lm-3); nobody can be "
                "asked, as standard input is no terminal: give --yes");
  ExpectRefused({"cancel", "1", "--name", "lm-*"}, "but not both");
  ExpectRefused({"cancel", "--state", "sleeping"}, "is no state of a job");
  ExpectRefused({"release", "--name", "lm-*", "--yes"},
                "no job that could be released is chosen");
  const Ended no_job = Do({"cancel"});
  EXPECT_EQ(no_job.exit_code, 2);
  EXPECT_THAT(no_job.errors, HasSubstr("one of --user, --state, --name"));

  const Ended held = Do({"hold", "--app", "search", "--state", "PD", "--yes"});
  EXPECT_EQ(held.output, "Held job 2\nHeld job 3\n") << held.errors;
  EXPECT_EQ(QueueRow(endpoint_, "vision")["state"], "PD");
  EXPECT_EQ(Do({"release", "--state", "held", "--yes"}).output,
            "Released job 2\nReleased job 3\n");
  const json requeued =
      json::parse(Do({"requeue", "--name", "*", "--yes", "--json"}).output);
  ASSERT_EQ(requeued.size(), 1u) << "the others have no process";
  EXPECT_EQ(requeued[0]["id"], 1);
  EXPECT_EQ(Do({"cancel", "--name", "lm-[23]", "--yes"}).output,
            "Cancelled job 2\nCancelled job 3\n");
  EXPECT_NE(QueueRow(endpoint_, "lm-1")["state"], "CA");
}

TEST_F(OperatorTest, ACommandForManyJobsAsksOnATerminal) {
  StartCluster(1);
  Submit(WriteJob("a", {"--steps", "100000"}));
  EXPECT_THAT(OnATerminal({"cancel", "--name", "a"}, "n\n"),
              AllOf(HasSubstr("Really cancel 1 job (1 a)? [y/N]"),
                    HasSubstr("nothing was changed")));
  EXPECT_NE(QueueRow(endpoint_, "a")["state"], "CA");
  EXPECT_THAT(OnATerminal({"cancel", "--name", "a"}, "y\n"),
              HasSubstr("Cancelled job 1"));
}

TEST_F(OperatorTest, AnEmptyChoiceOfJobsIsRefused) {
  StartCluster(1);
  for (const char* option : {"--user", "--app", "--name"}) {
    for (const char* command : {"cancel", "hold", "release", "requeue"}) {
      const Ended refused =
          Do({command, option, "", "--state", "R,PD", "--yes"});
      EXPECT_NE(refused.exit_code, 0);
      EXPECT_THAT(refused.errors, HasSubstr("is empty; give a value"));
    }
  }
}

TEST_F(OperatorTest, QueueShowsTheColumnsAndTheOrderThatAreAskedFor) {
  StartCluster(1);
  for (const char* name : {"b", "c", "a"}) {
    Submit(WriteJob(name, {"--steps", "100000"},
                    *name == 'c' ? "weight = 2\n" : ""));
  }
  EXPECT_EQ(
      Do({"queue", "--format", "name,weight,app", "--sort", "name"}).output,
      "NAME WEIGHT APP\n"
      "a    1      -\n"
      "b    1      -\n"
      "c    2      -\n");
  const json rows =
      Json({"queue", "--sort=-weight,id", "--format", "id,weight"});
  EXPECT_EQ(rows.dump(),
            R"([{"id":2,"weight":2},{"id":1,"weight":1},{"id":3,"weight":1}])");
  ExpectRefused({"queue", "--sort", "colour"}, "--sort \"colour\" is no key");
  ExpectRefused(
      {"queue", "--format", "id,colour"},
      "--format \"colour\" is no key of a job; the keys are id, name");
}

TEST_F(OperatorTest, NodesForgetRemovesAServerThatIsGone) {
  StartCluster(1);
  ExpectRefused({"nodes", "--forget", "here"}, "server here is there");
  agent_->Signal(SIGTERM);
  EXPECT_EQ(agent_->Wait(), 0);
  const Ended forgotten = Do({"nodes", "--forget", "here"});
  EXPECT_EQ(forgotten.exit_code, 0) << forgotten.errors;
  EXPECT_TRUE(Json({"nodes"}).empty());
}

TEST_F(OperatorTest, LogsOfAJobThatFailsFailAndGiveATerminalNoCommands) {
  StartCluster(1);
  const time_t before = time(nullptr);
  Submit(WriteCommand("a",
                      {"sh", "-c", R"(printf '\033]0;evil\007loss\n'; exit 3)"},
                      "retries_max = 1\n"));
  const Ended followed = Do({"logs", "-f", "a"});
  EXPECT_EQ(followed.exit_code, 1);
  EXPECT_THAT(followed.errors, HasSubstr("Job 1 (a) is held: failed"));
  EXPECT_EQ(followed.output, "\x1b]0;evil\x07loss\n") << "a pipe gets all";
  EXPECT_THAT(OnATerminal({"logs", "a"}), HasSubstr("\\x1b]0;evil\\x07loss"));
  EXPECT_THAT(OnATerminal({"logs", "a", "--json"}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(OnATerminal({"logs", "a", "--raw"}),
              HasSubstr("\x1b]0;evil\x07loss"));
  const json row = QueueRow(endpoint_, "a");
  EXPECT_EQ(row["exit"]["exit_code"], 3);
  EXPECT_GE(row.value("submitted_at_s", 0.0), static_cast<double>(before) - 1);
  EXPECT_EQ(Do({"cancel", "a"}).exit_code, 0);
  const json cancelled = QueueRow(endpoint_, "a");
  EXPECT_EQ(cancelled["exit"]["exit_code"], 3);
  EXPECT_GE(cancelled.value("ended_at_s", 0.0),
            row.value("submitted_at_s", 0.0));
  EXPECT_EQ(Do({"logs", "-f", "a"}).exit_code, 1);
  Submit(WriteCommand("b", {"echo", "hi"}));
  EXPECT_EQ(Do({"logs", "-f", "b"}).exit_code, 0);
}

TEST_F(OperatorTest, LogsOfAJobThatMovedAreOneStream) {
  StartCluster(1);
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  Write("there.toml",
        "[[server]]\nname = \"there\"\n[[server.accelerator]]\n"
        "type = \"cpu\"\ncount = 1\n");
  const auto other = Start({"agent", "--coordinator", endpoint_, "--server",
                            "there", "--cluster", Path("there.toml"), "--state",
                            Path("there"), "--jobs-as-root"});
  EXPECT_TRUE(Eventually([&] { return Json({"nodes"}).size() == 2; }));
  EXPECT_EQ(Do({"drain", "here"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] {
    const json row = QueueRow(endpoint_, "a");
    return row["accelerators"].size() == 1 &&
           row["accelerators"][0]["server"] == "there";
  }));
  ASSERT_TRUE(Eventually([&] {
    return Count(Do({"logs", "a"}).output, "starts at step") == 2;
  }));
  const Ended now = Do({"logs", "a"});
  EXPECT_EQ(now.output.find("starts at step"),
            now.output.find("starts at step 0"))
      << "the first server's first";
  EXPECT_THAT(Do({"logs", "a", "--server", "there"}).output,
              Not(HasSubstr("starts at step 0")));
  const json first = json::parse(
      Do({"logs", "a", "--json"})
          .output.substr(0, Do({"logs", "a", "--json"}).output.find('\n')));
  EXPECT_EQ(first["server"], "here");
  EXPECT_GT(first["written_s"], 1e9);
  // It goes back, and the stream with it.
  EXPECT_EQ(Do({"resume", "here"}).exit_code, 0);
  EXPECT_EQ(Do({"drain", "there"}).exit_code, 0);
  ASSERT_TRUE(Eventually([&] {
    return Count(Do({"logs", "a"}).output, "starts at step") == 3;
  }));
  const auto follow = Start({"logs", "-f", "a", "--coordinator", endpoint_});
  EXPECT_TRUE(Eventually(
      [&] { return Count(follow->output(), "starts at step") == 3; }));
  EXPECT_EQ(Do({"logs", "a", "--since", "1h"}).output.find("starts at step 0"),
            now.output.find("starts at step 0"));
  ExpectRefused({"logs", "a", "--since", "noon"}, "noon");
  EXPECT_EQ(Do({"cancel", "a"}).exit_code, 0);
  EXPECT_EQ(follow->Wait(), 1);
  EXPECT_EQ(Count(follow->output(), "starts at step"), 3) << "once each";
  const Ended before = Do({"logs", "a", "--server", "here"});
  EXPECT_EQ(before.exit_code, 0) << before.errors;
  EXPECT_THAT(before.output, HasSubstr("starts at step 0"));
  ExpectRefused({"logs", "a", "--server", "nowhere"}, "no server \"nowhere\"");
}

TEST_F(OperatorTest, ResumeOfAServerSaysWhatStaysDrained) {
  StartCluster(2);
  const json nodes = Json({"nodes"});
  const std::string one =
      "here/" + nodes[0]["accelerators"][0]["uuid"].get<std::string>();
  EXPECT_EQ(Do({"drain", one, "here"}).exit_code, 0);
  const Ended resumed = Do({"resume", "here"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_THAT(resumed.output,
              HasSubstr("still so: " + one + " (`gavel resume " + one + "`)"));
  EXPECT_EQ(Do({"resume", one}).output, "Resumed " + one + "\n");
}

TEST_F(OperatorTest, UsageTellsHoursUsedAndEntitled) {
  WriteCluster(1, 2, 1);
  StartCoordinator({"--policy", "max_min_fairness"});
  agent_ = StartAgent();
  SubmitLong("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 400));
  const json usage = Json({"usage", "--since", "1h"});
  ASSERT_EQ(usage["users"].size(), 1u) << usage;
  EXPECT_GT(usage["users"][0].value("used_h", 0.0), 0.0);
  EXPECT_GT(usage["users"][0].value("entitled_h", 0.0), 0.0);
  ExpectRefused({"usage", "--user", "nobody", "--json"}, "nobody");
}

}  // namespace
}  // namespace gavel::testing
