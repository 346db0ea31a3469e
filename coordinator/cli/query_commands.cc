// The commands that ask the coordinator: queue, apps, nodes, why and status.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
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
  std::string user;
  std::string app;
  std::vector<std::string> states;
};

using Render = std::function<std::string(const Json& json, size_t width)>;

std::string RenderQueueJson(const Json& json, size_t width) {
  std::vector<QueueRow> rows = ParseQueue(json);
  SortLiveFirst(rows);
  return RenderQueue(rows, width);
}

// The filter that the coordinator is asked for; it is empty, which means all
// jobs, without flags and for --json.
absl::StatusOr<std::string> FilterOf(const QueryOptions& options) {
  Json filter = Json::object();
  for (const std::string& state : options.states) {
    const std::vector<std::string> letters = StateLettersOf(state);
    if (letters.empty()) {
      return absl::InvalidArgumentError(StrCat(
          "--state \"", state,
          "\" is no state of a job; give PD or waiting, R or running, S or "
          "paused, CG or pausing, F or held, CD or finished, CA or cancelled"));
    }
    for (const std::string& one : letters) filter["states"].push_back(one);
  }
  if (!options.user.empty()) filter["user"] = options.user;
  if (!options.app.empty()) filter["app"] = options.app;
  if (!options.all && !options.json && options.states.empty()) {
    filter["ended_max"] = kEndedShown;
  }
  if (filter.empty()) return "";
  return filter.dump(-1, ' ', false, Json::error_handler_t::replace);
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
  std::string text =
      StrCat("job ", why.job, " ", why.name, ": ", why.reason, "\n");
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

absl::Status Show(Client& client, const QueryOptions& options, QueryKind kind,
                  const Render& render, Terminal& terminal) {
  JobId job;
  if (!options.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(job, client.Resolve(options.job));
  }
  std::string filter;
  if (kind == QueryKind::kQueue) {
    GAVEL_ASSIGN_OR_RETURN(filter, FilterOf(options));
  }
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(kind, job, filter));
  std::string text = options.json ? json.dump(options.watch ? -1 : 2) + "\n"
                                  : render(json, terminal.table_width());
  if (kind == QueryKind::kQueue) text += EndedNote(options, json);
  terminal.Show(text);
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
  Json list = Json::array();
  for (const AppRow& row : apps) {
    list.push_back({{"app", row.app},
                    {"owner", row.owner},
                    {"jobs", row.jobs},
                    {"running", row.running},
                    {"accelerators", row.accelerators},
                    {"left_accelerator_s", row.left_accelerator_s},
                    {"rho", row.rho ? Json(*row.rho) : Json()}});
  }
  std::printf("%s\n", list.dump(2).c_str());
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
               QueryKind::kQueue, RenderQueueJson);
  queue.add_flag("--watch", of_queue.watch, "again every second");
  queue.add_flag("--all", of_queue.all,
                 "also jobs that ended before the last ten did");
  AddOption(queue, "--user", of_queue.user, "USER", "of one user only");
  AddOption(queue, "--state", of_queue.states, "STATE",
            "in these states only, by letters or word: R,waiting")
      ->delimiter(',');
  AddOption(queue, "--app", of_queue.app, "APP", "of one app only");

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
