#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/rows.h"
#include "coordinator/server/journal/history_tables.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kFollowInterval_s = 0.3;

struct LogsOptions : ClientOptions {
  std::string job;
  int rank = 0;
  bool follow = false;
};

// As it is, or as a line of JSON: {"offset": bytes before it, "data": text}.
void Print(const LogReply& reply, uint64_t offset, bool json) {
  if (!json) {
    std::fwrite(reply.data.data(), 1, reply.data.size(), stdout);
  } else if (!reply.data.empty()) {
    const Json line = {{"offset", offset}, {"data", reply.data}};
    // A program may write bytes that are no text.
    std::puts(
        line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }
  std::fflush(stdout);
}

// INVALID_ARGUMENT: the job never has such a rank, however long one waits.
absl::StatusOr<bool> HasEnded(Client& client, const WorkerId& worker) {
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client.Query(QueryKind::kQueue, worker.job));
  if (!json.is_array() || json.empty()) return true;
  const uint64_t ranks =
      std::max(json.front().value("scale_factor", uint64_t{1}),
               json.front().value("scale_factor_max", uint64_t{0}));
  if (static_cast<uint64_t>(worker.rank) >= ranks) {
    return absl::InvalidArgumentError(
        StrCat("job ", worker.job.value(), " has no rank ", worker.rank,
               ", its ranks are 0 to ", ranks - 1));
  }
  return ParseQueue(json).front().Ended();
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
  absl::FPrintF(
      stderr,
      "gavel: what it wrote before on %s is not shown; it is there, in "
      "logs/CLUSTER/%d.%d of the agent's state directory\n",
      absl::StrJoin(servers, " and "), worker.job.value(), worker.rank);
}

absl::Status Run(const LogsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(options.job));
  const WorkerId worker{job, options.rank};
  uint64_t offset = 0;
  if (options.follow) {
    GAVEL_RETURN_IF_ERROR(HasEnded(*client, worker).status());
    TellOfOtherServers(*client, worker);
  }
  while (true) {
    // Asked before the log, so that what was written until then is read.
    bool ended = true;
    if (options.follow) {
      GAVEL_ASSIGN_OR_RETURN(ended, HasEnded(*client, worker));
    }
    GAVEL_ASSIGN_OR_RETURN(const LogReply reply, client->Log(worker, offset));
    if (!reply.error.empty() && ended) {
      return absl::FailedPreconditionError(reply.error);
    }
    Print(reply, offset, options.json);
    offset = reply.next_offset > offset ? reply.next_offset : offset;
    if (!reply.data.empty()) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (ended) break;
    client->Sleep(kFollowInterval_s);
  }
  if (!options.follow) TellOfOtherServers(*client, worker);
  return absl::OkStatus();
}

}  // namespace

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LogsOptions>(
      app, exit_code, "logs", "Shows the output of a job's worker", Run);
  AddConnectionOptions(command, &options);
  AddOption(command, "job", options.job, "JOB", "id or name")->required();
  AddOption(command, "--rank", options.rank, "", "which worker of a gang")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("-f,--follow", options.follow,
                   "goes on until the job has ended");
  command.add_flag("--json", options.json, "lines of JSON");
}

}  // namespace gavel
