// `gavel shell`: a terminal on an accelerator.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/job_commands.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/what_if.h"
#include "coordinator/workload/job_spec.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// ---- The user's terminal, attached to that of an interactive job.

enum class SessionEnd {
  kEnded,    // the process is gone, and all of its output was shown
  kDetached  // `stop` was set, or the user has left while there was a trouble
};

constexpr int kCtrlCsToLeave = 3;

// How often the window and `stop` are looked at.
constexpr double kLook_s = 0.2;
// Between two requests that carry input, so that a fast typist stays within
// the requests a second of a user.
constexpr double kInputInterval_s = 0.02;
// Behind an error that may pass.
constexpr double kRetry_s = 1;
// The client shows a trouble that has lasted so long.
constexpr double kQuiet_s = 3;
// The coordinator itself gives up on the agent after 10 s.
constexpr double kLost_s = 12;
// Input that was read and not yet taken.
constexpr size_t kInputMax = 4096;

// Sets the terminal of standard input to pass on every key, and restores its
// mode in the destructor. Does nothing if standard input is not a terminal.
class RawInput {
 public:
  RawInput() : is_terminal_(tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_terminal_) return;
    termios raw = before_;
    cfmakeraw(&raw);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawInput() {
    if (is_terminal_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

 private:
  termios before_{};
  const bool is_terminal_;
};

// Reads standard input on a thread of its own, at most kInputMax bytes ahead.
class Keyboard {
 public:
  explicit Keyboard(Waker& waker) : thread_([this, &waker] { Work(waker); }) {}
  ~Keyboard() {
    ends_ = true;
    thread_.join();
  }
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  std::string Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(input_, {});
  }

 private:
  void Work(Waker& waker) {
    constexpr int kLook_ms = 50;
    constexpr char kEndOfInput = '\x04';
    bool over = false;
    char last = '\n';
    while (!ends_ && !over) {
      pollfd item{STDIN_FILENO, POLLIN, 0};
      if (IsFull() || poll(&item, 1, kLook_ms) <= 0) {
        if (IsFull()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(kLook_ms));
        }
        continue;
      }
      std::array<char, kInputMax> data{};
      const ssize_t bytes = read(STDIN_FILENO, data.data(), data.size());
      if (bytes < 0 && errno == EINTR) continue;
      over = bytes <= 0;
      {
        const std::lock_guard lock(mutex_);
        if (over) {
          // In the middle of a line the first one only hands that over.
          input_.append(last == '\n' ? 1 : 2, kEndOfInput);
        } else {
          input_.append(data.data(), static_cast<size_t>(bytes));
          last = input_.back();
        }
      }
      waker.Wake();
    }
  }
  bool IsFull() {
    const std::lock_guard lock(mutex_);
    return input_.size() >= kInputMax;
  }

  std::atomic<bool> ends_ = false;
  std::mutex mutex_;  // guards the next one
  std::string input_;
  std::thread thread_;
};

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = write(STDOUT_FILENO, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
}

class Session {
 public:
  Session(Client& client, JobId job) : client_(client) {
    request_.worker = {job, 0, 0};
    std::random_device random;
    request_.client = (uint64_t{random()} << 32 | random()) | 1;
    request_.attach = true;
  }

  absl::StatusOr<SessionEnd> Run(const std::atomic<bool>& stop) {
    const RawInput raw;
    Keyboard keyboard(client_.waker());
    while (!stop) {
      // In a trouble there is room for more, so that Ctrl-C is seen.
      if (input_.size() < (told_ ? 16 * kInputMax : kInputMax)) {
        const std::string typed = keyboard.Take();
        if (told_ && LeavesWith(typed)) return SessionEnd::kDetached;
        input_ += typed;
      }
      AskIfDue();
      auto received = client_.Receive(WaitTime());
      if (!received.ok()) {
        Tell(std::string(received.status().message()));
        std::this_thread::sleep_for(std::chrono::duration<double>(kRetry_s));
        continue;
      }
      if (!received->has_value()) continue;
      const auto* const reply = std::get_if<TerminalReply>(&**received);
      if (reply == nullptr || reply->request > last_request_) continue;
      GAVEL_ASSIGN_OR_RETURN(const bool ended, Take(*reply));
      if (ended) return SessionEnd::kEnded;
    }
    return SessionEnd::kDetached;
  }

 private:
  // True: the process is gone.
  absl::StatusOr<bool> Take(const TerminalReply& reply) {
    if (reply.request == last_request_) is_waiting_ = false;
    if (reply.refused) return absl::FailedPreconditionError(reply.error);
    if (!reply.error.empty()) {
      ask_at_ = MonotonicNow() + kLook_s;
      Tell(reply.error);
      return false;
    }
    if (!attached_) {
      attached_ = true;
      request_.attach = false;
      request_.worker = reply.worker;
      input_begin_ = sent_to_ = reply.input_taken;
    }
    told_ = false;
    trouble_since_ = kNever;
    const uint64_t taken = std::min<uint64_t>(
        input_.size(),
        std::max(reply.input_taken, input_begin_) - input_begin_);
    input_.erase(0, taken);
    input_begin_ += taken;
    const uint64_t end = reply.offset + reply.output.size();
    if (end > request_.offset) {
      const uint64_t known =
          std::max(reply.offset, request_.offset) - reply.offset;
      WriteAll(std::string_view(reply.output).substr(known));
      request_.offset = end;
    }
    return reply.ended;
  }

  // Whether these keys complete kCtrlCsToLeave times Ctrl-C in a row.
  bool LeavesWith(std::string_view typed) {
    constexpr char kCtrlC = '\x03';
    for (const char key : typed) {
      ctrl_cs_ = key == kCtrlC ? ctrl_cs_ + 1 : 0;
      if (ctrl_cs_ >= kCtrlCsToLeave) return true;
    }
    return false;
  }

  bool HasNewInput() const {
    return attached_ && input_begin_ + input_.size() > sent_to_;
  }

  void AskIfDue() {
    const Time now = MonotonicNow();
    const bool is_lost = is_waiting_ && now >= asked_at_ + kLost_s;
    const bool may_hurry = now >= asked_at_ + kInputInterval_s;
    const bool hurries = may_hurry && (HasNewInput() || LookAtWindow());
    if (is_waiting_ && now >= waiting_since_ + kLost_s) {
      trouble_since_ = std::min(trouble_since_, waiting_since_);
      Tell("the coordinator does not answer");
    }
    if (now < ask_at_ || (is_waiting_ && !is_lost && !hurries)) return;
    // Input that was not taken, say for want of room, is sent again.
    request_.input_offset = input_begin_;
    request_.input = attached_ ? input_.substr(0, kTerminalBytesMax) : "";
    request_.request = client_.NextRequest();
    asked_at_ = now;
    if (!client_.Send(request_).ok()) {
      ask_at_ = now + kRetry_s;
      return Tell("the coordinator does not answer");
    }
    last_request_ = request_.request;
    if (!std::exchange(is_waiting_, true)) waiting_since_ = now;
    if (attached_) sent_to_ = input_begin_ + request_.input.size();
  }

  // True: it has another size than before.
  bool LookAtWindow() {
    winsize window{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return false;
    const bool changed =
        window.ws_row != request_.rows || window.ws_col != request_.columns;
    request_.rows = window.ws_row;
    request_.columns = window.ws_col;
    return changed;
  }

  double WaitTime() const {
    if (!is_waiting_) return std::clamp(ask_at_ - MonotonicNow(), 0.0, kLook_s);
    if (!HasNewInput()) return kLook_s;
    return std::clamp(asked_at_ + kInputInterval_s - MonotonicNow(), 0.0,
                      kLook_s);
  }

  // Shows the trouble once, until the terminal goes on; not if it passes soon.
  void Tell(const std::string& trouble) {
    const Time now = MonotonicNow();
    trouble_since_ = std::min(trouble_since_, now);
    if (now < trouble_since_ + kQuiet_s) return;
    if (std::exchange(told_, true)) return;
    ctrl_cs_ = 0;
    WriteAll(StrCat("\r\n[gavel: ", trouble,
                    "; trying on, Ctrl-C three times leaves]\r\n"));
  }

  Client& client_;
  TerminalRequest request_;   // the next one, and the last
  bool attached_ = false;     // has been answered
  std::string input_;         // read, and not taken by the agent
  uint64_t input_begin_ = 0;  // where it begins
  uint64_t sent_to_ = 0;      // input that was sent once
  uint64_t last_request_ = 0;
  bool is_waiting_ = false;  // for the answer to it
  Time waiting_since_ = 0;   // and to those before it
  Time asked_at_ = -kNever;
  Time ask_at_ = 0;  // not before
  Time trouble_since_ = kNever;
  bool told_ = false;
  int ctrl_cs_ = 0;  // in a row, since the trouble was shown
};

// Connects standard input and output with the terminal of the job's process
// until that ends. Keys go to the process as they are, Ctrl-C too, when
// standard input is a terminal; else its end is sent as Ctrl-D. While the
// coordinator or the agent does not answer it tries on, until Ctrl-C is typed
// three times.
// FAILED_PRECONDITION: the terminal is refused, or another client has attached.
absl::StatusOr<SessionEnd> AttachTerminal(Client& client, JobId job,
                                          const std::atomic<bool>& stop) {
  return Session(client, job).Run(stop);
}

// ---- The command.

constexpr double kShellWaitInterval_s = 0.1;
// The user learns why a job waits for longer than this.
constexpr double kQuietWait_s = 2;
// From the end of its output to that of the job.
constexpr double kEndWait_s = 10;

struct ShellOptions : Connection {
  std::vector<std::string> program;  // empty: the user's shell
  std::optional<std::string> name;
  std::optional<std::string> types;  // by commas
  std::string server;
  std::optional<double> idle_limit_s;
  std::string attach;  // a job
};

std::string VariableOr(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// A job that only waits for ever, since nobody has such a server or type, or no
// such server has such a type, is not submitted.
absl::Status CheckPlace(Client& client, const ShellOptions& options,
                        const JobSpec& spec) {
  if (options.server.empty() && !options.types) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(QueryKind::kNodes));
  std::set<std::string> servers;
  std::set<std::string> types;
  const std::vector<NodeRow> nodes = ParseNodes(json);
  for (const NodeRow& node : nodes) {
    servers.insert(node.server);
    for (const AcceleratorRow& one : node.accelerators) types.insert(one.type);
  }
  if (options.types) {
    const std::vector<std::string> wanted = absl::StrSplit(*options.types, ',');
    for (const std::string& type : wanted) {
      if (types.contains(type)) continue;
      return absl::NotFoundError(StrCat("--types names \"", type,
                                        "\", which the cluster does not "
                                        "have; it has ",
                                        absl::StrJoin(types, ", ")));
    }
  }
  if (options.server.empty()) return FitOf(spec, nodes).status();
  const auto node = std::ranges::find(nodes, options.server, &NodeRow::server);
  if (node == nodes.end()) {
    return absl::NotFoundError(StrCat("there is no server \"", options.server,
                                      "\"; the cluster has ",
                                      absl::StrJoin(servers, ", ")));
  }
  if (node->state == "drained" || node->state == "draining") {
    return absl::FailedPreconditionError(
        StrCat("server ", node->server, " is ", node->state,
               "; name another one, or have an operator give it back with "
               "`gavel resume ",
               node->server, "`"));
  }
  if (node->state == "down") {
    return absl::FailedPreconditionError(
        StrCat("server ", node->server,
               " is down; name another one, or start `gavel agent` there"));
  }
  return FitOf(spec, nodes).status();
}

absl::StatusOr<JobId> SubmitShell(Client& client, const ShellOptions& options) {
  std::vector<std::string> program = options.program;
  if (program.empty()) program = {VariableOr("SHELL", "/bin/sh")};
  std::vector<JobSetting> settings = {
      ProgramSetting(program),
      {"shell", "class", "interactive"},
      {"shell", "environment.TERM", VariableOr("TERM", "xterm")}};
  std::string name = options.name.value_or("");
  if (name.empty()) {
    GAVEL_ASSIGN_OR_RETURN(
        name,
        client.FreeName(options.program.empty() ? "shell" : program.front()));
  }
  settings.push_back({"--name", "name", name});
  if (options.types) settings.push_back({"--types", "types", *options.types});
  if (!options.server.empty()) {
    settings.push_back({"--server", "servers", options.server});
  }
  if (options.idle_limit_s) {
    settings.push_back({"--idle-limit", "idle_limit",
                        absl::StrFormat("%.3f", *options.idle_limit_s)});
  }
  GAVEL_ASSIGN_OR_RETURN(const JobFile file, MakeJobFile("shell", settings));
  GAVEL_RETURN_IF_ERROR(CheckPlace(client, options, file.spec));
  return client.Submit(file.path, file.text, file.directory);
}

// Waits until the job runs, or has ended; tells why it waits. Nothing: `stop`
// was set.
absl::StatusOr<std::optional<QueueRow>> WaitForStart(
    Client& client, JobId job, const std::atomic<bool>& stop) {
  const double since = MonotonicNow();
  std::string told;
  while (!stop) {
    GAVEL_ASSIGN_OR_RETURN(QueueRow row, JobOf(client, job));
    if (row.state == "R" || row.Ended()) return row;
    const bool is_long = MonotonicNow() - since >= kQuietWait_s;
    if (is_long && row.reason != told) {
      told = row.reason;
      absl::FPrintF(stderr, "gavel: job %d (%s) is %s; Ctrl-C cancels it\n",
                    row.id, row.name, row.reason);
    }
    client.Sleep(kShellWaitInterval_s);
  }
  return std::nullopt;
}

// The exit code of the program, once the coordinator has heard of its end.
absl::StatusOr<int> ExitCodeAtEnd(Client& client, JobId job) {
  const double until = MonotonicNow() + kEndWait_s;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const QueueRow row, JobOf(client, job));
    if (row.Ended()) {
      if (row.state != "CD") {
        absl::FPrintF(stderr, "gavel: %s\n", OutcomeText(row));
      }
      return ExitCodeOfJob(row);
    }
    if (MonotonicNow() >= until) {
      return absl::UnavailableError(
          StrCat("the process of job ", row.id, " is gone, and the job is ",
                 row.reason, "; `gavel shell --attach ", row.id,
                 "` goes on, `gavel cancel ", row.id, "` ends it"));
    }
    client.Sleep(kShellWaitInterval_s);
  }
}

absl::StatusOr<int> Shell(const ShellOptions& options) {
  const StopFlag stop;
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  const bool attaches = !options.attach.empty();
  GAVEL_ASSIGN_OR_RETURN(const JobId job, attaches
                                              ? client->Resolve(options.attach)
                                              : SubmitShell(*client, options));
  GAVEL_ASSIGN_OR_RETURN(const std::optional<QueueRow> started,
                         WaitForStart(*client, job, *stop.get()));
  if (!started.has_value()) {
    if (attaches) return kExitInterrupted;
    GAVEL_RETURN_IF_ERROR(client->Command(CommandKind::kCancel, job));
    absl::FPrintF(stderr, "gavel: job %d is cancelled\n", job.value());
    return kExitInterrupted;
  }
  // A short program may be over already, and its output is yet to be shown.
  if (started->Ended() && started->incarnations == 0) {
    absl::FPrintF(stderr, "gavel: %s\n", OutcomeText(*started));
    return ExitCodeOfJob(*started);
  }
  GAVEL_ASSIGN_OR_RETURN(const SessionEnd end,
                         AttachTerminal(*client, job, *stop.get()));
  if (end == SessionEnd::kEnded) return ExitCodeAtEnd(*client, job);
  absl::FPrintF(stderr,
                "gavel: detached; `gavel shell --attach %d` comes back, "
                "`gavel cancel %d` ends the job\n",
                job.value(), job.value());
  return kExitInterrupted;
}

}  // namespace

void AddShellCommand(CLI::App& app, const std::vector<std::string>& program,
                     int* exit_code) {
  auto [command, options] = AddCommand<ShellOptions>(
      app, exit_code, "shell",
      "Starts a shell, or a program behind \"--\", in a terminal on an "
      "accelerator, in place of training jobs. The exit code is the program's",
      Shell);
  options.program = program;
  AddConnectionOptions(command, &options);
  AddOption(command, "--name", options.name, "NAME", "of the job");
  AddOption(command, "--types", options.types, "TYPE",
            "accelerator types that it may have: v100,p100");
  AddOption(command, "--server", options.server, "SERVER",
            "the server that it runs on")
      ->check(CheckNonEmpty);
  AddOption(command, "--idle-limit", options.idle_limit_s, "SECONDS",
            "without input, output and use of the accelerator, after which it "
            "is ended (default 3600)")
      ->check(CheckAboveZero);
  AddOption(command, "--attach", options.attach, "JOB",
            "starts nothing: comes back to the terminal of this job, which "
            "runs on when its client is gone")
      ->check(CheckNonEmpty)
      ->excludes("--name", "--types", "--server", "--idle-limit");
  command.footer("Called as: gavel shell [OPTIONS] [-- ./program ...]");
}

}  // namespace gavel
