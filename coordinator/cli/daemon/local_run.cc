#include "coordinator/cli/daemon/local_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/daemon/daemon_log.h"
#include "coordinator/cli/daemon/local_cluster.h"
#include "coordinator/cli/daemon/progress.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history/history_file.h"
#include "coordinator/cli/rows.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/stopwatch.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

constexpr double kLookInterval_s = 0.25;
constexpr double kJoinTimeout_s = 20;
// A worker that is told to end at the end of all must not hold it up longer.
constexpr double kStopGrace_s = 10;

class LocalRun {
 public:
  explicit LocalRun(const LocalOptions& options) : options_(options) {}

  absl::Status Run();

 private:
  absl::Status ReadFiles();
  absl::Status StartCluster();
  absl::Status Serve();
  absl::Status WaitForAgents();
  absl::Status SubmitDue();
  // Since the cluster is there; infinite: it has been submitted.
  double SecondsToNext() const;
  absl::Status TakeBack(const std::vector<JobId>& submitted,
                        const absl::Status& why);
  absl::Status WatchJobs();
  absl::Status TakeLook();
  void Say(const std::string& text) const;
  void Show(const std::vector<std::string>& lines);
  bool AllEnded() const;
  absl::Status Verdict() const;
  absl::Status WriteSummary() const;
  absl::Status End(absl::Status result);
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

absl::Status LocalRun::ReadFiles() {
  GAVEL_ASSIGN_OR_RETURN(cluster_spec_, ReadClusterFile(options_.cluster_path));
  if (cluster_spec_.servers.empty()) {
    return absl::InvalidArgumentError(
        StrCat(options_.cluster_path,
               ": there is no server; declare one with [[server]] and its "
               "[[server.accelerator]]"));
  }
  GAVEL_ASSIGN_OR_RETURN(scheduling_, MergeScheduling(cluster_spec_.scheduling,
                                                      options_.scheduling));
  GAVEL_ASSIGN_OR_RETURN(jobs_, ReadJobFiles(options_.job_paths));
  for (ServerSpec& server : cluster_spec_.servers) {
    GAVEL_RETURN_IF_ERROR(FillFromGpus(&server.accelerators));
  }
  return absl::OkStatus();
}

absl::Status LocalRun::StartCluster() {
  std::error_code error;
  if (std::filesystem::create_directories(options_.state_directory, error)) {
    std::filesystem::permissions(options_.state_directory,
                                 std::filesystem::perms::owner_all, error);
  }
  GAVEL_ASSIGN_OR_RETURN(const std::shared_ptr<spdlog::logger> log,
                         MakeFileLog(options_.state_directory + "/gavel.log"));
  LocalClusterOptions parts;
  parts.coordinator.endpoint = options_.listen;
  parts.coordinator.state_directory = options_.state_directory;
  parts.coordinator.engine = scheduling_.engine;
  parts.coordinator.policy = scheduling_.policy;
  parts.coordinator.log = log;
  for (const ServerSpec& server : cluster_spec_.servers) {
    AgentShellOptions agent;
    agent.server = server.name;
    agent.state_directory = options_.state_directory;
    agent.run_directory = DefaultRunDirectory(server.accelerators);
    agent.accelerators = server.accelerators;
    agent.host_memory_bytes = server.host_memory_bytes;
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

absl::Status LocalRun::WaitForAgents() {
  const Time end = Now() + kJoinTimeout_s;
  while (!stop_) {
    GAVEL_ASSIGN_OR_RETURN(const Json json, client_->Query(QueryKind::kNodes));
    std::set<std::string> joined;
    for (const NodeRow& node : ParseNodes(json)) {
      if (node.state != "down") joined.insert(node.server);
    }
    const bool all = std::ranges::all_of(
        cluster_spec_.servers,
        [&](const ServerSpec& server) { return joined.contains(server.name); });
    if (all) return absl::OkStatus();
    if (Now() > end) {
      return absl::UnavailableError(
          StrCat("not all servers of ", options_.cluster_path,
                 " have joined; see ", options_.state_directory, "/gavel.log"));
    }
    client_->Sleep(0.02);
  }
  return absl::OkStatus();
}

double LocalRun::SecondsToNext() const {
  if (submitted_ == jobs_.size()) return kNever;
  if (options_.submit_at_s.empty()) return 0;
  return options_.submit_at_s[submitted_] - (Now() - serving_since_);
}

// A job that an earlier run on this state left unfinished goes on.
absl::Status LocalRun::SubmitDue() {
  if (SecondsToNext() > 0) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const Json json, client_->Query(QueryKind::kQueue));
  const std::vector<QueueRow> earlier = ParseQueue(json);
  std::vector<JobId> submitted;
  for (; SecondsToNext() <= 0; ++submitted_) {
    const JobFile& job = jobs_[submitted_];
    const auto found = std::ranges::find_if(earlier, [&](const QueueRow& row) {
      return row.name == job.name && !row.Ended();
    });
    if (found != earlier.end()) {
      Say(StrCat("gavel: job ", job.name, " goes on as job ", found->id,
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

// All of them or none: whoever corrects the file runs the same again.
absl::Status LocalRun::TakeBack(const std::vector<JobId>& submitted,
                                const absl::Status& why) {
  for (const JobId job : submitted) {
    client_->Command(CommandKind::kCancel, job).IgnoreError();
  }
  return why;
}

absl::Status LocalRun::TakeLook() {
  Look look;
  GAVEL_ASSIGN_OR_RETURN(const Json status, client_->Query(QueryKind::kStatus));
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

void LocalRun::Say(const std::string& text) const {
  if (options_.quiet) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void LocalRun::Show(const std::vector<std::string>& lines) {
  if (options_.quiet) return;
  if (!terminal_.is_terminal()) {
    for (const std::string& line : lines) terminal_.Show(line + "\n");
    return;
  }
  const Look& look = progress_.last();
  terminal_.Show(Cut(RenderStatusLine(look.status), terminal_.width()) + "\n" +
                 RenderQueue(look.rows, terminal_.width()));
}

bool LocalRun::AllEnded() const {
  const std::vector<QueueRow>& rows = progress_.last().rows;
  return !jobs_.empty() && submitted_ == jobs_.size() &&
         rows.size() == watched_.size() &&
         std::ranges::all_of(rows, &QueueRow::Ended);
}

absl::Status LocalRun::WatchJobs() {
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

absl::Status LocalRun::Verdict() const {
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

absl::Status LocalRun::Serve() {
  GAVEL_RETURN_IF_ERROR(WaitForAgents());
  return WatchJobs();
}

absl::Status LocalRun::End(absl::Status result) {
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
                        rounds == 1 ? "round" : "rounds", progress_.last().at));
  }
  if (options_.summary_path.empty()) return result;
  const absl::Status written = WriteSummary();
  return result.ok() ? written : result;
}

// The coordinator has stopped: all of its history is in the file.
absl::Status LocalRun::WriteSummary() const {
  HistoryFilter filter;
  filter.table = "leases";
  const std::string path = options_.state_directory + "/journal.db";
  const absl::StatusOr<Json> leases = ReadHistoryFile(path, filter);
  // The rest of the summary needs no history.
  GAVEL_RETURN_IF_ERROR(WriteFile(
      options_.summary_path,
      progress_.Summary(leases.ok() ? *leases : Json::array()).dump(2) + "\n"));
  return Annotate(leases.status(), path);
}

absl::Status LocalRun::Run() {
  GAVEL_RETURN_IF_ERROR(ReadFiles());
  GAVEL_RETURN_IF_ERROR(StartCluster());
  return End(Serve());
}

}  // namespace

absl::Status RunLocal(const LocalOptions& options) {
  return LocalRun(options).Run();
}

}  // namespace gavel
