#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/daemon_config.h"
#include "coordinator/cli/daemon/daemon_log.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/daemon/key_files.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "coordinator/server/coordinator_server.h"
#include "core/status.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// Fewer than that are soon used up: each worker, agent and client takes one,
// and one address may have 4,096 connections.
constexpr rlim_t kDescriptorsAdvised = 8192;

struct CoordinatorOptions {
  std::string config;
  std::optional<std::string> cluster;
  std::string key_file;
  std::optional<std::string> fairness;
  SchedulingFlags scheduling;
  double keep_days = 30;
  LogOptions log;
  CoordinatorServerOptions server;
};

// The soft limit is raised to the hard one by whatever binds.
void WarnOfFewDescriptors(spdlog::logger& log) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_max >= kDescriptorsAdvised) return;
  log.warn(
      "this process may open {} files only, and every worker, agent and client "
      "takes one: who comes beyond that can't connect. Raise the hard limit "
      "to {} or more (LimitNOFILE= of a systemd unit, `ulimit -Hn`)",
      limit.rlim_max, kDescriptorsAdvised);
}

// ZeroMQ gives each connection two queues, a decoder and an encoder in blocks
// of 8 to 18 KB, and uses the first pages of them at first. Mapped each by
// itself, only those take memory, and all of it goes with the connection; out
// of the heap a block brings the pages that others used before, and leaves a
// hole. The kernel allows 65,530 maps: what comes beyond kMapsMax is of the
// heap again.
void MapBlocksOfConnections() {
#ifdef __GLIBC__
  constexpr int kBlockBytes = 8 << 10;
  constexpr int kMapsMax = 48 << 10;
  mallopt(M_MMAP_THRESHOLD, kBlockBytes);
  mallopt(M_MMAP_MAX, kMapsMax);
#endif
}

void AddOptions(CLI::App* command, CoordinatorOptions* options) {
  options->server.endpoint = "tcp://127.0.0.1:7077";
  options->server.state_directory = kDefaultState;
  AddConfigFlag(*command, &options->config);
  AddOption(*command, "--listen", options->server.endpoint, "",
            "address; beyond loopback it needs keys. Port 0: a free one");
  AddOption(*command, "--state", options->server.state_directory, "",
            "directory of the journal and of checkpoints");
  AddOption(*command, "--cluster", options->cluster, "",
            "takes the policy and durations of this cluster file");
  AddOption(*command, "--keep-days", options->keep_days, "",
            "days that rows of the journal and the history are kept, at least; "
            "0: for ever")
      ->check(CLI::Range(0.0, 1e6));
  AddOption(*command, "--snapshot-rows", options->server.snapshots.rows, "",
            "rows of the journal between two snapshots: a restart replays "
            "about twice as many at most")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}));
  command->add_flag(
      "--accept-loss", options->server.accept_loss,
      "once, on a journal that was restored from a backup: what came behind it "
      "is given up, and agents and workers that saw more are told so");
  AddSchedulingFlags(*command, &options->scheduling);
  AddOption(*command, "--key", options->key_file, "FILE",
            "file of the coordinator's key; beyond loopback looked for in "
            "~/.config/gavel and /etc/gavel");
  AddOption(*command, "--principals", options->server.principals_path, "FILE",
            "who may connect (see `gavel user`); looked for likewise");
  AddOption(*command, "--fairness", options->fairness, "",
            "between whom the policy is fair: user: a user's weight is divided "
            "over its active jobs (default with keys); job: each job has its "
            "own (default without)")
      ->check(CLI::IsMember({"user", "job"}));
  AddOption(*command, "--weight-min", options->server.quota.weights.min, "",
            "least weight that a job may have")
      ->check(CLI::Range(1e-9, 1e9));
  AddOption(*command, "--weight-max", options->server.quota.weights.max, "",
            "largest weight that a job may have; a principal's weight_max is "
            "of its jobs alone")
      ->check(CLI::Range(1e-9, 1e9));
  const auto quota = [&](const char* name, int* value, const char* help) {
    AddOption(*command, name, *value, "", help)->check(CLI::NonNegativeNumber);
  };
  quota("--quota-jobs", &options->server.quota.jobs_max,
        "jobs of one user that have not ended; 0: no limit");
  quota("--quota-accelerators", &options->server.quota.accelerators_max,
        "accelerators that those ask for; 0: no limit");
  quota("--quota-requests", &options->server.quota.requests_per_s_max,
        "Requests a second of one user or viewer, ten times as many at once; "
        "0: no limit");
  quota("--quota-submissions",
        &options->server.quota.submissions_per_minute_max,
        "submissions of one user within a minute; 0: no limit");
  AddDaemonLogFlags(*command, &options->log);
}

// What a SIGHUP changes; all else waits for the next start.
constexpr char kReloaded[] =
    "log-level, weight-min, weight-max and the quotas are as it says now";
absl::Status Run(const CoordinatorOptions& options,
                 const std::vector<std::string>& typed) {
  MapBlocksOfConnections();
  ClusterSpec cluster;
  if (options.cluster) {
    GAVEL_ASSIGN_OR_RETURN(cluster, ReadClusterFile(*options.cluster));
  }
  GAVEL_ASSIGN_OR_RETURN(
      const Scheduling scheduling,
      MergeScheduling(cluster.scheduling, options.scheduling));
  CoordinatorServerOptions server_options = options.server;
  GAVEL_ASSIGN_OR_RETURN(
      server_options.keys,
      FindCoordinatorKeys(server_options.endpoint, options.key_file));
  if (server_options.principals_path.empty()) {
    server_options.principals_path = FindKeyFile(kPrincipalsFile);
  }
  server_options.engine = scheduling.engine;
  // Where nobody has a key, nobody is known.
  server_options.engine.user_shares =
      options.fairness.value_or(server_options.keys ? "user" : "job") == "user";
  server_options.policy = scheduling.policy;
  server_options.prices = scheduling.prices;
  server_options.journal.keep_s =
      options.keep_days > 0 ? options.keep_days * 86400 : kNever;
  // First, so that no other thread takes the signals: the log has one.
  StopSignals signals(/*reloads=*/true);
  server_options.log = MakeStderrLog(options.log);
  server_options.announce = stdout;
  server_options.abandon_solves = true;
  WarnOfFewDescriptors(*server_options.log);

  std::shared_ptr<spdlog::logger> log = server_options.log;
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server,
                         CoordinatorServer::Create(std::move(server_options)));
  ConfigReload<CoordinatorOptions> reload(AddOptions, typed, *log);
  signals.Attach([&server] { server->Stop(); },
                 [&] {
                   if (options.config.empty()) {
                     log->info(kHungUp);
                     return server->Stop();
                   }
                   reload.Read(kReloaded,
                               {"log-level", "weight-min", "weight-max",
                                "quota-jobs", "quota-accelerators",
                                "quota-requests", "quota-submissions"},
                               [&](const CoordinatorOptions& now) {
                                 server->SetQuota(now.server.quota);
                               });
                 });
  const absl::Status ended = server->Run();
  signals.Attach(nullptr);
  const bool solves = server->solve_abandoned();
  server.reset();  // what is to be on disk is
  log.reset();     // and this as far as stderr takes it
  if (solves) {
    const int code = TellEnd(ended, options.log);
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return ended;
}

}  // namespace

void AddCoordinatorCommand(CLI::App& app, std::vector<std::string> typed,
                           int* exit_code) {
  auto options = std::make_shared<CoordinatorOptions>();
  CLI::App* command = app.add_subcommand(
      "coordinator", "Runs the coordinator; agents and clients connect to it");
  AddOptions(command, options.get());
  command->footer(kDaemonExitCodes);
  command->callback([options, exit_code, typed = std::move(typed)] {
    *exit_code = TellEnd(Run(*options, typed), options->log);
  });
}

}  // namespace gavel
