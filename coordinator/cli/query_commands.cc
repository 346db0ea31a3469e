// The commands that ask the coordinator: queue, apps, nodes, why and status.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/what_if.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel {
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

absl::Status CheckKey(const char* option, std::string_view key) {
  const std::vector<std::string_view> keys = QueueKeys();
  if (std::ranges::find(keys, key) != keys.end()) return absl::OkStatus();
  const auto add = [](std::string* out, std::string_view name) {
    out->append(name);
  };
  return absl::InvalidArgumentError(
      StrCat(option, " \"", key, "\" is no key of a job; the keys are ",
             absl::StrJoin(keys, ", ", add)));
}

// Sorts rows by some of their keys; a value that is not known comes last.
absl::Status SortBy(const std::vector<std::string>& keys, Json* rows) {
  std::vector<Json> sorted(rows->begin(), rows->end());
  // The last key first, each time keeping the order of equals.
  for (size_t i = keys.size(); i-- > 0;) {
    const bool falls = keys[i].starts_with('-');
    const std::string key = keys[i].substr(falls ? 1 : 0);
    GAVEL_RETURN_IF_ERROR(CheckKey("--sort", key));
    std::ranges::stable_sort(sorted, [&](const Json& left, const Json& right) {
      const Json a = left.value(key, Json());
      const Json b = right.value(key, Json());
      if (a.is_null() || b.is_null()) return !a.is_null() && b.is_null();
      return falls ? b < a : a < b;
    });
  }
  *rows = std::move(sorted);
  return absl::OkStatus();
}

// Leaves each row these keys only.
absl::Status KeepKeys(const std::vector<std::string>& keys, Json* rows) {
  for (const std::string& key : keys) {
    GAVEL_RETURN_IF_ERROR(CheckKey("--format", key));
  }
  if (keys.empty()) return absl::OkStatus();
  for (Json& row : *rows) {
    Json kept = Json::object();
    for (const std::string& key : keys) kept[key] = row.value(key, Json());
    row = std::move(kept);
  }
  return absl::OkStatus();
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

// The full reason why the job waits, and the known throughputs of the job.
std::string RenderWhy(const Json& json, size_t) {
  const WhyRow why = ParseWhy(json);
  std::string text = StrCat(
      "job ", why.job,
      why.array_index ? StrCat(" (", why.array, "_", *why.array_index, ")")
                      : "",
      " ", why.name, ": ", why.reason, "\n");
  StrAppend(&text,
            absl::StrFormat("share of time: target %.0f %%, received %.0f %%\n",
                            100 * why.share_target, 100 * why.share_got));
  if (why.rho.has_value()) {
    StrAppend(&text,
              absl::StrFormat("finish-time fairness of its app: %.2f (below 1: "
                              "sooner than with an equal part)\n",
                              *why.rho));
  }
  if (!why.auction.empty()) {
    StrAppend(&text, "last auction: ", why.auction, "\n");
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
  GAVEL_RETURN_IF_ERROR(SortBy(options.sort, &rows));
  const std::vector<QueueRow> jobs = ParseQueue(rows);
  GAVEL_ASSIGN_OR_RETURN(const LiveState live, QueryLiveState(client));
  GAVEL_ASSIGN_OR_RETURN(const QueueForecast forecast,
                         PredictQueue(live, kSimulationLimit_s));
  terminal.Show(options.json
                    ? ForecastJson(forecast, jobs).dump(2) + "\n"
                    : RenderForecast(forecast, jobs, terminal.table_width()));
  return absl::OkStatus();
}

absl::Status ShowQueue(Client& client, const QueryOptions& options,
                       Terminal& terminal) {
  if (options.start) return ShowForecast(client, options, terminal);
  GAVEL_ASSIGN_OR_RETURN(const std::string filter, FilterOf(options));
  GAVEL_ASSIGN_OR_RETURN(Json rows,
                         client.Query(QueryKind::kQueue, JobId(), filter));
  const std::string note = EndedNote(options, rows);
  GAVEL_RETURN_IF_ERROR(SortBy(options.sort, &rows));
  GAVEL_RETURN_IF_ERROR(KeepKeys(options.format, &rows));
  const size_t width = terminal.table_width();
  std::string text;
  if (options.json) {
    text = rows.dump(options.watch ? -1 : 2) + "\n";
  } else if (!options.format.empty()) {
    text = RenderKeys(options.format, rows, width);
  } else {
    std::vector<QueueRow> jobs = ParseQueue(rows);
    if (options.sort.empty()) SortLiveFirst(jobs);
    text = RenderQueue(jobs, width);
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

absl::Status Run(const QueryOptions& options, QueryKind kind,
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
    return Run(options, kind, render);
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
            "these columns, by the keys of --json: id,name,state,steps_done")
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
