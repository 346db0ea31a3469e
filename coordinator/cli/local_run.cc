#include "coordinator/cli/local_run.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/agent_host/agent_shell.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/coordinator_server.h"
#include "coordinator/server/rows.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "spdlog/spdlog.h"

namespace gavel {

// ---- What is remembered and told of the jobs ----

namespace {

std::string PlaceOf(const QueueRow& row) {
  std::string place;
  for (const HeldAcceleratorRow& accelerator : row.accelerators) {
    StrAppend(&place, place.empty() ? " on " : ", ", accelerator.uuid, " (",
              accelerator.type, ")");
  }
  return place;
}

std::map<std::string, double> ByName(const Named<double>& scalars) {
  return {scalars.begin(), scalars.end()};
}

std::string LineOf(Time at, const QueueRow& row) {
  std::string line =
      absl::StrFormat("[%7.1f s] job %d %s: ", at, row.id, row.name);
  StrAppend(&line, StateWord(row.state), PlaceOf(row), ", step ",
            FormatSteps(row.steps_done, row.steps_total));
  if (row.steps_per_s > 0) {
    StrAppend(&line, ", ", FormatRate(row.steps_per_s), " steps/s");
  }
  for (const auto& [name, value] : ByName(row.scalars)) {
    StrAppend(&line, ", ", name, " ", FormatScalar(value));
  }
  StrAppend(&line,
            absl::StrFormat(", share %.0f/%.0f%%", 100 * row.share_target,
                            100 * row.share_got));
  if (row.pauses > 0) {
    StrAppend(&line, ", ", row.pauses, " pauses, ", row.moves, " moves");
  }
  if (row.accelerators.empty() && row.reason != StateWord(row.state)) {
    StrAppend(&line, " (", row.reason, ")");
  }
  return line;
}

// Each that it had a lease of, once, in that order.
Json AcceleratorsUsed(uint64_t job, const Json& leases) {
  Json used = Json::array();
  for (const Json& lease : leases) {
    if (lease.at("job") != job) continue;
    const Json one = {{"server", lease.at("server")},
                      {"uuid", lease.at("uuid")},
                      {"type", lease.at("type")}};
    if (std::ranges::find(used, one) == used.end()) used.push_back(one);
  }
  return used;
}

Json SummaryOf(const QueueRow& row, const Json& leases) {
  const GenerationRow generation =
      row.last_generation.value_or(GenerationRow{});
  return {{"id", row.id},
          {"name", row.name},
          {"state", StateWord(row.state)},
          {"reason", row.reason},
          {"steps", row.steps_done},
          {"scalars", ByName(row.scalars)},
          {"pauses", row.pauses},
          {"moves", row.moves},
          {"pausing_s", row.pausing_s},
          {"share_target", row.share_target},
          {"share_got", row.share_got},
          {"accelerators_used", AcceleratorsUsed(row.id, leases)},
          {"final_generation", ToJson(generation)},
          {"checkpoint_directory", row.checkpoint_directory}};
}

}  // namespace

std::vector<std::string> LocalProgress::Take(const Look& look) {
  std::vector<std::string> lines;
  for (const QueueRow& row : look.rows) {
    const std::string what = StrCat(row.state, PlaceOf(row));
    const auto [told, is_new] = told_.try_emplace(row.id);
    const bool due = !row.Ended() && look.at - told->second.at >= kInterval_s;
    if (!is_new && !due && told->second.what == what) continue;
    told->second = {what, look.at};
    lines.push_back(LineOf(look.at, row));
  }
  last_ = look;
  return lines;
}

Json LocalProgress::Summary(const Json& leases) const {
  Json jobs = Json::array();
  for (const QueueRow& row : last_.rows) {
    jobs.push_back(SummaryOf(row, leases));
  }
  return {{"rounds", last_.status.rounds},
          {"seconds", last_.at},
          {"jobs", std::move(jobs)}};
}

// ---- The run ----

namespace {

constexpr double kLookInterval_s = 0.25;
constexpr double kJoinTimeout_s = 20;
// A worker gets this long to end, so that it does not hold up the end of the
// run.
constexpr double kStopGrace_s = 10;

// Runs a coordinator and the agents of all servers of a cluster file in this
// process, each on a thread of its own. Not thread-safe, except for the methods
// that say so.
class LocalCluster {
 public:
  struct Options {
    CoordinatorServerOptions coordinator;
    std::vector<AgentShellOptions> agents;  // `coordinator` is filled in
  };

  // `on_failure` is called on one of the threads, once, when a part ends by
  // itself. Errors as those of CoordinatorServer and AgentShell.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      Options options, std::function<void()> on_failure) {
    std::unique_ptr<LocalCluster> cluster(
        new LocalCluster(std::move(on_failure)));
    GAVEL_ASSIGN_OR_RETURN(
        cluster->server_,
        CoordinatorServer::Create(std::move(options.coordinator)));
    for (AgentShellOptions& agent : options.agents) {
      agent.coordinator = cluster->endpoint();
      GAVEL_ASSIGN_OR_RETURN(auto shell, AgentShell::Create(std::move(agent)));
      cluster->agents_.push_back(std::move(shell));
    }
    LocalCluster* const self = cluster.get();
    self->server_thread_ =
        std::thread([self] { self->Ended(self->server_->Run()); });
    for (const std::unique_ptr<AgentShell>& agent : self->agents_) {
      self->agent_threads_.emplace_back(
          [self, shell = agent.get()] { self->Ended(shell->Run()); });
    }
    return cluster;
  }
  ~LocalCluster() { Stop().IgnoreError(); }

  // Ends the agents, and with them all workers, then the coordinator. The first
  // error that a part ended with.
  absl::Status Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    for (const std::unique_ptr<AgentShell>& agent : agents_) agent->Stop();
    for (std::thread& thread : agent_threads_) thread.join();
    agent_threads_.clear();
    if (server_ != nullptr) server_->Stop();
    if (server_thread_.joinable()) server_thread_.join();
    return failure();
  }

  // Why a part ended by itself; OK: none has. Thread-safe.
  absl::Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  const std::string& endpoint() const { return server_->endpoint(); }

 private:
  explicit LocalCluster(std::function<void()> on_failure)
      : on_failure_(std::move(on_failure)) {}

  void Ended(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      const bool first = failure_.ok();
      if (first && !status.ok()) failure_ = status;
      if (first && status.ok() && !stopping_) {
        failure_ =
            absl::CancelledError("a client asked the coordinator to stop");
      }
      if (stopping_) return;
    }
    on_failure_();
  }

  const std::function<void()> on_failure_;
  mutable std::mutex mutex_;  // guards the next two
  bool stopping_ = false;
  absl::Status failure_;
  std::unique_ptr<CoordinatorServer> server_;
  std::vector<std::unique_ptr<AgentShell>> agents_;
  std::vector<std::thread> agent_threads_;
  std::thread server_thread_;
};

class LocalRun {
 public:
  explicit LocalRun(const LocalOptions& options) : options_(options) {}

  absl::Status Run() {
    GAVEL_RETURN_IF_ERROR(ReadFiles());
    GAVEL_RETURN_IF_ERROR(StartCluster());
    return End(Serve());
  }

 private:
  absl::Status ReadFiles() {
    GAVEL_ASSIGN_OR_RETURN(cluster_spec_,
                           ReadClusterFile(options_.cluster_path));
    if (cluster_spec_.servers.empty()) {
      return absl::InvalidArgumentError(
          StrCat(options_.cluster_path,
                 ": there is no server; declare one with [[server]] and its "
                 "[[server.accelerator]]"));
    }
    GAVEL_ASSIGN_OR_RETURN(
        scheduling_,
        MergeScheduling(cluster_spec_.scheduling, options_.scheduling));
    GAVEL_ASSIGN_OR_RETURN(jobs_, ReadJobFiles(options_.job_paths));
    for (ServerSpec& server : cluster_spec_.servers) {
      GAVEL_RETURN_IF_ERROR(Annotate(
          FillFromGpus(&server.accelerators),
          StrCat(options_.cluster_path, ": server \"", server.name, "\"")));
    }
    return absl::OkStatus();
  }

  absl::Status StartCluster() {
    std::error_code error;
    if (std::filesystem::create_directories(options_.state_directory, error)) {
      std::filesystem::permissions(options_.state_directory,
                                   std::filesystem::perms::owner_all, error);
    }
    GAVEL_ASSIGN_OR_RETURN(
        const std::shared_ptr<spdlog::logger> log,
        MakeFileLog(options_.state_directory + "/gavel.log"));
    LocalCluster::Options parts;
    parts.coordinator.endpoint = options_.listen;
    parts.coordinator.state_directory = options_.state_directory;
    parts.coordinator.engine = scheduling_.engine;
    parts.coordinator.policy = scheduling_.policy;
    parts.coordinator.notify = cluster_spec_.notify;
    parts.coordinator.log = log;
    for (const ServerSpec& server : cluster_spec_.servers) {
      AgentShellOptions agent;
      agent.server = server.name;
      agent.state_directory = options_.state_directory;
      agent.run_directory = DefaultRunDirectory(server.accelerators);
      agent.accelerators = server.accelerators;
      agent.rack = server.rack;
      agent.host_memory_bytes = server.host_memory_bytes;
      agent.keep_environment = server.keep_environment;
      agent.stop_grace_s =
          options_.scheduling.stop_grace_s.value_or(kStopGrace_s);
      agent.log = log;
      parts.agents.push_back(std::move(agent));
    }
    GAVEL_ASSIGN_OR_RETURN(
        cluster_,
        LocalCluster::Start(std::move(parts), [this] { stop_ = true; }));
    GAVEL_ASSIGN_OR_RETURN(client_, Client::Connect(cluster_->endpoint()));
    signals_.Attach([this] {
      stop_ = true;
      client_->waker().Wake();
    });
    Say(StrCat("gavel: listening on ", cluster_->endpoint(), ", state in ",
               options_.state_directory, "\n"));
    return absl::OkStatus();
  }

  absl::Status Serve() {
    GAVEL_RETURN_IF_ERROR(WaitForAgents());
    return WatchJobs();
  }

  absl::Status WaitForAgents() {
    const Time end = Now() + kJoinTimeout_s;
    while (!stop_) {
      GAVEL_ASSIGN_OR_RETURN(const Json json,
                             client_->Query(QueryKind::kNodes));
      std::set<std::string> joined;
      for (const NodeRow& node : ParseNodes(json)) {
        if (node.state != "down") joined.insert(node.server);
      }
      const bool all = std::ranges::all_of(
          cluster_spec_.servers, [&](const ServerSpec& server) {
            return joined.contains(server.name);
          });
      if (all) return absl::OkStatus();
      if (Now() > end) {
        return absl::UnavailableError(StrCat(
            "not all servers of ", options_.cluster_path, " have joined; see ",
            options_.state_directory, "/gavel.log"));
      }
      client_->Sleep(0.02);
    }
    return absl::OkStatus();
  }

  // A job that an earlier run on this state left unfinished goes on.
  absl::Status SubmitDue() {
    if (SecondsToNext() > 0) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(const Json json, client_->Query(QueryKind::kQueue));
    const std::vector<QueueRow> earlier = ParseQueue(json);
    std::vector<JobId> submitted;
    for (; SecondsToNext() <= 0; ++submitted_) {
      const JobFile& job = jobs_[submitted_];
      const auto found =
          std::ranges::find_if(earlier, [&](const QueueRow& row) {
            return row.name == job.spec.name && !row.Ended();
          });
      if (found != earlier.end()) {
        Say(StrCat("gavel: job ", job.spec.name, " goes on as job ", found->id,
                   ", from step ", FormatCount(found->steps_done), "\n"));
        watched_.insert(found->id);
        continue;
      }
      const absl::StatusOr<JobId> id =
          client_->Submit(job.path, job.text, job.directory);
      if (!id.ok()) return TakeBack(submitted, id.status());
      submitted.push_back(*id);
      watched_.insert(id->value());
    }
    return absl::OkStatus();
  }

  // Since the cluster is there; infinite: it has been submitted.
  double SecondsToNext() const {
    if (submitted_ == jobs_.size()) return kNever;
    if (options_.submit_at_s.empty()) return 0;
    return options_.submit_at_s[submitted_] - (Now() - serving_since_);
  }

  // Cancels all jobs, so that either all are submitted or none: the user
  // corrects the file and runs the same command again.
  absl::Status TakeBack(const std::vector<JobId>& submitted,
                        const absl::Status& why) {
    for (const JobId job : submitted) {
      client_->Command(CommandKind::kCancel, job).IgnoreError();
    }
    return why;
  }

  absl::Status WatchJobs() {
    serving_since_ = Now();
    while (true) {
      GAVEL_RETURN_IF_ERROR(SubmitDue());
      GAVEL_RETURN_IF_ERROR(TakeLook());
      if (AllEnded()) return Verdict();
      if (stop_) break;
      client_->Sleep(std::clamp(SecondsToNext(), 0.0, kLookInterval_s));
    }
    if (jobs_.empty()) return absl::OkStatus();
    return absl::CancelledError(
        StrCat("stopped before all jobs ended; run the same again (--state ",
               options_.state_directory, ") and they go on"));
  }

  absl::Status TakeLook() {
    Look look;
    GAVEL_ASSIGN_OR_RETURN(const Json status,
                           client_->Query(QueryKind::kStatus));
    GAVEL_ASSIGN_OR_RETURN(const Json queue, client_->Query(QueryKind::kQueue));
    look.at = Now();
    look.status = ParseStatus(status);
    for (QueueRow& row : ParseQueue(queue)) {
      if (jobs_.empty() || watched_.contains(row.id)) {
        look.rows.push_back(std::move(row));
      }
    }
    Show(progress_.Take(look));
    return absl::OkStatus();
  }

  void Say(const std::string& text) const {
    if (options_.quiet) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void Show(const std::vector<std::string>& lines) {
    if (options_.quiet) return;
    if (!terminal_.is_terminal()) {
      for (const std::string& line : lines) terminal_.Show(line + "\n");
      return;
    }
    const Look& look = progress_.last();
    terminal_.Show(Cut(RenderStatusLine(look.status), terminal_.width()) +
                   "\n" + RenderQueue(look.rows, terminal_.width()));
  }

  bool AllEnded() const {
    const std::vector<QueueRow>& rows = progress_.last().rows;
    return !jobs_.empty() && submitted_ == jobs_.size() &&
           rows.size() == watched_.size() &&
           std::ranges::all_of(rows, &QueueRow::Ended);
  }

  absl::Status Verdict() const {
    std::string not_finished;
    for (const QueueRow& row : progress_.last().rows) {
      if (row.state == "CD") continue;
      StrAppend(&not_finished, not_finished.empty() ? "" : "; ", "job ", row.id,
                " ", row.name, ": ", row.reason);
    }
    if (not_finished.empty()) return absl::OkStatus();
    return absl::AbortedError(StrCat("not all jobs finished: ", not_finished,
                                     " (output in ", options_.state_directory,
                                     "/logs)"));
  }

  // The coordinator has stopped: all of its history is in the file.
  absl::Status WriteSummary() const {
    HistoryFilter filter;
    filter.table = "leases";
    const std::string path = options_.state_directory + "/journal.db";
    const absl::StatusOr<Json> leases = ReadHistoryFile(path, filter);
    // The rest of the summary needs no history.
    GAVEL_RETURN_IF_ERROR(WriteFile(
        options_.summary_path,
        progress_.Summary(leases.ok() ? *leases : Json::array()).dump(2) +
            "\n"));
    return Annotate(leases.status(), path);
  }

  absl::Status End(absl::Status result) {
    // A second Ctrl-C has nothing to wake any more, a third one ends at once.
    signals_.Attach(nullptr);
    const absl::Status ended = cluster_->Stop();
    if (!ended.ok()) result = ended;
    if (!jobs_.empty() && !options_.quiet) {
      if (!terminal_.is_terminal()) {
        terminal_.Show(
            RenderQueue(progress_.last().rows, terminal_.table_width()));
      }
      const auto rounds = progress_.last().status.rounds;
      Say(absl::StrFormat("%d %s, %.1f s\n", rounds,
                          rounds == 1 ? "round" : "rounds",
                          progress_.last().at));
    }
    if (options_.summary_path.empty()) return result;
    const absl::Status written = WriteSummary();
    return result.ok() ? written : result;
  }
  Time Now() const { return clock_.elapsed_s(); }

  const LocalOptions& options_;
  ClusterSpec cluster_spec_;
  Scheduling scheduling_;
  std::vector<JobFile> jobs_;
  const Stopwatch clock_;

  StopSignals signals_;  // before all threads
  std::atomic<bool> stop_{false};
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Client> client_;
  size_t submitted_ = 0;        // jobs, or found to be there
  Time serving_since_ = 0;      // all agents are there
  std::set<uint64_t> watched_;  // empty: all
  LocalProgress progress_;
  Terminal terminal_;
};

}  // namespace

absl::Status RunLocal(const LocalOptions& options) {
  return LocalRun(options).Run();
}

void AddLocalCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LocalOptions>(
      app, exit_code, "local",
      "Coordinator and agents in this process: runs JOBs on this machine, ends "
      "when all have; serves until Ctrl-C when there are none",
      RunLocal);
  AddOption(command, "--cluster", options.cluster_path, "",
            "cluster file: servers, accelerators, scheduling")
      ->required();
  AddOption(command, "jobs", options.job_paths, "JOB.toml", "job files");
  options.state_directory = kDefaultState;
  AddOption(command, "--state", options.state_directory, "",
            "journal, checkpoints, logs; what is unfinished there goes on");
  AddOption(command, "--summary", options.summary_path, "",
            "writes the end of all jobs to this file, as JSON");
  AddOption(command, "--listen", options.listen, "",
            "loopback address for other `gavel` commands");
  AddSchedulingFlags(command, &options.scheduling);
}

}  // namespace gavel
