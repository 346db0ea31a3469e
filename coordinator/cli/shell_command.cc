// `gavel shell`: a terminal on an accelerator.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/job_output.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/shell_session.h"
#include "coordinator/cli/table.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

constexpr double kWaitInterval_s = 0.1;
// The user learns why a job waits for longer than this.
constexpr double kQuietWait_s = 2;
// From the end of its output to that of the job.
constexpr double kEndWait_s = 10;
constexpr int kExitInterrupted = 130;  // as shells have it: 128 + SIGINT

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

// A job that only waits for ever, since nobody has such a server or type, is
// not submitted.
absl::Status CheckPlace(Client& client, const ShellOptions& options) {
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
  if (options.server.empty()) return absl::OkStatus();
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
  return absl::OkStatus();
}

absl::StatusOr<JobId> SubmitShell(Client& client, const ShellOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckPlace(client, options));
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
    client.Sleep(kWaitInterval_s);
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
    client.Sleep(kWaitInterval_s);
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
