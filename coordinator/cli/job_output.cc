// `gavel logs`, `gavel wait`, and what other commands watch jobs with.
#include "coordinator/cli/job_output.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/history_tables.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kFollowInterval_s = 0.3;
constexpr double kWaitInterval_s = 0.5;

// Prints output as it is, or as lines of JSON: {"offset": bytes before it,
// "data": text}. A program may write anything, so that a terminal gets it
// Visible, unless --raw is given.
class Printer {
 public:
  explicit Printer(const OutputOptions& options)
      : json_(options.json),
        visible_(Terminal().is_terminal() && !options.raw) {}
  ~Printer() { Write(TakeVisible(&rest_, /*all=*/true)); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void Print(const LogReply& reply, uint64_t offset) {
    std::string text = reply.data;
    if (json_ && !text.empty()) {
      const Json line = {{"offset", offset}, {"data", reply.data}};
      // A program may write bytes that are no text.
      text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    if (!visible_) return Write(text);
    rest_ += text;
    Write(TakeVisible(&rest_, /*all=*/false));
  }

 private:
  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  const bool json_;
  const bool visible_;
  std::string rest_;  // of a character of several bytes
};

// A coordinator that does not answer is asked again, for as long as it takes:
// jobs train on while it is restarted.
class Patience {
 public:
  explicit Patience(Client& client) : client_(client) {}

  // True: ask again.
  bool Has(const absl::Status& status) {
    if (!absl::IsUnavailable(status)) return false;
    if (!told_) {
      PrintNotices({StrCat(status.message(), "; waiting for it")});
    }
    told_ = true;
    client_.Sleep(kWaitInterval_s);
    return true;
  }

 private:
  Client& client_;
  bool told_ = false;
};

// INVALID_ARGUMENT: the job never has such a rank, however long one waits.
absl::Status CheckRank(const QueueRow& job, int rank) {
  const int ranks = std::max(job.scale_factor, job.scale_factor_max);
  if (rank < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("job ", job.id, " has no rank ",
                                           rank, ", its ranks are 0 to ",
                                           ranks - 1));
}

// Servers on which the worker ran, the latest last; none where the history does
// not tell.
std::vector<std::string> ServersOf(Client& client, const WorkerId& worker) {
  HistoryFilter filter;
  filter.table = "leases";
  const absl::StatusOr<Json> rows = client.Query(
      QueryKind::kHistory, worker.job, FormatHistoryFilter(filter));
  std::vector<std::string> servers;
  if (!rows.ok() || !rows->is_array()) return servers;
  for (const Json& row : *rows) {
    if (row.value("rank", -1) != worker.rank) continue;
    const std::string server = row.value("server", "");
    std::erase(servers, server);
    if (!server.empty()) servers.push_back(server);
  }
  return servers;
}

// Each server keeps the output that was written there, so a job that has moved
// has several logs.
void TellOfOtherServers(Client& client, const WorkerId& worker) {
  std::vector<std::string> servers = ServersOf(client, worker);
  if (servers.size() < 2) return;
  servers.pop_back();
  for (std::string& server : servers) {
    server = StrCat("`gavel logs ", worker.job.value(), " --rank ", worker.rank,
                    " --server ", server, "`");
  }
  absl::FPrintF(stderr,
                "gavel: what it wrote before on other servers is not shown; %s "
                "tells\n",
                absl::StrJoin(servers, " and "));
}

}  // namespace

absl::StatusOr<QueueRow> JobOf(Client& client, JobId job) {
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(QueryKind::kQueue, job));
  std::vector<QueueRow> rows = ParseQueue(json);
  if (!rows.empty()) return std::move(rows.front());
  return absl::FailedPreconditionError(
      StrCat("there is no job ", job.value(), "; `gavel queue` lists them"));
}

absl::Status PrintOutput(Client& client, JobId job,
                         const OutputOptions& options) {
  const WorkerId worker{job, options.rank};
  Printer printer(options);
  uint64_t offset = 0;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const LogReply reply,
                           client.Log(worker, offset, options.server));
    if (!reply.error.empty()) return absl::FailedPreconditionError(reply.error);
    printer.Print(reply, offset);
    offset = std::max(offset, reply.next_offset);
    if (reply.data.empty()) break;
  }
  if (options.server.empty()) TellOfOtherServers(client, worker);
  return absl::OkStatus();
}

absl::StatusOr<Followed> FollowOutput(
    Client& client, JobId job, const OutputOptions& options,
    const std::function<bool(const QueueRow&)>& look) {
  const WorkerId worker{job, options.rank};
  Followed followed;
  GAVEL_ASSIGN_OR_RETURN(followed.job, JobOf(client, job));
  GAVEL_RETURN_IF_ERROR(CheckRank(followed.job, options.rank));
  if (options.server.empty()) TellOfOtherServers(client, worker);
  Printer printer(options);
  Patience patience(client);
  uint64_t offset = 0;
  while (look == nullptr || look(followed.job)) {
    // The job is asked for before the log, so that all output up to its end is
    // read.
    absl::StatusOr<QueueRow> now = JobOf(client, job);
    if (patience.Has(now.status())) continue;
    GAVEL_RETURN_IF_ERROR(now.status());
    followed.job = *std::move(now);
    const absl::StatusOr<LogReply> reply =
        client.Log(worker, offset, options.server);
    if (patience.Has(reply.status())) continue;
    GAVEL_RETURN_IF_ERROR(reply.status());
    printer.Print(*reply, offset);
    offset = std::max(offset, reply->next_offset);
    if (!reply->data.empty()) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (followed.job.Ended()) {
      followed.error = reply->error;
      break;
    }
    client.Sleep(kFollowInterval_s);
  }
  return followed;
}

// Returns once the job has ended, or is held.
static absl::StatusOr<QueueRow> WaitForEnd(Client& client, JobId job) {
  Patience patience(client);
  while (true) {
    absl::StatusOr<QueueRow> row = JobOf(client, job);
    if (patience.Has(row.status())) continue;
    if (!row.ok() || row->Ended()) return row;
    client.Sleep(kWaitInterval_s);
  }
}

// ---- How it ended

int ExitCodeOfJob(const QueueRow& job) {
  if (job.state == "CD") return kExitOk;
  const bool evicted = job.state == "CA" || job.code == "held_by_user" ||
                       job.code == "held_time_limit";
  if (evicted) return kExitEvicted;
  constexpr int kOfSignal = 128;  // as shells have it
  if (job.exit && job.exit->signal) return kOfSignal + *job.exit->signal;
  const int code = job.exit ? job.exit->exit_code.value_or(0) : 0;
  return code == 0 ? kExitFailed : code;
}

std::string OutcomeText(const QueueRow& job) {
  return StrCat("Job ", job.id, " (", job.name, ") ",
                job.state == "CD" ? "finished" : StrCat("is ", job.reason));
}

Json OutcomeJson(const QueueRow& job) {
  return {{"id", job.id},       {"name", job.name},
          {"state", job.state}, {"reason", job.reason},
          {"code", job.code},   {"exit_code", ExitCodeOfJob(job)}};
}

// ---- Commands

namespace {

struct LogsOptions : ClientOptions {
  std::string job;
  OutputOptions output;
  bool follow = false;
};

absl::Status ShowLogs(const LogsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(options.job));
  if (!options.follow) return PrintOutput(*client, job, options.output);
  GAVEL_ASSIGN_OR_RETURN(const Followed followed,
                         FollowOutput(*client, job, options.output));
  if (!followed.error.empty()) {
    return absl::FailedPreconditionError(followed.error);
  }
  if (followed.job.state == "CD") return absl::OkStatus();
  return absl::FailedPreconditionError(OutcomeText(followed.job));
}

struct WaitOptions : ClientOptions {
  std::vector<std::string> jobs;
};

absl::StatusOr<int> Wait(const WaitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  std::vector<JobId> jobs;
  GAVEL_RETURN_IF_ERROR(ForEach(options.jobs, [&](const std::string& name) {
    GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(name));
    jobs.push_back(job);
    return absl::OkStatus();
  }));
  return WaitForAll(*client, jobs, options.json);
}

}  // namespace

absl::StatusOr<int> WaitForAll(Client& client, const std::vector<JobId>& jobs,
                               bool json) {
  int exit_code = kExitOk;
  Json outcomes = Json::array();
  for (const JobId job : jobs) {
    GAVEL_ASSIGN_OR_RETURN(const QueueRow row, WaitForEnd(client, job));
    outcomes.push_back(OutcomeJson(row));
    if (exit_code == kExitOk) exit_code = ExitCodeOfJob(row);
    if (!json) Terminal().Write(OutcomeText(row) + "\n");
    std::fflush(stdout);
  }
  if (json) std::printf("%s\n", outcomes.dump(2).c_str());
  return exit_code;
}

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LogsOptions>(
      app, exit_code, "logs", "Shows the output of a job's worker", ShowLogs);
  AddConnectionOptions(command, &options);
  OutputOptions& output = options.output;
  AddOption(command, "job", options.job, "JOB", "id or name")->required();
  AddOption(command, "--rank", output.rank, "", "which worker of a gang")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--server", output.server, "SERVER",
            "what it wrote there, before it moved");
  command.add_flag("-f,--follow", options.follow,
                   "goes on until the job has ended, and fails unless it has "
                   "finished");
  command.add_flag("--json", output.json, "lines of JSON");
  command.add_flag("--raw", output.raw,
                   "to a terminal too the bytes as they are, which may change "
                   "what it shows and does");
}

void AddWaitCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<WaitOptions>(
      app, exit_code, "wait",
      "Waits until jobs have ended. Exit code: 0 if all have finished, else "
      "that of the first that has not, 128 more than the signal that ended it, "
      "75 if it was cancelled, held by somebody or ended by its time limit",
      Wait);
  AddClientOptions(command, &options);
  AddJobNames(command, &options.jobs);
}

}  // namespace gavel
