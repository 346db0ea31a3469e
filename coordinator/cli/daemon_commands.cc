// The commands of the people who run a cluster: the coordinator, the agent, and
// backup and restore of the coordinator's state.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/agent_host/agent_shell.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/cli/dashboard.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/keys.h"
#include "coordinator/cli/processes.h"
#include "coordinator/http/http_server.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/coordinator_server.h"
#include "coordinator/server/journal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/database/sqlite.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// Reads the configuration of a daemon again on a SIGHUP. `Options` has a member
// `log`, which `add_options` declares. Borrows the log.
template <class Options>
class ConfigReload {
 public:
  // `typed`: the arguments at the start.
  ConfigReload(void (*add_options)(CLI::App*, Options*),
               const std::vector<std::string>& typed, spdlog::logger& log)
      : add_options_(add_options), typed_(typed), log_(log) {
    Options again;
    CLI::App command;
    add_options_(&command, &again);
    last_ = WithConfigFile(command, typed).value_or(typed);
  }

  // Sets the log's level and calls `take` with all options. `what`: of the keys
  // `reloaded`, for the log; all others wait for the next start.
  template <class Take>
  void Read(const char* what, const std::vector<std::string>& reloaded,
            const Take& take) {
    Options now;
    CLI::App command;
    add_options_(&command, &now);
    absl::StatusOr<std::vector<std::string>> read = ParseAgain(command, typed_);
    if (!read.ok()) {
      log_.error("nothing is changed: {}", ToStd(read.status().message()));
      return;
    }
    SetLogLevel(log_, now.log.level);
    take(now);
    log_.info("configuration read again: {}", what);
    for (const std::string& key : ChangedKeys(last_, *read, reloaded)) {
      log_.warn(
          "{} has changed in the configuration; it is read at the next start",
          key);
    }
    last_ = *std::move(read);
  }

 private:
  void (*const add_options_)(CLI::App*, Options*);
  const std::vector<std::string> typed_;
  spdlog::logger& log_;
  std::vector<std::string> last_;  // the arguments as they were read last
};

// ---- coordinator ----

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
  std::string http;  // empty: no dashboard
  std::string http_url;
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
// of 8 to 18 KB, and uses only their first pages at first. Blocks that are
// mapped one by one take memory for these pages alone, and the memory is freed
// with the connection. A block out of the heap brings pages that others used
// before, and leaves a hole. The kernel allows 65,530 maps, so blocks beyond
// kMapsMax come out of the heap again.
//
// The threads that answer browsers read the list of jobs as JSON. With an arena
// for each of them, which is malloc's choice, each would keep the memory that
// the list once took.
void SaveMemory() {
#ifdef __GLIBC__
  constexpr int kBlockBytes = 8 << 10;
  constexpr int kMapsMax = 48 << 10;
  constexpr int kArenasMax = 2;
  mallopt(M_ARENA_MAX, kArenasMax);
  mallopt(M_MMAP_THRESHOLD, kBlockBytes);
  mallopt(M_MMAP_MAX, kMapsMax);
#endif
}

void AddCoordinatorOptions(CLI::App* command, CoordinatorOptions* options) {
  options->server.endpoint = "tcp://127.0.0.1:7077";
  options->server.state_directory = kDefaultState;
  AddConfigFlag(*command, &options->config);
  AddOption(*command, "--listen", options->server.endpoint, "",
            "address; beyond loopback it needs keys. Port 0: a free one");
  AddOption(*command, "--state", options->server.state_directory, "",
            "directory of the journal and of checkpoints");
  AddOption(*command, "--cluster", options->cluster, "",
            "takes the policy, durations, prices and [notify] of this cluster "
            "file");
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
            "over its active jobs (default with keys); app: the same for each "
            "app of a user; job: each job has its own (default without keys)")
      ->check(CLI::IsMember({"user", "app", "job"}));
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
  AddOption(*command, "--http", options->http, "ADDRESS",
            "serves the dashboard, its JSON and metrics there, such as "
            "127.0.0.1:8080; beyond loopback it needs keys");
  AddOption(*command, "--http-url", options->http_url, "URL",
            "by which browsers reach it, where a proxy is in front")
      ->needs("--http");
  AddDaemonLogFlags(*command, &options->log);
}

// The dashboard of a coordinator, or nothing where it has none.
class Dashboard {
 public:
  // In the options of a coordinator that is made later: gives tokens.
  void AddTo(CoordinatorServerOptions* options) {
    options->dashboard =
        [this](const Requester& from) -> absl::StatusOr<std::string> {
      bool ends_oldest = false;
      const std::string token =
          tokens_.Make(MonotonicNow(), from.public_key, &ends_oldest);
      const Json link = {{"url", http_->url()},
                         {"token", token},
                         {"valid_s", DashboardTokens::kValid_s},
                         {"ends_oldest", ends_oldest}};
      return link.dump();
    };
    options->end_tokens = [this](const auto& is_known) {
      tokens_.EndUnless(is_known);
    };
  }

  // Takes the address, before the coordinator begins a term. Returns the errors
  // of HttpServer::Listen.
  absl::Status Listen(const CoordinatorOptions& options, bool has_keys) {
    documents_ = std::make_unique<CoordinatorDocuments>();
    HttpServerOptions http;
    http.address = options.http;
    http.url = options.http_url;
    http.has_keys = has_keys;
    http.pages = CompiledPages();
    GAVEL_ASSIGN_OR_RETURN(http_,
                           HttpServer::Listen(http, *documents_, tokens_));
    return absl::OkStatus();
  }

  // Before the coordinator runs, which `requests` are for.
  void Start(LocalRequests& requests, spdlog::logger& log) {
    documents_->Attach(requests);
    http_->Serve();
    log.info("dashboard on {}; `gavel dashboard` gives a link", http_->url());
  }

  // Before the coordinator is destroyed. False: see StopSolving.
  bool Stop() {
    if (http_ == nullptr) return true;
    documents_->GiveUpPreviews();
    http_.reset();
    return documents_->StopSolving();
  }

 private:
  DashboardTokens tokens_;
  std::unique_ptr<CoordinatorDocuments> documents_;
  std::unique_ptr<HttpServer> http_;
};

// A SIGHUP changes these options; all others wait for the next start.
constexpr char kReloaded[] =
    "log-level, weight-min, weight-max and the quotas are as it says now";

absl::Status RunCoordinator(const CoordinatorOptions& options,
                            const std::vector<std::string>& typed) {
  SaveMemory();
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
  const std::string fairness =
      options.fairness.value_or(server_options.keys ? "user" : "job");
  server_options.engine.user_shares = fairness == "user";
  server_options.engine.app_shares = fairness == "app";
  server_options.policy = scheduling.policy;
  server_options.prices = scheduling.prices;
  server_options.notify = cluster.notify;
  server_options.journal.keep_s =
      options.keep_days > 0 ? options.keep_days * 86400 : kNever;
  // First, so that no other thread takes the signals: the log has one.
  StopSignals signals(/*reloads=*/true);
  server_options.log = MakeStderrLog(options.log);
  server_options.announce = stdout;
  server_options.abandon_solves = true;
  const bool has_keys = server_options.keys.has_value();
  Dashboard dashboard;
  if (!options.http.empty()) {
    dashboard.AddTo(&server_options);
    GAVEL_RETURN_IF_ERROR(dashboard.Listen(options, has_keys));
  }
  WarnOfFewDescriptors(*server_options.log);

  std::shared_ptr<spdlog::logger> log = server_options.log;
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server,
                         CoordinatorServer::Create(std::move(server_options)));
  if (!options.http.empty()) dashboard.Start(server->local(), *log);
  ConfigReload<CoordinatorOptions> reload(AddCoordinatorOptions, typed, *log);
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
  const bool previews = !dashboard.Stop();
  const bool solves = server->solve_abandoned() || previews;
  server.reset();  // what is to be on disk is
  log.reset();     // and this as far as stderr takes it
  if (solves) {
    const int code = TellEnd(ended, options.log);
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return ended;
}

// ---- agent ----

struct AgentCommandOptions : Connection {
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

absl::StatusOr<ServerSpec> FromCluster(const AgentCommandOptions& options) {
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

absl::StatusOr<ServerSpec> FindServer(const AgentCommandOptions& options) {
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

void AddAgentOptions(CLI::App* command, AgentCommandOptions* options) {
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

absl::Status RunAgent(const AgentCommandOptions& options,
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
  shell_options.rack = server.rack;
  shell_options.host_memory_bytes = server.host_memory_bytes;
  shell_options.keep_environment = std::move(server.keep_environment);
  // First, so that no other thread takes the signals: the log has one.
  StopSignals signals(/*reloads=*/true);
  shell_options.log = MakeStderrLog(options.log);
  const std::shared_ptr<spdlog::logger> log = shell_options.log;
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<AgentShell> shell,
                         AgentShell::Create(std::move(shell_options)));
  ConfigReload<AgentCommandOptions> reload(AddAgentOptions, typed, *log);
  signals.Attach([&shell] { shell->Stop(); },
                 [&] {
                   if (options.config.empty()) {
                     log->info(kHungUp);
                     return shell->Stop();
                   }
                   reload.Read("log-level is as it says now", {"log-level"},
                               [](const AgentCommandOptions&) {});
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

// ---- backup and restore ----

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// As SQL has it.
std::string QuotedLiteral(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

absl::Status Sync(const std::string& path) {
  const Descriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.get() >= 0 && fsync(opened.get()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, ToAbsl(path));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// It gets its name once all of it is on disk.
absl::Status Publish(const std::string& part, const std::string& path) {
  GAVEL_RETURN_IF_ERROR(Sync(part));
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return Sync(FolderOf(path));
}

// All rows that are there follow on each other.
absl::StatusOr<JournalPosition> Verify(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(path));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  RecoverInto into;
  into.begin = [](const JournalSnapshot*) { return absl::OkStatus(); };
  into.take = [](const JournalRow&) { return absl::OkStatus(); };
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd end, RecoverChain(database, into));
  return end.position;
}

// One moment of it; readers keep no writer waiting.
absl::Status CopyDatabase(const std::string& from, const std::string& to) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(from));
  // This makes the copy writable. The file itself is opened read-only in any
  // case.
  GAVEL_RETURN_IF_ERROR(database.Execute("PRAGMA query_only=OFF"));
  const mode_t before = umask(0077);
  const absl::Status copied =
      database.Execute(StrCat("VACUUM INTO ", QuotedLiteral(to)).c_str());
  umask(before);
  return copied;
}

// Checks a backup before anything is made for it. The database's own message on
// a file that ends in the middle varies.
absl::Status CheckBackup(const std::string& file) {
  const absl::Status good = Verify(file).status();
  switch (good.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kFailedPrecondition:  // of another version
    case absl::StatusCode::kPermissionDenied:
      return Annotate(good, file);
    default:
      return absl::DataLossError(
          StrCat(file, " is incomplete or damaged: ", good.message(),
                 "; copy it again, or restore another backup"));
  }
}

absl::StatusOr<JournalPosition> CopyVerified(const std::string& from,
                                             const std::string& to) {
  const std::string part = to + ".part";
  std::remove(part.c_str());
  absl::Status done = Annotate(CopyDatabase(from, part), from);
  JournalPosition end;
  if (done.ok()) {
    const absl::StatusOr<JournalPosition> verified = Verify(part);
    done = Annotate(verified.status(), from);
    if (verified.ok()) end = *verified;
  }
  if (done.ok()) done = Publish(part, to);
  if (done.ok()) return end;
  std::remove(part.c_str());
  return done;
}

// Writes the journal in `state_directory` into `file`, mode 0600: one moment of
// it, verified, while the coordinator may run. The last row that is in it.
// ALREADY_EXISTS: the file is there. NOT_FOUND: there is no journal. DATA_LOSS:
// it is damaged.
absl::StatusOr<JournalPosition> BackUpJournal(
    const std::string& state_directory, const std::string& file) {
  const std::string journal = state_directory + "/journal.db";
  if (!Exists(journal)) {
    return absl::NotFoundError(
        StrCat("there is no journal in ", state_directory,
               "; name the coordinator's state directory with --state"));
  }
  if (Exists(file)) {
    return absl::AlreadyExistsError(
        StrCat(file, " is there already; give the backup another name"));
  }
  GAVEL_RETURN_IF_ERROR(CheckWritable(file));
  return CopyVerified(journal, file);
}

// Makes it the journal of `state_directory`, which is made when it is not
// there. ALREADY_EXISTS: there is one. NOT_FOUND, DATA_LOSS,
// FAILED_PRECONDITION: there is no such file, it is no whole journal, or of a
// newer version; then nothing is changed.
absl::StatusOr<JournalPosition> RestoreJournal(
    const std::string& file, const std::string& state_directory) {
  if (!Exists(file)) {
    return absl::NotFoundError(StrCat("there is no file ", file));
  }
  const std::string journal = state_directory + "/journal.db";
  for (const char* part : {"", "-wal", "-shm"}) {
    if (!Exists(journal + part)) continue;
    return absl::AlreadyExistsError(
        StrCat(journal, part,
               " is there; stop the coordinator, and move its state directory "
               "away first"));
  }
  GAVEL_RETURN_IF_ERROR(CheckBackup(file));
  GAVEL_ASSIGN_OR_RETURN(const PrivateDirectory state,
                         PrivateDirectory::Make(state_directory, "--state"));
  return CopyVerified(file, state.path() + "/journal.db");
}

struct BackupOptions {
  std::string file;
  std::string state = kDefaultState;
};

std::string PositionText(const JournalPosition& position) {
  return StrCat("row ", position.seq, " of term ", position.term);
}

absl::Status BackUp(const BackupOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const JournalPosition last,
                         BackUpJournal(options.state, options.file));
  absl::PrintF("%s has the journal of %s up to %s\n", options.file,
               options.state, PositionText(last));
  return absl::OkStatus();
}

absl::Status Restore(const BackupOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const JournalPosition last,
                         RestoreJournal(options.file, options.state));
  absl::PrintF(
      "%s has the journal of %s up to %s. What came behind it is lost; start "
      "the coordinator once with its usual options and --accept-loss\n",
      options.state, options.file, PositionText(last));
  return absl::OkStatus();
}

void Add(CLI::App& app, const char* name, const char* what,
         absl::Status (*run)(const BackupOptions&), int* exit_code) {
  auto [command, options] =
      AddCommand<BackupOptions>(app, exit_code, name, what, run);
  AddOption(command, "file", options.file, "FILE", "the backup")->required();
  AddOption(command, "--state", options.state, "",
            "the coordinator's state directory");
}

}  // namespace

void AddCoordinatorCommand(CLI::App& app, std::vector<std::string> typed,
                           int* exit_code) {
  auto options = std::make_shared<CoordinatorOptions>();
  CLI::App* command = app.add_subcommand(
      "coordinator", "Runs the coordinator; agents and clients connect to it");
  AddCoordinatorOptions(command, options.get());
  command->footer(kDaemonExitCodes);
  command->callback([options, exit_code, typed = std::move(typed)] {
    *exit_code = TellEnd(RunCoordinator(*options, typed), options->log);
  });
}

void AddAgentCommand(CLI::App& app, std::vector<std::string> typed,
                     int* exit_code) {
  auto options = std::make_shared<AgentCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "agent",
      "Runs the agent of this server: declares its accelerators, launches and "
      "watches workers");
  AddAgentOptions(command, options.get());
  command->footer(kDaemonExitCodes);
  command->callback([options, exit_code, typed = std::move(typed)] {
    *exit_code = TellEnd(RunAgent(*options, typed), options->log);
  });
}

void AddBackupCommands(CLI::App& app, int* exit_code) {
  Add(app, "backup",
      "Copies the coordinator's journal into FILE, also while it runs", BackUp,
      exit_code);
  Add(app, "restore",
      "Makes a backup the journal of a state directory that has none", Restore,
      exit_code);
}

}  // namespace gavel
