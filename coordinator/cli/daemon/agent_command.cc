#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/agent_host/agent_shell.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/daemon_config.h"
#include "coordinator/cli/daemon/daemon_log.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/daemon/key_files.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

struct AgentOptions : Connection {
  std::string config;
  std::optional<std::string> cluster;
  bool jobs_as_root = false;
  LogOptions log;
  AgentShellOptions shell;
};

// This machine's name, with what no server name may have replaced.
std::string HostName() {
  char name[65] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "server";
  std::string text(name);
  for (char& c : text) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!good) c = '-';
  }
  return text.empty() ? "server" : text;
}

absl::StatusOr<ServerSpec> FromCluster(const AgentOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto cluster, ReadClusterFile(*options.cluster));
  std::string names;
  for (const ServerSpec& server : cluster.servers) {
    if (server.name == options.shell.server ||
        (options.shell.server.empty() && cluster.servers.size() == 1)) {
      return server;
    }
    StrAppend(&names, names.empty() ? "" : ", ", server.name);
  }
  return absl::NotFoundError(StrCat(
      *options.cluster,
      options.shell.server.empty()
          ? std::string(" has several servers")
          : StrCat(" has no server \"", options.shell.server, "\""),
      "; choose one with --server: ", names.empty() ? "none is there" : names));
}

absl::StatusOr<ServerSpec> FindServer(const AgentOptions& options) {
  if (options.cluster) {
    GAVEL_ASSIGN_OR_RETURN(ServerSpec server, FromCluster(options));
    GAVEL_RETURN_IF_ERROR(
        Annotate(FillFromGpus(&server.accelerators),
                 StrCat(*options.cluster, ": server \"", server.name, "\"")));
    return server;
  }
  ServerSpec server;
  server.name =
      options.shell.server.empty() ? HostName() : options.shell.server;
  GAVEL_ASSIGN_OR_RETURN(server.accelerators, DetectAccelerators());
  return server;
}

// Limits of workers' output; docs/logs.md.
void AddLogFlags(CLI::App& command, LogLimits* limits) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const auto add_mib = [&](const char* flag, uint64_t* bytes, uint64_t mib_min,
                           const char* what) {
    command
        .add_option_function<uint64_t>(
            flag, [bytes](uint64_t mib) { *bytes = mib * kMiB; }, what)
        ->type_name("MIB")
        ->check(CLI::Range(mib_min, uint64_t{1} << 30))
        ->default_str(std::to_string(*bytes / kMiB));
  };
  add_mib("--log-mib", &limits->worker_bytes, 2 * kLogSegmentBytes / kMiB,
          "output that is kept of one worker");
  add_mib("--logs-mib", &limits->total_bytes, 1,
          "output that is kept of all jobs");
  constexpr double kDay_s = 24 * 3600;
  command
      .add_option_function<double>(
          "--logs-days",
          [limits](double days) { limits->age_s = days * kDay_s; },
          "how long output is kept")
      ->type_name("DAYS")
      ->check(CheckAboveZero)
      ->default_str(StrCat(limits->age_s / kDay_s));
}

void AddOptions(CLI::App* command, AgentOptions* options) {
  options->shell.state_directory = kDefaultState;
  options->shell.drain_timeout_s = 30;
  AddConfigFlag(*command, &options->config);
  AddConnectionOptions(*command, options);
  AddOption(*command, "--cluster", options->cluster, "",
            "declares the accelerators of --server; without it the GPUs of "
            "this machine are detected");
  AddOption(*command, "--server", options->shell.server, "",
            "this server's name (default: that of the machine)");
  AddOption(*command, "--state", options->shell.state_directory, "",
            "directory of logs and of who runs");
  AddOption(*command, "--address", options->shell.address, "",
            "where other servers reach this one: ranks of gangs, and streams "
            "of checkpoints");
  command->add_flag("--own-checkpoints", options->shell.own_checkpoints,
                    "this server shares no checkpoint directory with others: "
                    "keep them in --state, and stream them between agents");
  command->add_flag("--jobs-as-root", options->jobs_as_root,
                    "lets root start an agent without keys, whose jobs then "
                    "are root's");
  AddOption(*command, "--run-directory", options->shell.run_directory, "",
            "lock files of the accelerators");
  AddOption(*command, "--drain-timeout", options->shell.drain_timeout_s,
            "SECONDS",
            "at the agent's end (SIGTERM), time for its jobs to leave with a "
            "checkpoint; a second signal ends the wait")
      ->check(CLI::NonNegativeNumber);
  AddOption(*command, "--stop-grace", options->shell.stop_grace_s, "SECONDS",
            "of workers that have not left by then, between SIGTERM and "
            "SIGKILL")
      ->check(CLI::NonNegativeNumber);
  AddLogFlags(*command, &options->shell.log_limits);
  AddDaemonLogFlags(*command, &options->log);
}

absl::Status Run(const AgentOptions& options,
                 const std::vector<std::string>& typed) {
  GAVEL_ASSIGN_OR_RETURN(ServerSpec server, FindServer(options));
  AgentShellOptions shell_options = options.shell;
  const std::string name = server.name;
  shell_options.server = name;
  shell_options.coordinator = options.coordinator;
  GAVEL_ASSIGN_OR_RETURN(
      shell_options.keys,
      FindClientKeys(options.coordinator, options.keys, kNodeKeyFile));
  if (!shell_options.keys && geteuid() == 0 && !options.jobs_as_root) {
    return absl::FailedPreconditionError(
        "without keys jobs run as the agent's own user, which is root, and "
        "whoever has an account on this machine may submit them; give the "
        "coordinator and this agent keys (--key), run the agent as another "
        "user, or, where everybody may be root anyway, add --jobs-as-root");
  }
  if (shell_options.run_directory.empty()) {
    shell_options.run_directory = DefaultRunDirectory(server.accelerators);
  }
  shell_options.accelerators = std::move(server.accelerators);
  shell_options.host_memory_bytes = server.host_memory_bytes;
  shell_options.keep_environment = std::move(server.keep_environment);
  // First, so that no other thread takes the signals: the log has one.
  StopSignals signals(/*reloads=*/true);
  shell_options.log = MakeStderrLog(options.log);
  const std::shared_ptr<spdlog::logger> log = shell_options.log;
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<AgentShell> shell,
                         AgentShell::Create(std::move(shell_options)));
  ConfigReload<AgentOptions> reload(AddOptions, typed, *log);
  signals.Attach([&shell] { shell->Stop(); },
                 [&] {
                   if (options.config.empty()) {
                     log->info(kHungUp);
                     return shell->Stop();
                   }
                   reload.Read("log-level is as it says now", {"log-level"},
                               [](const AgentOptions&) {});
                 });
  // Here, since the agent's loop must not wait for the name service.
  if (const absl::Status found = CheckResolves(options.coordinator);
      !found.ok()) {
    log->warn("agent {}: {}; the agent keeps trying", name,
              ToStd(found.message()));
  }
  const absl::Status ended = shell->Run();
  signals.Attach(nullptr);
  return ended;
}

}  // namespace

void AddAgentCommand(CLI::App& app, std::vector<std::string> typed,
                     int* exit_code) {
  auto options = std::make_shared<AgentOptions>();
  CLI::App* command = app.add_subcommand(
      "agent",
      "Runs the agent of this server: declares its accelerators, launches and "
      "watches workers");
  AddOptions(command, options.get());
  command->footer(kDaemonExitCodes);
  command->callback([options, exit_code, typed = std::move(typed)] {
    *exit_code = TellEnd(Run(*options, typed), options->log);
  });
}

}  // namespace gavel
