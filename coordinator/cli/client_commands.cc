// The commands that change jobs or the cluster, those that ask the coordinator,
// and the options of all clients.
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/what_if.h"
#include "coordinator/workload/job_array.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// ---- Jobs that a command is for

struct CommandOptions : ClientOptions {
  std::vector<std::string> jobs;
  // Chooses jobs where none is named.
  std::string user;
  std::string app;
  std::string name;  // a pattern of the shell: lm-*
  std::vector<std::string> states;
  bool yes = false;

  bool Selects() const {
    return !user.empty() || !app.empty() || !name.empty() || !states.empty();
  }
};

// Whether the command does anything to a job in that state.
bool Concerns(CommandKind kind, const QueueRow& job) {
  switch (kind) {
    case CommandKind::kRelease:
      return job.state == "F";
    case CommandKind::kHold:
      return !job.Ended();
    case CommandKind::kRequeue:
      return job.state == "R" || job.state == "S" || job.state == "CG";
    default:
      return !job.Over();
  }
}

absl::StatusOr<std::vector<QueueRow>> Select(Client& client,
                                             const CommandOptions& options,
                                             CommandKind kind) {
  GAVEL_ASSIGN_OR_RETURN(
      const std::string filter,
      QueueFilter(options.user, options.app, options.states));
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client.Query(QueryKind::kQueue, JobId(), filter));
  std::vector<QueueRow> rows = ParseQueue(json);
  std::erase_if(rows, [&](const QueueRow& row) {
    const bool named = options.name.empty() ||
                       fnmatch(options.name.c_str(), row.name.c_str(), 0) == 0;
    return !named || !Concerns(kind, row);
  });
  return rows;
}

// "3 jobs (4 lm-1, 5 lm-2, 7 lm-3)".
std::string CountText(const std::vector<QueueRow>& rows) {
  constexpr size_t kNamed = 5;
  std::string text =
      StrCat(rows.size(), rows.size() == 1 ? " job (" : " jobs (");
  for (size_t i = 0; i < std::min(rows.size(), kNamed); ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", rows[i].id, " ", rows[i].name);
  }
  if (rows.size() > kNamed) {
    StrAppend(&text, ", and ", rows.size() - kNamed, " more");
  }
  return text + ")";
}

absl::Status CommandSelected(const CommandOptions& options, CommandKind kind,
                             const char* done) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(std::vector<QueueRow> rows,
                         Select(*client, options, kind));
  if (rows.empty()) {
    return absl::NotFoundError(
        StrCat("no job that could be ", absl::AsciiStrToLower(done),
               " is chosen by these options; `gavel queue` takes them, too"));
  }
  const std::string what = StrCat(CommandName(kind), " ", CountText(rows));
  if (!options.yes) {
    if (isatty(STDIN_FILENO) == 0) {
      return absl::FailedPreconditionError(
          StrCat("would ", what,
                 "; nobody can be asked, as standard input is no terminal: "
                 "give --yes"));
    }
    if (!Confirm(StrCat("Really ", what, "?"))) {
      return absl::CancelledError("nothing was changed");
    }
  }
  // Waiting jobs first: none of them shall start where another one ends.
  std::ranges::stable_partition(
      rows, [](const QueueRow& row) { return row.state == "PD"; });
  std::vector<std::string> jobs;
  for (const QueueRow& row : rows) jobs.push_back(StrCat(row.id));
  CommandRequest command;
  command.kind = kind;
  return CommandJobs(*client, options.json, jobs, std::move(command), done);
}

absl::Status RunRequest(const CommandOptions& options, CommandKind kind,
                        const char* done) {
  if (options.Selects() && options.jobs.empty()) {
    return CommandSelected(options, kind, done);
  }
  if (options.Selects()) {
    return absl::InvalidArgumentError(
        "name jobs, or choose them by --user, --state, --name and --app, but "
        "not both");
  }
  if (options.jobs.empty()) {
    throw CLI::RequiredError(
        "a job, or one of --user, --state, --name and --app,");
  }
  CommandRequest command;
  command.kind = kind;
  return CommandJobs(options, options.jobs, std::move(command), done);
}

absl::Status ShutDown(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  return client->Command(CommandKind::kShutdown);
}

struct NotifyOptions : ClientOptions {
  bool test = false;
};

absl::Status TestNotices(const NotifyOptions& options) {
  // The delivery of a notice that is under way comes first, and each may take
  // half a minute.
  constexpr double kTimeout_s = 70;
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  CommandRequest command;
  command.kind = CommandKind::kNotify;
  GAVEL_RETURN_IF_ERROR(client->Command(std::move(command), kTimeout_s));
  if (options.json) {
    std::puts(R"({"delivered": true})");
  } else {
    std::puts("Delivered a test notice");
  }
  return absl::OkStatus();
}

void AddJobCommand(CLI::App& app, const char* name, const char* help,
                   CommandKind kind, const char* done, int* exit_code) {
  const auto run = [kind, done](const CommandOptions& options) {
    return RunRequest(options, kind, done);
  };
  auto [command, options] =
      AddCommand<CommandOptions>(app, exit_code, name, help, run);
  AddClientOptions(command, &options);
  AddJobNames(command, &options.jobs);
  command.get_option("jobs")->required(false);
  AddOption(command, "--user", options.user, "USER", "all jobs of one user")
      ->check(CheckNonEmpty);
  AddOption(command, "--state", options.states, "STATE",
            "all in these states, by letters or word: PD,running")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddOption(command, "--name", options.name, "PATTERN",
            "all whose names match: 'lm-*'")
      ->check(CheckNonEmpty);
  AddOption(command, "--app", options.app, "APP", "all of one app")
      ->check(CheckNonEmpty);
  command.add_flag("--yes", options.yes,
                   "does not ask before it changes the jobs that these options "
                   "choose");
}

// Adds `checkpoint`, which has running jobs write one, and below it the
// commands on the files of checkpoints. A job with the name of one of these
// commands is given by its id.
void AddCheckpointCommand(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App& command = *app.add_subcommand(
      "checkpoint", "Has running jobs write a checkpoint now, and go on");
  AddClientOptions(command, options.get());
  AddJobNames(command, &options->jobs);
  command.get_option("jobs")->required(false);
  command.callback([options, exit_code, &command] {
    if (!command.get_subcommands().empty()) return;
    if (options->jobs.empty()) throw CLI::RequiredError("jobs");
    *exit_code = ExitCodeOf(RunRequest(*options, CommandKind::kCheckpoint,
                                       "Asked for a checkpoint of"));
  });
  AddCheckpointFilesCommands(command, exit_code);
}

// ---- drain and resume

struct DrainOptions : ClientOptions {
  std::vector<std::string> targets;
  std::string by;
};

absl::StatusOr<double> SecondsUntil(const std::string& time) {
  if (time.empty()) return 0;
  const double now_s = WallClockNow();
  GAVEL_ASSIGN_OR_RETURN(const double at_s, ParseTimeAhead(time, now_s));
  if (at_s >= now_s) return at_s - now_s;
  return absl::InvalidArgumentError(
      StrCat("--by \"", time, "\" has passed; without it jobs leave now"));
}

struct WorkLeft {
  std::set<uint64_t> jobs;
  std::set<uint64_t> starting;  // none of `jobs`: they hold no lease
  double within_s = 0;
  std::vector<std::string> drained;  // accelerators, with their server
};

// The jobs that are still on that server or accelerator, and its drained
// accelerators.
WorkLeft LeftOn(const std::string& target, const std::vector<NodeRow>& nodes) {
  WorkLeft left;
  for (const NodeRow& node : nodes) {
    for (const AcceleratorRow& one : node.accelerators) {
      if (target != node.server && target != one.uuid &&
          target != StrCat(node.server, "/", one.uuid)) {
        continue;
      }
      left.jobs.insert(one.jobs.begin(), one.jobs.end());
      left.jobs.insert(one.kept_jobs.begin(), one.kept_jobs.end());
      left.starting.insert(one.starting_jobs.begin(), one.starting_jobs.end());
      left.within_s = std::max(left.within_s, one.drain_in_s.value_or(0));
      if (one.drained) {
        left.drained.push_back(StrCat(node.server, "/", one.uuid));
      }
    }
  }
  for (const uint64_t job : left.jobs) left.starting.erase(job);
  return left;
}

std::string JobsText(const std::set<uint64_t>& jobs) {
  return StrCat(jobs.size() == 1 ? "job " : "jobs ", absl::StrJoin(jobs, ", "));
}

std::string DrainText(const std::string& target, const WorkLeft& left) {
  if (left.jobs.empty() && left.starting.empty()) {
    return StrCat("Drained ", target, ": nobody is there");
  }
  std::string text = StrCat("Draining ", target, ": ");
  if (!left.jobs.empty()) {
    StrAppend(&text, JobsText(left.jobs),
              left.jobs.size() == 1 ? " is there, and leaves at the "
                                    : " are there, and leave at the ");
    if (left.within_s <= 0) {
      StrAppend(&text, "next boundary");
    } else {
      StrAppend(&text, "end of the round, in ", FormatElapsed(left.within_s),
                " at the latest");
    }
    StrAppend(&text, " (a job of class \"opaque\" at its own end)");
  }
  if (left.starting.empty()) return text;
  StrAppend(&text, left.jobs.empty() ? "" : "; ", JobsText(left.starting),
            left.starting.size() == 1 ? " is" : " are",
            " starting or leaving there, without a lease");
  if (left.within_s > 0) return text + ", and get none";
  return text + ": their processes end now";
}

// Accelerators that were drained by themselves stay so when their server is
// resumed.
std::string ResumeText(const std::string& target, const WorkLeft& left) {
  std::string text = StrCat("Resumed ", target);
  if (left.drained.empty()) return text;
  StrAppend(&text, "; drained by themselves, and still so: ");
  return text +
         absl::StrJoin(left.drained, ", ",
                       [](std::string* out, const std::string& one) {
                         StrAppend(out, one, " (`gavel resume ", one, "`)");
                       });
}

absl::Status Drain(const DrainOptions& options, CommandKind kind) {
  GAVEL_ASSIGN_OR_RETURN(const double within_s, SecondsUntil(options.by));
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  std::vector<std::string> done;
  absl::Status status =
      ForEach(options.targets, [&](const std::string& target) {
        CommandRequest command{0, kind, JobId(), target, within_s};
        GAVEL_RETURN_IF_ERROR(client->Command(std::move(command)));
        done.push_back(target);
        return absl::OkStatus();
      });
  if (done.empty()) return status;
  GAVEL_ASSIGN_OR_RETURN(const Json json, client->Query(QueryKind::kNodes));
  const std::vector<NodeRow> nodes = ParseNodes(json);
  Json changed = Json::array();
  for (const std::string& target : done) {
    const WorkLeft left = LeftOn(target, nodes);
    changed.push_back({{"target", target},
                       {"drained", kind == CommandKind::kDrain},
                       {"jobs", left.jobs},
                       {"starting_jobs", left.starting},
                       {"within_s", left.within_s},
                       {"accelerators_drained", left.drained}});
    if (options.json) continue;
    std::printf("%s\n", kind == CommandKind::kDrain
                            ? DrainText(target, left).c_str()
                            : ResumeText(target, left).c_str());
  }
  if (options.json) std::printf("%s\n", changed.dump(2).c_str());
  return status;
}

void AddTargets(CLI::App& app, const char* name, const char* help,
                CommandKind kind, int* exit_code) {
  const auto run = [kind](const DrainOptions& options) {
    return Drain(options, kind);
  };
  auto [command, options] =
      AddCommand<DrainOptions>(app, exit_code, name, help, run);
  AddClientOptions(command, &options);
  AddOption(command, "targets", options.targets, "SERVER|UUID",
            "a server, an accelerator's uuid, or SERVER/UUID")
      ->required();
  if (kind == CommandKind::kResume) return;
  AddOption(command, "--by", options.by, "TIME",
            "jobs may stay to the end of the round, but not beyond this time: "
            "2026-11-21T18:30, or 2h from now");
}

// ---- update

struct UpdateOptions : ClientOptions {
  std::vector<std::string> jobs;
  JobUpdate update;
};

absl::Status Update(const UpdateOptions& options) {
  CommandRequest command;
  command.kind = CommandKind::kUpdate;
  command.update = options.update;
  std::optional<std::vector<std::string>>& types = command.update.types;
  if (types == std::vector<std::string>{"all"}) types->clear();  // none named
  for (auto* parents :
       {&command.update.after_success, &command.update.after_any}) {
    if (*parents == std::vector<std::string>{"0"}) (*parents)->clear();
  }
  return CommandJobs(options, options.jobs, std::move(command), "Updated");
}

}  // namespace

void AddConnectionOptions(CLI::App& command, Connection* connection) {
  AddOption(command, "--coordinator", connection->coordinator, "",
            "its address")
      ->envname("GAVEL_COORDINATOR");
  AddKeyFlags(command, &connection->keys);
}

void AddClientOptions(CLI::App& command, ClientOptions* options) {
  AddConnectionOptions(command, options);
  command.add_flag("--json", options->json, "JSON instead of text");
}

absl::Status CommandJobs(Client& client, bool json,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done) {
  Json changed = Json::array();
  absl::Status status = ForEach(jobs, [&](const std::string& name) {
    if (command.kind == CommandKind::kUpdate) {
      GAVEL_ASSIGN_OR_RETURN(command.job, client.Resolve(name));
    } else {
      GAVEL_ASSIGN_OR_RETURN(const Client::Reference named,
                             client.ResolveReference(name));
      command.job = named.job;
      command.elements = named.elements;
    }
    GAVEL_RETURN_IF_ERROR(client.Command(command));
    Json row = {{"id", command.job.value()}};
    std::string job = ParseElementId(name) ? name : StrCat(command.job.value());
    if (!command.elements.empty()) {
      row["elements"] = command.elements;
      StrAppend(&job, "_[", command.elements, "]");
    }
    changed.push_back(std::move(row));
    if (!json) absl::PrintF("%s job %s\n", done, job);
    return absl::OkStatus();
  });
  if (json) std::printf("%s\n", changed.dump(2).c_str());
  return status;
}

absl::Status CommandJobs(const ClientOptions& options,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  return CommandJobs(*client, options.json, jobs, std::move(command), done);
}

void AddJobNames(CLI::App& command, std::vector<std::string>* jobs) {
  AddOption(command, "jobs", *jobs, "JOB",
            "ids or names; of an array all jobs, or 42_7, or 42_[7-20]")
      ->required();
}

void AddClientCommands(CLI::App& app, int* exit_code) {
  AddJobCommand(app, "cancel", "Ends jobs for good", CommandKind::kCancel,
                "Cancelled", exit_code);
  AddJobCommand(app, "release", "Lets held jobs go on", CommandKind::kRelease,
                "Released", exit_code);
  AddJobCommand(app, "hold",
                "Takes jobs out of the queue, with a checkpoint (opaque jobs "
                "have none: they are ended, and begin anew); `gavel release` "
                "undoes it",
                CommandKind::kHold, "Held", exit_code);
  AddJobCommand(app, "requeue",
                "Ends the processes of jobs with a checkpoint; they start anew "
                "in their turn",
                CommandKind::kRequeue, "Requeued", exit_code);
  AddCheckpointCommand(app, exit_code);

  auto [shutdown, of_shutdown] = AddCommand<ClientOptions>(
      app, exit_code, "shutdown",
      "Ends the coordinator; workers train on to the end of their leases",
      ShutDown);
  AddClientOptions(shutdown, &of_shutdown);
}

// "5400" of "1h30m" and of "5400".
static std::string SecondsOf(const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return text;
  const std::optional<double> seconds = ParseDuration(text);
  if (seconds) return absl::StrFormat("%.3f", *seconds);
  throw CLI::ValidationError(
      StrCat("\"", text, "\" is no duration; give seconds, or such as 1h30m"));
}

void AddOperatorCommands(CLI::App& app, int* exit_code) {
  auto [notify, of_notify] = AddCommand<NotifyOptions>(
      app, exit_code, "notify",
      "Has the coordinator send a test notice by [notify] of its cluster file, "
      "and tells what became of it",
      TestNotices);
  AddClientOptions(notify, &of_notify);
  notify.add_flag("--test", of_notify.test, "sends the test")->required();

  AddTargets(app, "drain",
             "Starts nothing more on servers or accelerators; jobs that are "
             "there move or pause, none is killed",
             CommandKind::kDrain, exit_code);
  AddTargets(app, "resume", "Gives drained servers or accelerators back",
             CommandKind::kResume, exit_code);

  auto [command, options] = AddCommand<UpdateOptions>(
      app, exit_code, "update",
      "Changes jobs that were submitted, within the bounds of a job file",
      Update);
  AddClientOptions(command, &options);
  AddOption(command, "jobs", options.jobs, "JOB",
            "ids or names; of an array one element each, as 42_7")
      ->required();
  JobUpdate& update = options.update;
  AddOption(command, "--weight", update.weight, "", "its priority");
  AddOption(command, "--deadline", update.deadline_s, "DURATION",
            "after submission: seconds, or such as 1h30m; 0: none")
      ->transform(SecondsOf);
  AddOption(command, "--entity", update.entity, "NAME", "that it counts for");
  AddOption(command, "--types", update.types, "TYPE",
            "accelerator types that it may run on: v100,p100; or all")
      ->delimiter(',');
  AddOption(command, "--scale-factor-min", update.scale_factor_min, "",
            "fewest workers; 0: its scale factor");
  AddOption(command, "--scale-factor-max", update.scale_factor_max, "",
            "most workers; 0: its scale factor");
  AddOption(command, "--time-limit", update.time_limit_s, "DURATION",
            "that it may run in all: seconds, or such as 1h30m; 0: no limit")
      ->transform(SecondsOf);
  AddOption(command, "--after", update.after_success, "JOB",
            "starts once these jobs have finished: names or ids, by commas; "
            "0: none")
      ->delimiter(',');
  AddOption(command, "--after-any", update.after_any, "JOB",
            "starts once these have ended in any way; 0: none")
      ->delimiter(',');
}

// ---- The commands that ask the coordinator: queue, apps, nodes, why and
// status.

namespace {

// ---- queue, nodes, why and status ----

constexpr double kWatchInterval_s = 1;
constexpr size_t kEndedShown = 10;

struct QueryOptions : ClientOptions {
  std::string job;                  // of `why`
  std::vector<std::string> forget;  // of `nodes`
  // The options below belong to `queue`.
  bool watch = false;
  bool all = false;
  bool start = false;
  std::string user;
  std::string app;
  std::vector<std::string> states;
  std::vector<std::string> format;  // keys of the JSON
  std::vector<std::string> sort;    // likewise; "-KEY": the largest first
};

using Render = std::function<std::string(const Json& json, size_t width)>;

// The keys of a job's row.
std::vector<std::string_view> QueueKeys() {
  std::vector<std::string_view> keys;
  const QueueRow row;
  VisitFields(
      row, [&](const RowKey& key, const auto&) { keys.push_back(key.name); });
  return keys;
}

// A key of --sort: "-KEY" sorts by KEY, the largest first.
struct SortKey {
  explicit SortKey(std::string_view text)
      : falls(text.starts_with('-')), key(text.substr(falls ? 1 : 0)) {}
  bool falls = false;
  std::string key;
};

// `forecast`: rows have kForecastKeys, too.
absl::Status CheckKey(const char* option, std::string_view key, bool forecast) {
  const std::vector<std::string_view> keys = QueueKeys();
  const bool of_job = std::ranges::find(keys, key) != keys.end();
  if (of_job || (forecast && std::ranges::find(kForecastKeys, key) !=
                                 std::end(kForecastKeys))) {
    return absl::OkStatus();
  }
  const auto add = [](std::string* out, std::string_view name) {
    out->append(name);
  };
  return absl::InvalidArgumentError(StrCat(
      option, " \"", key, "\" is no key of a job; the keys are ",
      absl::StrJoin(keys, ", ", add), forecast ? ", " : "; with --start also ",
      absl::StrJoin(kForecastKeys, ", ", add)));
}

absl::Status CheckKeys(const QueryOptions& options) {
  for (const std::string& text : options.sort) {
    GAVEL_RETURN_IF_ERROR(CheckKey("--sort", SortKey(text).key, options.start));
  }
  for (const std::string& key : options.format) {
    GAVEL_RETURN_IF_ERROR(CheckKey("--format", key, options.start));
  }
  return absl::OkStatus();
}

// The value that a row is sorted by: of a spread of times the median. Null: not
// known.
Json RankOf(const Json& row, const std::string& key) {
  const Json value = row.value(key, Json());
  if (!value.is_object() || !value.contains("median_in_s")) return value;
  const double median_s = value["median_in_s"].get<double>();
  return median_s < kNever ? Json(median_s) : Json();
}

// Sorts rows by some of their keys; a value that is not known comes last.
void SortBy(const std::vector<std::string>& keys, Json* rows) {
  std::vector<Json> sorted(rows->begin(), rows->end());
  // The last key first, each time keeping the order of equals.
  for (size_t i = keys.size(); i-- > 0;) {
    const SortKey by(keys[i]);
    std::ranges::stable_sort(sorted, [&](const Json& left, const Json& right) {
      const Json a = RankOf(left, by.key);
      const Json b = RankOf(right, by.key);
      if (a.is_null() || b.is_null()) return !a.is_null() && b.is_null();
      return by.falls ? b < a : a < b;
    });
  }
  *rows = std::move(sorted);
}

// Leaves each row these keys only.
void KeepKeys(const std::vector<std::string>& keys, Json* rows) {
  if (keys.empty()) return;
  for (Json& row : *rows) {
    Json kept = Json::object();
    for (const std::string& key : keys) kept[key] = row.value(key, Json());
    row = std::move(kept);
  }
}

std::string CellOf(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) {
    return value.get<std::string>().empty() ? "-" : value.get<std::string>();
  }
  if (value.is_number_float()) {
    return absl::StrFormat("%g", value.get<double>());
  }
  return value.empty()
             ? "-"
             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The rows as a table of these keys.
std::string RenderKeys(const std::vector<std::string>& keys, const Json& rows,
                       size_t width) {
  std::vector<Column> columns;
  for (const std::string& key : keys) {
    columns.push_back(Left(absl::AsciiStrToUpper(key)));
  }
  TableRows cells;
  for (const Json& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    for (const std::string& key : keys) line.push_back(CellOf(row[key]));
  }
  return RenderTable(columns, cells, width);
}

// The filter is empty, which means all jobs, for --json without flags.
absl::StatusOr<std::string> FilterOf(const QueryOptions& options) {
  std::optional<size_t> ended_max;
  if (!options.all && !options.json && options.states.empty()) {
    ended_max = kEndedShown;
  }
  return QueueFilter(options.user, options.app, options.states, ended_max);
}

// Where a table leaves out jobs that have ended.
std::string EndedNote(const QueryOptions& options, const Json& json) {
  if (options.all || options.json || !options.states.empty()) return "";
  const auto ended = std::ranges::count_if(ParseQueue(json), [](const auto& r) {
    return r.state == "CD" || r.state == "CA";
  });
  if (static_cast<size_t>(ended) < kEndedShown) return "";
  return StrCat("of jobs that have ended the last ", kEndedShown,
                "; `gavel queue --all` lists all\n");
}

absl::Status Forget(Client& client, const QueryOptions& options) {
  return ForEach(options.forget, [&](const std::string& server) {
    CommandRequest command;
    command.kind = CommandKind::kForget;
    command.target = server;
    GAVEL_RETURN_IF_ERROR(client.Command(std::move(command)));
    if (!options.json) std::printf("Forgot server %s\n", server.c_str());
    return absl::OkStatus();
  });
}

std::string RenderNodesJson(const Json& json, size_t width) {
  return RenderNodes(ParseNodes(json), width);
}

std::string RenderStatusJson(const Json& json, size_t) {
  return RenderStatus(ParseStatus(json));
}

// "finished"; "waiting, is to finish".
std::string StateOf(const ParentRow& parent) {
  const std::string state(StateWord(parent.state));
  if (parent.state == "CD" || parent.state == "CA") return state;
  if (parent.is_awaited) {
    return StrCat(state, state.empty() ? "" : ", ",
                  parent.must_finish ? "is to finish" : "is to end");
  }
  return state.empty() ? "has ended" : StrCat(state, ", no longer waited for");
}

// The full reason why the job waits, its parents, and the known throughputs of
// the job.
std::string RenderWhy(const Json& json, size_t) {
  const WhyRow why = ParseWhy(json);
  std::string text = StrCat(
      "job ", why.job,
      why.array_index ? StrCat(" (", why.array, "_", *why.array_index, ")")
                      : "",
      " ", why.name, ": ", why.reason, "\n");
  StrAppend(
      &text,
      why.opaque
          ? std::string(
                "share of time: none, for it reports no steps and keeps its "
                "accelerators until its end\n")
          : absl::StrFormat("share of time: target %.0f %%, received %.0f %%\n",
                            100 * why.share_target, 100 * why.share_got));
  if (why.rho.has_value()) {
    StrAppend(&text,
              absl::StrFormat("finish-time fairness of its app: %.2f (below 1: "
                              "sooner than with an equal part)\n",
                              *why.rho));
  }
  if (why.app_to_come_s.has_value()) {
    StrAppend(&text, absl::StrFormat("work of its app in jobs that are to "
                                     "come: %.1f accelerator-hours\n",
                                     *why.app_to_come_s / 3600));
  }
  if (!why.auction.empty()) {
    StrAppend(&text, "last auction: ", why.auction, "\n");
  }
  for (const ParentRow& parent : why.parents) {
    StrAppend(&text, "parent: ", parent.is_array ? "array " : "",
              parent.job > 0 ? StrCat(parent.job, " ") : "", parent.name, " (",
              StateOf(parent), ")\n");
  }
  for (const auto& [parameter, value] : why.sweep) {
    StrAppend(&text, "sweep: ", parameter, " = ", value, "\n");
  }
  for (const ThroughputRow& one : why.throughputs) {
    StrAppend(&text, "throughput on ", one.type, ": ",
              FormatRate(one.steps_per_s), " steps/s (", one.source, ")\n");
  }
  return text;
}

// When the jobs that wait start and end.
absl::Status ShowForecast(Client& client, const QueryOptions& options,
                          Terminal& terminal) {
  constexpr double kSimulationLimit_s = 20;
  GAVEL_ASSIGN_OR_RETURN(const std::string filter, FilterOf(options));
  GAVEL_ASSIGN_OR_RETURN(Json rows,
                         client.Query(QueryKind::kQueue, JobId(), filter));
  GAVEL_ASSIGN_OR_RETURN(const LiveState live,
                         QueryLiveState(client, kWithWaiting));
  GAVEL_ASSIGN_OR_RETURN(const QueueForecast forecast,
                         PredictQueue(live, kSimulationLimit_s));
  AddForecast(forecast, &rows);
  SortBy(options.sort, &rows);
  const size_t width = terminal.table_width();
  if (options.json) {
    Json json = ForecastJson(forecast, ParseQueue(rows));
    if (!options.format.empty()) {
      KeepKeys(options.format, &rows);
      json["jobs"] = std::move(rows);
    }
    terminal.Show(json.dump(2) + "\n");
  } else if (!options.format.empty()) {
    FormatForecast(forecast, &rows);
    KeepKeys(options.format, &rows);
    terminal.Show(RenderKeys(options.format, rows, width) +
                  ForecastNote(forecast));
  } else {
    const bool are_chosen = !options.user.empty() || !options.app.empty() ||
                            !options.states.empty();
    terminal.Show(
        RenderForecast(forecast, ParseQueue(rows), width, are_chosen));
  }
  return absl::OkStatus();
}

absl::Status ShowQueue(Client& client, const QueryOptions& options,
                       Terminal& terminal) {
  GAVEL_RETURN_IF_ERROR(CheckKeys(options));
  if (options.start) return ShowForecast(client, options, terminal);
  GAVEL_ASSIGN_OR_RETURN(const std::string filter, FilterOf(options));
  GAVEL_ASSIGN_OR_RETURN(Json rows,
                         client.Query(QueryKind::kQueue, JobId(), filter));
  const std::string note = EndedNote(options, rows);
  SortBy(options.sort, &rows);
  KeepKeys(options.format, &rows);
  const size_t width = terminal.table_width();
  std::string text;
  if (options.json) {
    text = rows.dump(options.watch ? -1 : 2) + "\n";
  } else if (!options.format.empty()) {
    text = RenderKeys(options.format, rows, width);
  } else {
    std::vector<QueueRow> jobs = ParseQueue(rows);
    if (options.sort.empty()) SortLiveFirst(jobs);
    text = RenderQueue(jobs, width, /*is_cut=*/!note.empty());
  }
  terminal.Show(text + note);
  return absl::OkStatus();
}

absl::Status Show(Client& client, const QueryOptions& options, QueryKind kind,
                  const Render& render, Terminal& terminal) {
  if (kind == QueryKind::kQueue) return ShowQueue(client, options, terminal);
  JobId job;
  if (!options.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(job, client.Resolve(options.job));
  }
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(kind, job));
  terminal.Show(options.json ? json.dump(2) + "\n"
                             : render(json, terminal.table_width()));
  return absl::OkStatus();
}

// The apps of the jobs that have not ended; a job without an app is none.
absl::Status ShowApps(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client->Query(QueryKind::kQueue, JobId(), ""));
  const std::vector<AppRow> apps = AppsOf(ParseQueue(json));
  if (!options.json) {
    Terminal terminal;
    terminal.Show(RenderApps(apps, terminal.table_width()));
    return absl::OkStatus();
  }
  std::printf("%s\n", AppsJson(apps).dump(2).c_str());
  return absl::OkStatus();
}

struct GoalOptions : ClientOptions {
  AppGoal goal;
};

absl::Status SetGoal(const GoalOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  const AppGoal& goal = options.goal;
  GAVEL_RETURN_IF_ERROR(client->SetGoal(goal));
  if (options.json) {
    const Json done = {{"app", goal.app}, {"ended", goal.ended}};
    std::printf("%s\n", done.dump(2).c_str());
  } else {
    std::printf("App %s %s\n", goal.app.c_str(),
                goal.ended ? "ends with its last job"
                           : "goes on until `gavel goal --ended`");
  }
  return absl::OkStatus();
}

absl::Status AskAndRender(const QueryOptions& options, QueryKind kind,
                          const Render& render) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  if (!options.forget.empty()) {
    GAVEL_RETURN_IF_ERROR(Forget(*client, options));
  }
  Terminal terminal;
  do {
    GAVEL_RETURN_IF_ERROR(Show(*client, options, kind, render, terminal));
    if (options.watch) client->Sleep(kWatchInterval_s);
  } while (options.watch);
  return absl::OkStatus();
}

std::pair<CLI::App&, QueryOptions&> AddQuery(CLI::App& app, int* exit_code,
                                             const char* name, const char* help,
                                             QueryKind kind,
                                             const Render& render) {
  const auto run = [kind, render](const QueryOptions& options) {
    return AskAndRender(options, kind, render);
  };
  auto added = AddCommand<QueryOptions>(app, exit_code, name, help, run);
  AddClientOptions(added.first, &added.second);
  return added;
}

}  // namespace

void AddQueryCommands(CLI::App& app, int* exit_code) {
  auto [queue, of_queue] =
      AddQuery(app, exit_code, "queue",
               "Lists jobs, those that run first. ST: PD waiting, R running, S "
               "paused, CG pausing, CD finished, F held, CA cancelled. "
               "TARGET/GOT: share of time",
               QueryKind::kQueue, nullptr);
  queue.add_flag("--watch", of_queue.watch, "again every second");
  queue.add_flag("--all", of_queue.all,
                 "also jobs that ended before the last ten did");
  queue.add_flag("--start", of_queue.start,
                 "when the jobs that wait are expected to start and end, and "
                 "between which times if jobs are up to 1.25 times as fast or "
                 "as slow as expected");
  AddOption(queue, "--user", of_queue.user, "USER", "of one user only")
      ->check(CheckNonEmpty);
  AddOption(queue, "--state", of_queue.states, "STATE",
            "in these states only, by letters or word: R,waiting")
      ->delimiter(',');
  AddOption(queue, "--app", of_queue.app, "APP", "of one app only")
      ->check(CheckNonEmpty);
  AddOption(queue, "--format", of_queue.format, "KEY",
            "these columns, by the keys of --json: id,name,state,steps_done; "
            "with --start also start and finish")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddOption(queue, "--sort", of_queue.sort, "KEY",
            "by these keys of --json; -KEY: the largest first. "
            "--sort=-steps_per_s,name")
      ->delimiter(',')
      ->allow_extra_args(false);

  auto [apps, of_apps] = AddCommand<ClientOptions>(
      app, exit_code, "apps",
      "Lists the apps that are present: jobs with one goal (`app` of the job "
      "file). RHO: its time to finish over that with an equal part of the "
      "cluster; LEFT: accelerator-hours of work",
      ShowApps);
  AddClientOptions(apps, &of_apps);

  auto [goal, of_goal] = AddCommand<GoalOptions>(
      app, exit_code, "goal",
      "Says what is left of an app of yours, for a program that submits its "
      "jobs one after another: the app then stays also without jobs, for ten "
      "minutes at most. docs/apps.md",
      SetGoal);
  AddClientOptions(goal, &of_goal);
  AppGoal& told = of_goal.goal;
  AddOption(goal, "app", told.app, "APP", "as in the job files")->required();
  AddOption(goal, "--steps-to-come", told.steps_to_come, "STEPS",
            "of work that is in no job yet");
  AddOption(goal, "--longest-to-come", told.longest_to_come, "STEPS",
            "of those, as many as have to be made one after another");
  AddOption(goal, "--steps-total", told.steps_total, "STEPS",
            "of all work since the app began; 0: not known");
  AddOption(goal, "--longest-total", told.longest_total, "STEPS",
            "of those, as many as have to be made one after another");
  AddOption(goal, "--stop-at", told.stop_at, "STEPS",
            "at which each job will be stopped; 0: none will");
  goal.add_flag("--ended", told.ended, "no further jobs come");

  auto [nodes, of_nodes] =
      AddQuery(app, exit_code, "nodes", "Lists servers and their accelerators",
               QueryKind::kNodes, RenderNodesJson);
  AddOption(nodes, "--forget", of_nodes.forget, "SERVER",
            "first removes a server that is gone for good");

  auto [why, of_why] = AddQuery(
      app, exit_code, "why",
      "Says why a job is in the state it is in, and what is known of it",
      QueryKind::kWhy, RenderWhy);
  AddOption(why, "job", of_why.job, "JOB", "id or name")->required();

  AddQuery(app, exit_code, "status", "The coordinator itself: round, policy",
           QueryKind::kStatus, RenderStatusJson);
}

}  // namespace gavel
