// An agent with real processes, against a coordinator that is a bare ROUTER
// here.
#include "coordinator/agent_host/agent_shell.h"

#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <variant>

#include "core/status.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"
#include "tests/support/silent_mount.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr JournalPosition kPosition{1, 1};

class AgentShellTest : public Test {
 protected:
  void SetUp() override {
    router_ = *Router::Bind("tcp://127.0.0.1:0");
    options_.server = "here";
    options_.coordinator = router_->endpoint();
    options_.state_directory = folder_.path() + "/state";
    options_.accelerators.resize(1);
    options_.accelerators[0].type = "cpu";
    options_.accelerators[0].uuid = "here-0";
    options_.stop_grace_s = 5;
  }
  void TearDown() override { Stop(); }

  void Start() {
    shell_ = *AgentShell::Create(options_);
    thread_ = std::thread([this] { ended_ = shell_->Run(); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    shell_->Stop();
    thread_.join();
    shell_.reset();
  }

  // The next message of type T; others are passed over.
  template <class T>
  T Receive() {
    for (const double end = Seconds() + kPatience_s; Seconds() < end;) {
      std::optional<Incoming> incoming = router_->Receive(1);
      if (!incoming) continue;
      agent_ = incoming->peer;
      if (auto* found = std::get_if<T>(&incoming->message)) return *found;
    }
    ADD_FAILURE() << "the message did not come";
    return T();
  }
  void Send(const Message& message) {
    EXPECT_OK(router_->Send(agent_, message));
  }
  AgentHello Welcome(const std::string& cluster = "1234") {
    const AgentHello hello = Receive<AgentHello>();
    Send(AgentWelcome{"here", kPosition, 0.5, hello.incarnation, hello.state_id,
                      cluster});
    return hello;
  }
  WorkerKey Launch(uint64_t job, std::vector<std::string> argv,
                   const std::string& directory = "",
                   const std::string& unix_user = "") {
    LaunchWorker launch;
    launch.unix_user = unix_user;
    launch.server = "here";
    launch.worker = {JobId(job), 0, 1};
    launch.position = kPosition;
    launch.job_name = "job";
    launch.argv = std::move(argv);
    launch.working_directory = directory.empty() ? folder_.path() : directory;
    Send(launch);
    return launch.worker;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Router> router_;
  AgentShellOptions options_;
  std::unique_ptr<AgentShell> shell_;
  std::thread thread_;
  absl::Status ended_;
  std::string agent_;
};

TEST_F(AgentShellTest, LaunchesTellsTheExitAndServesTheLog) {
  Start();
  EXPECT_EQ(Welcome().incarnation >> 32, 1);
  const WorkerKey worker =
      Launch(3, {"/bin/sh", "-c", "echo \"I am $GAVEL_JOB\"; exit 5"});
  EXPECT_EQ(Receive<WorkerLaunched>().worker, worker);
  const WorkerExited exited = Receive<WorkerExited>();
  EXPECT_EQ(exited.worker, worker);
  EXPECT_EQ(exited.exit_code, 5);
  EXPECT_FALSE(exited.no_failure);
  EXPECT_EQ(Receive<WorkerExited>().worker, worker);  // until acknowledged
  Send(ExitAcknowledged{"here", worker});
  Send(LogRequest{9, worker.worker(), 0});
  const LogReply reply = Receive<LogReply>();
  EXPECT_EQ(reply.request, 9);
  EXPECT_EQ(reply.data, "I am 3\n");
}

TEST_F(AgentShellTest, TellsWithWhatTheSessionEndedWhateverTheShellEndsWith) {
  Start();
  Welcome();
  const auto told = [&](uint64_t job, const std::string& script) {
    Launch(job, {"/bin/sh", "-c", script});
    const WorkerExited exited = Receive<WorkerExited>();
    EXPECT_EQ(exited.worker.job, JobId(job));
    EXPECT_EQ(exited.exit_code, 0);
    Send(ExitAcknowledged{"here", exited.worker});
    return exited.finished_code;
  };
  EXPECT_EQ(told(1, "(printf 75 > $GAVEL_END_FILE; exit 75) | cat"), 75);
  EXPECT_EQ(told(2, "printf 0 > $GAVEL_END_FILE"), 0);
  EXPECT_EQ(told(3, "true"), std::nullopt);
  EXPECT_EQ(told(4, "echo nonsense > $GAVEL_END_FILE"), std::nullopt);
  EXPECT_TRUE(
      std::filesystem::is_empty(options_.state_directory + "/ends-here"));
}

TEST_F(AgentShellTest, LinesAreInTheLogWhileTheProgramRuns) {
  Start();
  Welcome();
  // sed writes by stdio, and to a file or pipe only at its end.
  const WorkerKey worker = Launch(
      3, {"/bin/sh", "-c", "(echo hello; sleep 1000) | sed s/hello/jello/"});
  Receive<WorkerLaunched>();
  std::string text;
  EXPECT_TRUE(Eventually([&] {
    Send(LogRequest{1, worker.worker(), 0});
    const LogReply reply = Receive<LogReply>();
    EXPECT_FALSE(reply.ended);
    text = reply.data;
    return !text.empty();
  }));
  EXPECT_EQ(text, "jello\n");
}

TEST_F(AgentShellTest, AFailureIsToldWithItsLastErrorLine) {
  Start();
  Welcome();
  Launch(3, {"/bin/sh", "-c", "echo 'ValueError: bad shape' >&2; exit 1"});
  WorkerExited exited = Receive<WorkerExited>();
  EXPECT_EQ(exited.error_line, "ValueError: bad shape");
  EXPECT_FALSE(exited.launch_hung);
  Send(ExitAcknowledged{"here", exited.worker});
  const WorkerKey evicted =
      Launch(4, {"/bin/sh", "-c", "echo 'no error'; exit 75"});
  do {
    exited = Receive<WorkerExited>();
  } while (exited.worker != evicted);
  EXPECT_EQ(exited.error_line, "");
}

// Ids start anew with a new journal: a job's output is not for the next one of
// its number.
TEST_F(AgentShellTest, ALogIsOfOneClusterOnly) {
  Start();
  Welcome("1111");
  const WorkerKey worker = Launch(3, {"/bin/echo", "secret"});
  Send(ExitAcknowledged{"here", Receive<WorkerExited>().worker});
  Stop();
  Start();
  Welcome("2222");
  Send(LogRequest{7, worker.worker(), 0});
  EXPECT_THAT(Receive<LogReply>().error, HasSubstr("no output"));
  Launch(3, {"/bin/echo", "mine"});
  Receive<WorkerExited>();
  Send(LogRequest{8, worker.worker(), 0});
  EXPECT_EQ(Receive<LogReply>().data, "mine\n");
}

TEST_F(AgentShellTest, AHungWorkingDirectoryKeepsNobodyElseWaiting) {
  const auto mount = testing::SilentMount::Make(folder_.path() + "/mount");
  if (!mount.ok()) GTEST_SKIP() << mount.status().message();
  options_.exec_limit_s = 8;  // far more than the rest takes on a busy machine
  Start();
  Welcome();
  const double before = Seconds();
  const auto passed_s = [&] { return Seconds() - before; };
  const WorkerKey hung =
      Launch(3, {"/bin/true"}, folder_.path() + "/mount/job");
  ASSERT_TRUE(Eventually([&] { return (*mount)->asked(); }));
  const WorkerKey other = Launch(4, {"/bin/sh", "-c", "echo fine; exit 6"});
  EXPECT_EQ(Receive<WorkerLaunched>().worker, other);
  EXPECT_EQ(Receive<WorkerExited>().exit_code, 6);
  Send(LogRequest{1, other.worker(), 0});
  EXPECT_EQ(Receive<LogReply>().data, "fine\n");
  Receive<AgentHeartbeat>();
  EXPECT_LT(passed_s(), options_.exec_limit_s);

  Send(ExitAcknowledged{"here", other});
  WorkerExited exited = Receive<WorkerExited>();
  while (exited.worker == other) exited = Receive<WorkerExited>();
  EXPECT_EQ(exited.worker, hung);
  EXPECT_TRUE(exited.launch_hung);
  EXPECT_THAT(exited.launch_error, HasSubstr("of the program or of "));
  EXPECT_THAT(exited.launch_error, HasSubstr("/mount/job (working_directory)"));
  EXPECT_GE(passed_s(), options_.exec_limit_s);
  // Its process can't even be killed now; the agent ends all the same.
  Stop();
  EXPECT_LT(passed_s(), options_.exec_limit_s + 15);
}

TEST_F(AgentShellTest, StopsWithGraceThenWithForce) {
  Start();
  Welcome();
  const WorkerKey worker = Launch(3, {"/bin/sh", "-c",
                                      "trap 'echo asked' TERM; echo ready; "
                                      "while :; do sleep .01; done"});
  const auto log = [&] {
    Send(LogRequest{1, worker.worker(), 0});
    return Receive<LogReply>().data;
  };
  Receive<WorkerLaunched>();
  EXPECT_TRUE(Eventually([&] { return !log().empty(); }));
  Send(StopWorker{"here", worker, kPosition, 0.3});
  EXPECT_EQ(Receive<WorkerExited>().signal, SIGKILL);
  EXPECT_THAT(log(), HasSubstr("asked"));
}

TEST_F(AgentShellTest, AtItsEndAllWorkersGoAndThatIsNoFailure) {
  Start();
  Welcome();
  Launch(3, {"/bin/sleep", "1000"});
  const pid_t pid = static_cast<pid_t>(Receive<WorkerLaunched>().pid);
  shell_->Stop();
  const WorkerExited exited = Receive<WorkerExited>();
  EXPECT_EQ(exited.signal, SIGTERM);
  EXPECT_TRUE(exited.no_failure);
  Send(ExitAcknowledged{"here", exited.worker});
  thread_.join();
  EXPECT_OK(ended_);
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(AgentShellTest, ARejectedAgentKillsItsWorkersAndSaysWhy) {
  Start();
  const AgentHello hello = Welcome();
  Launch(3, {"/bin/sleep", "1000"});
  const pid_t pid = static_cast<pid_t>(Receive<WorkerLaunched>().pid);
  Send(AgentRejected{"here", kPosition, "another agent has this name",
                     hello.incarnation, hello.state_id});
  thread_.join();
  EXPECT_THAT(ended_, StatusIs(kAborted, "another agent has this name"));
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(AgentShellTest, ARevokedAgentSaysSoAndEndsItsWorkers) {
  const CurveKeyPair coordinator = NewCurveKeyPair().value();
  const CurveKeyPair own = NewCurveKeyPair().value();
  std::atomic<bool> allowed{true};
  RouterOptions router;
  router.keys = coordinator;
  router.may_connect = [&](const std::string&, const std::string&) {
    return allowed ? Admission::kAllowed : Admission::kRevoked;
  };
  router_ = *Router::Bind("tcp://127.0.0.1:0", std::move(router));
  options_.coordinator = router_->endpoint();
  options_.keys = CurveClient{own, coordinator.public_key};
  options_.stop_grace_s = 0;
  Start();
  Welcome();
  Launch(3, {"/bin/sleep", "1000"}, "/",
         getpwuid(geteuid() == 0 ? 65534 : geteuid())->pw_name);
  const pid_t pid = static_cast<pid_t>(Receive<WorkerLaunched>().pid);
  ASSERT_GT(pid, 0);
  allowed = false;
  std::optional<Incoming> heard;
  while (!heard) heard = router_->Receive(kPatience_s);
  router_->Cut(*heard);
  thread_.join();
  EXPECT_THAT(ended_, StatusIs(kAborted, "key revoked: "));
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(AgentShellTest, OtherChildrenOfTheHostAreLeftToIt) {
  const pid_t mine = fork();
  if (mine == 0) _exit(6);
  Start();
  Welcome();
  Launch(3, {"/bin/true"});
  Receive<WorkerExited>();
  int status = 0;
  EXPECT_EQ(waitpid(mine, &status, 0), mine);
  EXPECT_EQ(WEXITSTATUS(status), 6);
}

TEST_F(AgentShellTest, WrongOptionsAreRefused) {
  AgentShellOptions options = options_;
  options.server = "no name";
  EXPECT_THAT(AgentShell::Create(options), IsInvalid("no name"));
  options = options_;
  options.accelerators.clear();
  EXPECT_THAT(AgentShell::Create(options), IsInvalid("has no accelerators"));
  options = options_;
  options.coordinator = "example.org:7077";
  EXPECT_THAT(AgentShell::Create(options),
              StatusIs(kPermissionDenied, "loopback"));
  std::ofstream(folder_.path() + "/file");
  options = options_;
  options.state_directory = folder_.path() + "/file";
  EXPECT_THAT(AgentShell::Create(options),
              StatusIs(kPermissionDenied, "--state"));
}

// The terminal of a worker, as a client sees it through the coordinator.
class AgentTerminalTest : public AgentShellTest {
 protected:
  WorkerKey LaunchTerminal(uint64_t job, std::vector<std::string> argv) {
    LaunchWorker launch;
    launch.server = "here";
    launch.worker = {JobId(job), 0, 1};
    launch.position = kPosition;
    launch.job_name = "job";
    launch.argv = std::move(argv);
    launch.working_directory = folder_.path();
    launch.terminal = true;
    Send(launch);
    request_.worker = launch.worker;
    request_.client = 7;
    request_.attach = true;
    return launch.worker;
  }
  // Types, and collects output until it has this text, or has ended.
  bool Shows(const std::string& text, const std::string& input = "") {
    typed_ += input;
    for (const double end = Seconds() + kPatience_s; Seconds() < end;) {
      ++request_.request;
      request_.input = typed_;
      Send(request_);
      const TerminalReply reply = NextReply();
      // The process may not have begun.
      if (!reply.error.empty()) continue;
      request_.attach = false;
      shown_ += reply.output;
      request_.offset = reply.offset + reply.output.size();
      ended_at_last_ = reply.ended;
      if (shown_.find(text) != std::string::npos) return true;
      if (reply.ended) return false;
    }
    return false;
  }

  TerminalReply NextReply() {
    for (const double end = Seconds() + kPatience_s; Seconds() < end;) {
      const std::optional<Incoming> incoming = router_->Receive(1);
      if (!incoming) continue;
      const Message& message = incoming->message;
      if (const auto* used = std::get_if<TerminalActive>(&message)) {
        used_.insert(used->worker);
      }
      const auto* const reply = std::get_if<TerminalReply>(&message);
      if (reply != nullptr) return *reply;
    }
    ADD_FAILURE() << "no answer came";
    return TerminalReply();
  }

  TerminalRequest request_;
  std::string typed_, shown_;
  std::set<WorkerKey> used_;  // by TerminalActive
  bool ended_at_last_ = false;
};

TEST_F(AgentTerminalTest, IsTheControllingOneWithInputSizeAndSignals) {
  Start();
  Welcome();
  const WorkerKey worker = LaunchTerminal(3, {"/bin/sh"});
  request_.rows = 33;
  request_.columns = 77;
  ASSERT_TRUE(Shows("77", "stty size\n")) << shown_;
  EXPECT_THAT(shown_, HasSubstr("33 77"));
  ASSERT_TRUE(Shows("tty-ok", "echo x > /dev/tty && echo t''ty-ok\n"));
  ASSERT_TRUE(Shows("be-1-gin", "echo be-$((1))-gin; sleep 1000\n"));
  ASSERT_TRUE(Shows("af-1-ter",
                    "\x03"
                    "echo af-$((1))-ter\n"))
      << shown_;
  ASSERT_TRUE(Shows("by[]", "echo by[$GAVEL_WORKER_COORDINATOR]\n"))
      << "what is started there is no worker";
  EXPECT_FALSE(Shows("never shown", "exit 5\n"));
  EXPECT_TRUE(ended_at_last_);
  const WorkerExited exited = Receive<WorkerExited>();
  EXPECT_EQ(exited.worker, worker);
  EXPECT_EQ(exited.exit_code, 5);
  Send(ExitAcknowledged{"here", worker});
  // All of it is in the log, too.
  Send(LogRequest{9, worker.worker(), 0});
  EXPECT_THAT(Receive<LogReply>().data, HasSubstr("33 77"));
}

TEST_F(AgentTerminalTest, TellsOfUse) {
  Start();
  Welcome();
  const WorkerKey worker = LaunchTerminal(3, {"/bin/sh"});
  ASSERT_TRUE(Shows("sa-1-id", "echo sa-$((1))-id\n"));
  EXPECT_FALSE(Shows("never shown", "exit\n"));
  EXPECT_THAT(used_, ElementsAre(worker));
}

TEST_F(AgentTerminalTest, ShowsNoticesOfTheCoordinator) {
  Start();
  Welcome();
  const WorkerKey worker = LaunchTerminal(3, {"/bin/sh"});
  ASSERT_TRUE(Shows("sa-1-id", "echo sa-$((1))-id\n"));
  Send(TerminalNotice{"here", worker, kPosition, "idle: it ends in 60 s"});
  EXPECT_TRUE(Shows("[gavel: idle: it ends in 60 s]"));
}

// Interactive shells ignore SIGTERM.
TEST_F(AgentTerminalTest, IsStoppedByAHangUp) {
  Start();
  Welcome();
  const WorkerKey worker = LaunchTerminal(3, {"/bin/sh", "-i"});
  ASSERT_TRUE(Shows("sa-1-id", "echo sa-$((1))-id\n"));
  Send(StopWorker{"here", worker, kPosition, 100});
  const double begin = Seconds();
  EXPECT_EQ(Receive<WorkerExited>().worker, worker);
  EXPECT_LT(Seconds() - begin, 50) << "not by the SIGKILL at the end";
}

}  // namespace
}  // namespace gavel
