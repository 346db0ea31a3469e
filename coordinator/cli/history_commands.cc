// The commands that show the past: history, usage and replay.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/replay_run.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// ---- history ----

struct HistoryOptions : ClientOptions {
  HistoryFilter filter;
  std::string job;  // id or name
  std::string since;
  std::string until;
  std::string file;
};

absl::StatusOr<Json> FetchHistory(HistoryOptions options) {
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

absl::Status ShowHistory(const HistoryOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const Json rows, FetchHistory(options));
  // Lines are as long as they are: cut, an accounting table says too little.
  constexpr size_t kWide = 1000;
  const std::string text =
      options.json
          ? rows.dump(2) + "\n"
          : RenderHistory(options.filter.table, rows, WallClockNow(), kWide);
  Terminal().Write(text);
  return absl::OkStatus();
}

// ---- usage ----

struct UsageOptions : ClientOptions {
  std::string user;
  std::string since = "30d";
  std::string until;
  std::string file;
};

// One table of history: of the file, or of a coordinator.
absl::StatusOr<Json> FetchTable(const UsageOptions& options, Client* client,
                                const HistoryFilter& filter) {
  if (client != nullptr) {
    return client->Query(QueryKind::kHistory, JobId(),
                         FormatHistoryFilter(filter));
  }
  absl::StatusOr<Json> rows = ReadHistoryFile(options.file, filter);
  GAVEL_RETURN_IF_ERROR(Annotate(rows.status(), options.file));
  return rows;
}

absl::Status ShowUsage(const UsageOptions& options) {
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
    GAVEL_ASSIGN_OR_RETURN(*rows, FetchTable(options, client.get(), filter));
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

// ---- replay ----

struct ReplayFlags {
  ReplayOptions run;
  std::string job;  // id or name; empty: all
  bool no_solve = false;
  bool step = false;       // waits for Enter
  bool different = false;  // shows only what is decided otherwise
};

std::string RenderStep(const ReplayStep& step) {
  std::string text = step.first_row == step.last_row
                         ? StrCat("row ", step.first_row)
                         : StrCat("rows ", step.first_row, "-", step.last_row);
  StrAppend(&text, absl::StrFormat("  term %d  %.3f s", step.term, step.time));
  if (step.wall_s > 0) StrAppend(&text, "  ", FormatWallTime(step.wall_s));
  text += "\n";
  for (const std::string& event : step.events) {
    StrAppend(&text, "  ", event, "\n");
  }
  for (const std::string& action : step.actions) {
    StrAppend(&text, "    -> ", action, "\n");
  }
  for (const std::string& reason : step.reasons) {
    StrAppend(&text, "    ", reason, "\n");
  }
  if (step.verdict == ReplayVerdict::kNotTold) {
    text += "    not decided again: what it followed from was not journaled\n";
  }
  for (const std::string& difference : step.differences) {
    StrAppend(&text, "    TODAY OTHERWISE: ", difference, "\n");
  }
  return text;
}

// False: the user wants no more.
bool WaitForEnter() {
  std::fputs("Enter: next step; q: end > ", stderr);
  std::fflush(stdout);
  const int first = std::getchar();
  for (int c = first; c != '\n' && c != EOF;) c = std::getchar();
  return first != 'q' && first != EOF;
}

absl::Status Replay(ReplayFlags flags) {
  if (flags.run.from == 0 || flags.run.from > flags.run.to) {
    return absl::InvalidArgumentError(
        "--from must be a row from 1 on, and not behind --to");
  }
  flags.run.path = JournalIn(flags.run.path);
  if (!flags.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(flags.run.job,
                           FindJobInFile(flags.run.path, flags.job));
  }
  flags.run.solve = !flags.no_solve;
  GAVEL_ASSIGN_OR_RETURN(
      const ReplaySummary summary,
      ReplayJournal(flags.run, [&flags](const ReplayStep& step) {
        if (flags.different && step.verdict != ReplayVerdict::kOther) {
          return true;
        }
        std::fputs(RenderStep(step).c_str(), stdout);
        return !flags.step || WaitForEnter();
      }));
  absl::PrintF(
      "%d rows in %d steps, %d decisions: %d as journaled, %d otherwise today, "
      "%d that followed from what was not journaled; %d allocations solved "
      "again\n",
      summary.rows, summary.steps, summary.decided, summary.same, summary.other,
      summary.not_told, summary.solves);
  return absl::OkStatus();
}

}  // namespace

void AddHistoryCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<HistoryOptions>(
      app, exit_code, "history",
      "What became of jobs, also of those that ended long ago", ShowHistory);
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

void AddUsageCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<UsageOptions>(
      app, exit_code, "usage",
      "Accelerator hours that users have used, against those that the policy "
      "entitled them to",
      ShowUsage);
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

void AddReplayCommand(CLI::App& app, int* exit_code) {
  auto [command, flags] = AddCommand<ReplayFlags>(
      app, exit_code, "replay",
      "Decides an incident again, event by event, from a coordinator's "
      "journal, which it only reads; a coordinator may be running on it",
      Replay);
  AddOption(command, "journal", flags.run.path, "HISTORY.db",
            "STATE, its journal.db, or a copy")
      ->required();
  AddOption(command, "--from", flags.run.from, "SEQ",
            "first row that is shown");
  command.add_option("--to", flags.run.to, "last row that is shown")
      ->type_name("SEQ");
  AddOption(command, "--job", flags.job, "ID|NAME", "only what names this job");
  AddOption(command, "--policy", flags.run.policy, "",
            "decides by this one, not by the one of then");
  command.add_flag("--no-solve", flags.no_solve,
                   "takes the allocations as they were journaled");
  command.add_flag("--different", flags.different,
                   "shows only what this build decides otherwise");
  command.add_flag("--step", flags.step, "waits for Enter after each step");
}

}  // namespace gavel
