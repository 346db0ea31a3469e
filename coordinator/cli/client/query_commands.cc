#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/rows.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kWatchInterval_s = 1;
constexpr size_t kEndedShown = 10;

struct QueryOptions : ClientOptions {
  std::string job;                  // of `why`
  std::vector<std::string> forget;  // of `nodes`
  // Of `queue`.
  bool watch = false;
  bool all = false;
  std::string user;
  std::vector<std::string> states;
};

using Render = std::function<std::string(const Json& json, size_t width)>;

std::string RenderQueueJson(const Json& json, size_t width) {
  std::vector<QueueRow> rows = ParseQueue(json);
  SortLiveFirst(rows);
  return RenderQueue(rows, width);
}

// What is asked of the coordinator; "" without flags and for --json: all.
absl::StatusOr<std::string> FilterOf(const QueryOptions& options) {
  Json filter = Json::object();
  for (const std::string& state : options.states) {
    const std::vector<std::string> letters = StateLettersOf(state);
    if (letters.empty()) {
      return absl::InvalidArgumentError(
          StrCat("--state \"", state,
                 "\" is no state of a job; give PD or waiting, R or running, "
                 "S or paused, CG or pausing, F or held, CD or finished, CA or "
                 "cancelled"));
    }
    for (const std::string& one : letters) filter["states"].push_back(one);
  }
  if (!options.user.empty()) filter["user"] = options.user;
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
  for (const std::string& server : options.forget) {
    CommandRequest command;
    command.kind = CommandKind::kForget;
    command.target = server;
    GAVEL_RETURN_IF_ERROR(client.Command(std::move(command)));
    if (!options.json) std::printf("Forgot server %s\n", server.c_str());
  }
  return absl::OkStatus();
}

std::string RenderNodesJson(const Json& json, size_t width) {
  return RenderNodes(ParseNodes(json), width);
}

std::string RenderStatusJson(const Json& json, size_t) {
  return RenderStatus(ParseStatus(json));
}

// The reason in full, and what is known of the job's throughputs.
std::string RenderWhy(const Json& json, size_t) {
  const WhyRow why = ParseWhy(json);
  std::string text =
      StrCat("job ", why.job, " ", why.name, ": ", why.reason, "\n");
  StrAppend(&text,
            absl::StrFormat("share of time: target %.0f %%, received %.0f %%\n",
                            100 * why.share_target, 100 * why.share_got));
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

absl::Status Run(const QueryOptions& options, QueryKind kind,
                 const Render& render) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
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

std::shared_ptr<QueryOptions> AddQuery(CLI::App& command, QueryKind kind,
                                       const Render& render, int* exit_code) {
  auto options = std::make_shared<QueryOptions>();
  AddClientOptions(command, options.get());
  command.callback([options, kind, render, exit_code] {
    *exit_code = ExitCodeOf(Run(*options, kind, render));
  });
  return options;
}

}  // namespace

void AddQueryCommands(CLI::App& app, int* exit_code) {
  CLI::App* queue = app.add_subcommand(
      "queue",
      "Lists jobs, those that run first. ST: PD waiting, R running, S paused, "
      "CG pausing, CD "
      "finished, F held, CA cancelled. TARGET/GOT: share of time");
  const auto options =
      AddQuery(*queue, QueryKind::kQueue, RenderQueueJson, exit_code);
  queue->add_flag("--watch", options->watch, "again every second");
  queue->add_flag("--all", options->all,
                  "also jobs that ended before the last ten did");
  queue->add_option("--user", options->user, "of one user only")
      ->type_name("USER");
  queue
      ->add_option("--state", options->states,
                   "in these states only, by letters or word: R,waiting")
      ->type_name("STATE")
      ->delimiter(',');

  CLI::App* nodes =
      app.add_subcommand("nodes", "Lists servers and their accelerators");
  const auto nodes_options =
      AddQuery(*nodes, QueryKind::kNodes, RenderNodesJson, exit_code);
  nodes
      ->add_option("--forget", nodes_options->forget,
                   "first removes a server that is gone for good")
      ->type_name("SERVER");

  CLI::App* why = app.add_subcommand(
      "why",
      "Says why a job is in the state it is in, and what is known of it");
  const auto why_options =
      AddQuery(*why, QueryKind::kWhy, RenderWhy, exit_code);
  why->add_option("job", why_options->job, "id or name")
      ->type_name("JOB")
      ->required();

  CLI::App* status =
      app.add_subcommand("status", "The coordinator itself: round, policy");
  AddQuery(*status, QueryKind::kStatus, RenderStatusJson, exit_code);
}

}  // namespace gavel
