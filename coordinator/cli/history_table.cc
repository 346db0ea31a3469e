#include "coordinator/cli/history_table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/replay_run.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/journal.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "core/units.h"
#include "runtime/database/sqlite.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// "v100=1.25h k80=0.10h": the numbers of the map, as `format` writes them.
std::string ByType(const Json& row, const char* key,
                   std::string (*format)(double)) {
  std::string text;
  const Json map = row.value(key, Json::object());
  for (const auto& [type, number] : map.items()) {
    if (!number.is_number()) continue;
    StrAppend(&text, text.empty() ? "" : " ", type, "=",
              format(number.get<double>()));
  }
  return text.empty() ? "-" : text;
}

std::string Hours(double seconds) {
  return absl::StrFormat("%.2fh", seconds / 3600);
}

std::string Text(const Json& row, const char* key) {
  const std::string text = row.value(key, "");
  return text.empty() ? "-" : text;
}

std::string Count(const Json& row, const char* key) {
  return FormatCount(row.value(key, uint64_t{0}));
}

std::string Id(const Json& row, const char* key) {
  return StrCat(row.value(key, uint64_t{0}));
}

std::string At(const Json& row, const char* key) {
  return FormatWallTime(row.value(key, 0.0));
}

// sacct's "CODE:SIGNAL".
std::string Exit(const Json& row) {
  return StrCat(row.value("exit_code", int64_t{0}), ":",
                row.value("signal", int64_t{0}));
}

// The time without a lease of rank 0, until the job's end or now.
double Waited(const Json& row, double now_s) {
  const double ended_s = row.value("ended_s", 0.0);
  const double life_s =
      (ended_s > 0 ? ended_s : now_s) - row.value("submitted_s", 0.0);
  return std::max(0.0, life_s - row.value("run_s", 0.0));
}

std::string RenderJobs(const Json& json, double now_s, size_t width) {
  TableRows rows;
  for (const Json& row : json) {
    rows.push_back(
        {Id(row, "job"), Text(row, "name"), Text(row, "user"),
         Text(row, "state"), At(row, "submitted_s"), At(row, "started_s"),
         At(row, "ended_s"), FormatElapsed(Waited(row, now_s)),
         FormatElapsed(row.value("run_s", 0.0)),
         FormatElapsed(row.value("pausing_s", 0.0)),
         FormatSteps(row.value("steps_done", uint64_t{0}),
                     row.value("steps_total", uint64_t{0})),
         Count(row, "pauses"), Count(row, "moves"), Count(row, "evictions"),
         Exit(row), ByType(row, "accelerator_s", Hours), Text(row, "reason")});
  }
  return RenderTable(
      {Right("JOBID"), Left("NAME", 24), Left("USER", 16), Left("ST"),
       Left("SUBMIT"), Left("START"), Left("END"), Right("WAITED"),
       Right("ELAPSED"), Right("PAUSING"), Right("STEPS"), Right("PAUSES"),
       Right("MOVES"), Right("EVICTED"), Right("EXIT"),
       Left("ACCELERATORS", 40), Left("REASON")},
      rows, width);
}

std::string RenderLeases(const Json& json, size_t width) {
  TableRows rows;
  for (const Json& row : json) {
    const double to_s = row.value("to_s", 0.0);
    rows.push_back(
        {Id(row, "job"), Id(row, "rank"), Id(row, "epoch"), Text(row, "server"),
         Text(row, "type"), Text(row, "uuid"), At(row, "from_s"),
         At(row, "to_s"),
         to_s > 0 ? FormatElapsed(to_s - row.value("from_s", 0.0)) : "-",
         to_s > 0 ? FormatCount(row.value("steps_to", uint64_t{0}) -
                                row.value("steps_from", uint64_t{0}))
                  : "-",
         Text(row, "ended")});
  }
  return RenderTable(
      {Right("JOBID"), Right("RANK"), Right("EPOCH"), Left("SERVER", 24),
       Left("TYPE", 16), Left("UUID", 24), Left("FROM"), Left("TO"),
       Right("ELAPSED"), Right("STEPS"), Left("ENDED")},
      rows, width);
}

std::string RenderRounds(const Json& json, size_t width) {
  TableRows rows;
  for (const Json& row : json) {
    rows.push_back({Id(row, "round"), At(row, "from_s"), Id(row, "running"),
                    Id(row, "waiting"), ByType(row, "busy", [](double count) {
                      return absl::StrFormat("%g", count);
                    })});
  }
  return RenderTable({Right("ROUND"), Left("FROM"), Right("RUNNING"),
                      Right("WAITING"), Left("BUSY")},
                     rows, width);
}

std::string RenderSteps(const Json& json, size_t width) {
  TableRows rows;
  for (const Json& row : json) {
    rows.push_back({Id(row, "job"), At(row, "at_s"), Count(row, "steps_done"),
                    FormatRate(row.value("steps_per_s", 0.0)),
                    Text(row, "type")});
  }
  return RenderTable({Right("JOBID"), Left("AT"), Right("STEPS"),
                      Right("STEPS/S"), Left("TYPE")},
                     rows, width);
}

// Hours of [from_s, to_s] within the other two; to_s 0: not over.
double HoursWithin(double from_s, double to_s, double since_s, double until_s) {
  const double end_s = to_s > 0 ? std::min(to_s, until_s) : until_s;
  return std::max(0.0, end_s - std::max(from_s, since_s)) / kHour_s;
}

// Divides the time of an accelerator between leases that share it: each of the
// two leases of a pair counts half while both run.
class Sharing {
 public:
  explicit Sharing(const Json& leases) {
    for (const Json& lease : leases) {
      by_place_[PlaceOf(lease)].push_back(&lease);
    }
  }

  double Hours(const Json& lease, double since_s, double until_s) const {
    const double from_s = std::max(since_s, lease.value("from_s", 0.0));
    const double to_s = EndOf(lease, until_s);
    double hours = HoursWithin(from_s, to_s, since_s, until_s);
    for (const Json* other : by_place_.at(PlaceOf(lease))) {
      if (other->value("job", uint64_t{0}) == lease.value("job", uint64_t{0})) {
        continue;
      }
      const double begin_s = std::max(from_s, other->value("from_s", 0.0));
      const double end_s = std::min(to_s, EndOf(*other, until_s));
      if (end_s > begin_s) hours -= (end_s - begin_s) / kHour_s / 2;
    }
    return std::max(0.0, hours);
  }

 private:
  using Place = std::pair<std::string, std::string>;
  static Place PlaceOf(const Json& lease) {
    return {lease.value("server", ""), lease.value("uuid", "")};
  }
  static double EndOf(const Json& lease, double until_s) {
    const double to_s = lease.value("to_s", 0.0);
    return to_s > 0 ? std::min(to_s, until_s) : until_s;
  }

  std::map<Place, std::vector<const Json*>> by_place_;
};

}  // namespace

std::string FormatElapsed(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e12));
  const int64_t days = whole / 86400;
  const std::string time = absl::StrFormat("%02d:%02d:%02d", whole / 3600 % 24,
                                           whole / 60 % 60, whole % 60);
  return days == 0 ? time : StrCat(days, "-", time);
}

std::string RenderHistory(std::string_view table, const Json& rows,
                          double now_s, size_t width) {
  if (table == "leases") return RenderLeases(rows, width);
  if (table == "rounds") return RenderRounds(rows, width);
  if (table == "steps") return RenderSteps(rows, width);
  return RenderJobs(rows, now_s, width);
}

std::map<std::string, UserUsage> UsageOf(const UsageHistory& history,
                                         double since_s, double until_s) {
  std::map<std::string, UserUsage> usage;
  struct Owner {
    std::string user;
    bool opaque = false;
  };
  std::map<uint64_t, Owner> owners;
  for (const Json& job : history.jobs) {
    owners[job.value("job", uint64_t{0})] = {job.value("user", ""),
                                             job.value("opaque", 0) != 0};
  }
  const Sharing sharing(history.leases);
  for (const Json& lease : history.leases) {
    const double hours = sharing.Hours(lease, since_s, until_s);
    if (hours <= 0) continue;
    const Owner& owner = owners[lease.value("job", uint64_t{0})];
    UserUsage& user = usage[owner.user];
    user.used_h += hours;
    if (owner.opaque) user.opaque_h += hours;
    user.used_h_by_type[lease.value("type", "")] += hours;
  }
  for (size_t i = 0; i < history.shares.size(); ++i) {
    const Json& row = history.shares[i];
    const double from_s = row.value("from_s", 0.0);
    double to_s = row.value("to_s", 0.0);
    if (i + 1 < history.shares.size()) {
      to_s = std::min(to_s, history.shares[i + 1].value("from_s", to_s));
    }
    const double hours = HoursWithin(from_s, to_s, since_s, until_s);
    const Json entitled = row.value("entitled", Json::object());
    for (const auto& [user, accelerators] : entitled.items()) {
      if (hours <= 0 || !accelerators.is_number()) continue;
      usage[user].entitled_h += hours * accelerators.get<double>();
    }
  }
  return usage;
}

std::string RenderUsage(const std::map<std::string, UserUsage>& usage,
                        size_t width) {
  TableRows rows;
  UserUsage all;
  const auto cells = [](const std::string& name, const UserUsage& user) {
    std::vector<std::string> types;
    for (const auto& [type, hours] : user.used_h_by_type) {
      types.push_back(absl::StrFormat("%s %.2f", type, hours));
    }
    // Sums of many hours may differ by their rounding.
    const double compared_h = std::max(0.0, user.used_h - user.opaque_h);
    return std::vector<std::string>{
        name,
        absl::StrFormat("%.2f", user.used_h),
        absl::StrFormat("%.2f", user.opaque_h),
        absl::StrFormat("%.2f", user.entitled_h),
        user.entitled_h > 0
            ? absl::StrFormat("%.0f %%", 100 * compared_h / user.entitled_h)
            : "-",
        absl::StrJoin(types, ", ")};
  };
  for (const auto& [name, user] : usage) {
    rows.push_back(cells(name.empty() ? "-" : name, user));
    all.used_h += user.used_h;
    all.opaque_h += user.opaque_h;
    all.entitled_h += user.entitled_h;
    for (const auto& [type, hours] : user.used_h_by_type) {
      all.used_h_by_type[type] += hours;
    }
  }
  if (rows.size() > 1) rows.push_back(cells("all", all));
  return RenderTable({Left("USER", 24), Right("USED H"), Right("OPAQUE H"),
                      Right("ENTITLED H"), Right("USED"), Left("BY TYPE")},
                     rows, width);
}

Json UsageJson(const std::map<std::string, UserUsage>& usage, double since_s,
               double until_s) {
  Json users = Json::array();
  for (const auto& [name, user] : usage) {
    users.push_back({{"user", name},
                     {"used_h", user.used_h},
                     {"opaque_h", user.opaque_h},
                     {"entitled_h", user.entitled_h},
                     {"used_h_by_type", user.used_h_by_type}});
  }
  return {
      {"since_s", since_s}, {"until_s", until_s}, {"users", std::move(users)}};
}

absl::StatusOr<Json> ReadHistoryFile(const std::string& path,
                                     const HistoryFilter& filter) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(path));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  return ReadAllHistory(database, filter);
}

absl::StatusOr<JobId> FindJobInFile(const std::string& path,
                                    const std::string& job) {
  uint64_t id = 0;
  if (absl::SimpleAtoi(job, &id) && id > 0) return JobId(id);
  const absl::StatusOr<Json> rows = ReadHistoryFile(path, HistoryFilter());
  GAVEL_RETURN_IF_ERROR(Annotate(rows.status(), path));
  uint64_t found = 0;
  for (const Json& row : *rows) {
    if (row.value("name", "") == job) found = row.value("job", found);
  }
  if (found != 0) return JobId(found);
  return absl::NotFoundError(
      StrCat(path, ": there is no job named \"", job, "\" in it"));
}

// ---- The commands that show the past: history, usage and replay.

namespace {

// ---- history ----

struct HistoryOptions : ClientOptions {
  HistoryFilter filter;
  std::vector<std::string> states;
  std::string job;  // id or name
  std::string since;
  std::string until;
  std::string file;
};

// Sets the time of `filter`; an empty text leaves its end as it is.
absl::Status ReadTimes(const std::string& since, const std::string& until,
                       double now_s, HistoryFilter* filter) {
  if (!since.empty()) {
    GAVEL_ASSIGN_OR_RETURN(filter->since_s, ParseWallTime(since, now_s));
  }
  if (!until.empty()) {
    GAVEL_ASSIGN_OR_RETURN(filter->until_s, ParseWallTime(until, now_s));
  }
  if (filter->until_s > 0 && filter->since_s > filter->until_s) {
    return absl::InvalidArgumentError(
        StrCat("--since \"", since, "\" is later than --until \"",
               until.empty() ? "now" : until, "\"; give an earlier one"));
  }
  return absl::OkStatus();
}

// Sets the letters of the states that somebody typed as those or as words.
absl::Status ReadStates(const std::vector<std::string>& typed,
                        HistoryFilter* filter) {
  std::vector<std::string> states;
  for (const std::string& state : typed) {
    GAVEL_ASSIGN_OR_RETURN(const auto letters, ParseState(state));
    states.insert(states.end(), letters.begin(), letters.end());
  }
  filter->state = absl::StrJoin(states, ",");
  return absl::OkStatus();
}

absl::StatusOr<Json> FetchHistory(HistoryOptions options) {
  HistoryFilter& filter = options.filter;
  GAVEL_RETURN_IF_ERROR(
      ReadTimes(options.since, options.until, WallClockNow(), &filter));
  GAVEL_RETURN_IF_ERROR(ReadStates(options.states, &filter));
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
  filter.until_s = now_s;
  GAVEL_RETURN_IF_ERROR(
      ReadTimes(options.since, options.until, now_s, &filter));
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

absl::Status ReplayIncident(ReplayFlags flags) {
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
  AddOption(command, "--state", options.states, "STATE",
            "jobs in these states: PD R S CG CD F CA, or waiting, running and "
            "so on: F,cancelled")
      ->delimiter(',');
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
      ReplayIncident);
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
