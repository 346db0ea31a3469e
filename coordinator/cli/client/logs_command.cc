#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/rows.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/journal/history_tables.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kFollowInterval_s = 0.3;

struct LogsOptions : ClientOptions {
  std::string job;
  int rank = 0;
  std::string server;  // empty: where it ran last
  bool follow = false;
  bool raw = false;
};

// Prints output as it is, or as lines of JSON: {"offset": bytes before it,
// "data": text}. A program may write anything, so that a terminal gets it
// Visible, unless --raw is given.
class Printer {
 public:
  explicit Printer(const LogsOptions& options)
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

// The job as it is now; nothing: it is forgotten. INVALID_ARGUMENT: the job
// never has such a rank, however long one waits.
absl::StatusOr<std::optional<QueueRow>> JobOf(Client& client,
                                              const WorkerId& worker) {
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client.Query(QueryKind::kQueue, worker.job));
  std::vector<QueueRow> rows = ParseQueue(json);
  if (rows.empty()) return std::nullopt;
  const int ranks =
      std::max(rows.front().scale_factor, rows.front().scale_factor_max);
  if (worker.rank >= ranks) {
    return absl::InvalidArgumentError(
        StrCat("job ", worker.job.value(), " has no rank ", worker.rank,
               ", its ranks are 0 to ", ranks - 1));
  }
  return std::move(rows.front());
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

// Each server has what was written there, so that a job that has moved has
// several logs.
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

// For the exit code of a command that followed a job: an error unless the job
// has finished.
absl::Status Outcome(const std::optional<QueueRow>& job) {
  if (!job.has_value() || job->state == "CD") return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("job ", job->id, " ", job->name, " is ", job->reason));
}

absl::Status Run(const LogsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const JobId id, client->Resolve(options.job));
  const WorkerId worker{id, options.rank};
  const bool tell = options.server.empty();
  std::optional<QueueRow> job;
  if (options.follow) {
    GAVEL_ASSIGN_OR_RETURN(job, JobOf(*client, worker));
    if (tell) TellOfOtherServers(*client, worker);
  }
  Printer printer(options);
  uint64_t offset = 0;
  while (true) {
    // Asked before the log, so that what was written until then is read.
    if (options.follow) {
      GAVEL_ASSIGN_OR_RETURN(job, JobOf(*client, worker));
    }
    const bool ended = !job.has_value() || job->Ended();
    GAVEL_ASSIGN_OR_RETURN(const LogReply reply,
                           client->Log(worker, offset, options.server));
    if (!reply.error.empty() && ended) {
      return absl::FailedPreconditionError(reply.error);
    }
    printer.Print(reply, offset);
    offset = reply.next_offset > offset ? reply.next_offset : offset;
    if (!reply.data.empty()) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (ended) break;
    client->Sleep(kFollowInterval_s);
  }
  if (!options.follow && tell) TellOfOtherServers(*client, worker);
  return Outcome(job);
}

}  // namespace

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LogsOptions>(
      app, exit_code, "logs", "Shows the output of a job's worker", Run);
  AddConnectionOptions(command, &options);
  AddOption(command, "job", options.job, "JOB", "id or name")->required();
  AddOption(command, "--rank", options.rank, "", "which worker of a gang")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--server", options.server, "SERVER",
            "what it wrote there, before it moved");
  command.add_flag("-f,--follow", options.follow,
                   "goes on until the job has ended, and fails unless it has "
                   "finished");
  command.add_flag("--json", options.json, "lines of JSON");
  command.add_flag("--raw", options.raw,
                   "to a terminal too the bytes as they are, which may change "
                   "what it shows and does");
}

}  // namespace gavel
