#include <string>

#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history/history_file.h"
#include "coordinator/cli/history/history_table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/wall_time.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"

namespace gavel {
namespace {

struct HistoryOptions : ClientOptions {
  HistoryFilter filter;
  std::string job;  // id or name
  std::string since;
  std::string until;
  std::string file;
};

absl::StatusOr<Json> Fetch(HistoryOptions options) {
  HistoryFilter& filter = options.filter;
  const double now_s = WallClockNow();
  if (!options.since.empty()) {
    GAVEL_ASSIGN_OR_RETURN(filter.since_s, ParseWallTime(options.since, now_s));
  }
  if (!options.until.empty()) {
    GAVEL_ASSIGN_OR_RETURN(filter.until_s, ParseWallTime(options.until, now_s));
  }
  if (!options.file.empty()) {
    options.file = JournalIn(options.file);
    if (!options.job.empty()) {
      GAVEL_ASSIGN_OR_RETURN(const JobId job,
                             FindJobInFile(options.file, options.job));
      filter.job = job.value();
    }
    absl::StatusOr<Json> rows = ReadHistoryFile(options.file, filter);
    GAVEL_RETURN_IF_ERROR(Annotate(rows.status(), options.file));
    return rows;
  }
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  JobId job;
  if (!options.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(job, client->Resolve(options.job));
  }
  return client->Query(QueryKind::kHistory, job, FormatHistoryFilter(filter));
}

absl::Status Run(const HistoryOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const Json rows, Fetch(options));
  // Lines are as long as they are: cut, an accounting table says too little.
  constexpr size_t kWide = 1000;
  const std::string text =
      options.json
          ? rows.dump(2) + "\n"
          : RenderHistory(options.filter.table, rows, WallClockNow(), kWide);
  Terminal().Write(text);
  return absl::OkStatus();
}

}  // namespace

void AddHistoryCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<HistoryOptions>(
      app, exit_code, "history",
      "What became of jobs, also of those that ended long ago", Run);
  AddClientOptions(command, &options);
  AddOption(command, "--job", options.job, "", "one job, by id or name");
  AddOption(command, "--user", options.filter.user, "", "jobs of this user");
  AddOption(command, "--state", options.filter.state, "",
            "jobs in this state: PD R S CG CD F CA");
  AddOption(command, "--since", options.since, "TIME",
            "leaves out what ended before: 2026-11-21, 2026-11-21T18:30, or 2h "
            "for two hours ago");
  AddOption(command, "--until", options.until, "TIME",
            "leaves out what began later");
  AddOption(command, "--show", options.filter.table, "",
            "jobs, leases, rounds, or steps (reports of rank 0)")
      ->check(CLI::IsMember({"jobs", "leases", "rounds", "steps"}));
  AddOption(command, "--file", options.file, "HISTORY.db",
            "reads this journal, and asks no coordinator; one may be running "
            "on it");
}

}  // namespace gavel
