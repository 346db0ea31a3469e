#include <cstdio>
#include <memory>
#include <string>

#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/history/history_file.h"
#include "coordinator/cli/history/history_table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/wall_time.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

struct UsageOptions : ClientOptions {
  std::string user;
  std::string since = "30d";
  std::string until;
  std::string file;
};

// One table of history: of the file, or of a coordinator.
absl::StatusOr<Json> Fetch(const UsageOptions& options, Client* client,
                           const HistoryFilter& filter) {
  if (client != nullptr) {
    return client->Query(QueryKind::kHistory, JobId(),
                         FormatHistoryFilter(filter));
  }
  absl::StatusOr<Json> rows = ReadHistoryFile(options.file, filter);
  GAVEL_RETURN_IF_ERROR(Annotate(rows.status(), options.file));
  return rows;
}

absl::Status Run(const UsageOptions& options) {
  HistoryFilter filter;
  const double now_s = WallClockNow();
  GAVEL_ASSIGN_OR_RETURN(filter.since_s, ParseWallTime(options.since, now_s));
  filter.until_s = now_s;
  if (!options.until.empty()) {
    GAVEL_ASSIGN_OR_RETURN(filter.until_s, ParseWallTime(options.until, now_s));
  }
  std::unique_ptr<Client> client;
  if (options.file.empty()) {
    GAVEL_ASSIGN_OR_RETURN(client, options.Connect());
  }
  UsageHistory history;
  for (const auto& [table, rows] :
       {std::pair("jobs", &history.jobs), std::pair("leases", &history.leases),
        std::pair("shares", &history.shares)}) {
    filter.table = table;
    GAVEL_ASSIGN_OR_RETURN(*rows, Fetch(options, client.get(), filter));
  }
  std::map<std::string, UserUsage> usage =
      UsageOf(history, filter.since_s, filter.until_s);
  if (!options.user.empty()) {
    if (!usage.contains(options.user)) {
      return absl::NotFoundError(
          StrCat("no user \"", options.user,
                 "\" had a job in that time; `gavel usage` lists who had, and "
                 "--since goes further back"));
    }
    std::erase_if(
        usage, [&](const auto& entry) { return entry.first != options.user; });
  }
  const std::string text =
      options.json
          ? UsageJson(usage, filter.since_s, filter.until_s).dump(2) + "\n"
          : RenderUsage(usage, Terminal().table_width());
  Terminal().Write(text);
  return absl::OkStatus();
}

}  // namespace

void AddUsageCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<UsageOptions>(
      app, exit_code, "usage",
      "Accelerator hours that users have used, against those that the policy "
      "entitled them to",
      Run);
  AddClientOptions(command, &options);
  AddOption(command, "--user", options.user, "USER", "of one user only");
  AddOption(command, "--since", options.since, "TIME",
            "from then on: 2026-11-21, 2026-11-21T18:30, or 7d for seven days "
            "ago");
  AddOption(command, "--until", options.until, "TIME",
            "up to then (default: now)");
  AddOption(command, "--file", options.file, "HISTORY.db",
            "reads this journal, and asks no coordinator");
}

}  // namespace gavel
