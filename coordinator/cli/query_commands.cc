#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/rows.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kWatchInterval_s = 1;

struct QueryOptions : ClientOptions {
  std::string job;     // of `why`
  bool watch = false;  // of `queue`
};

using Render = std::function<std::string(const Json& json, size_t width)>;

std::string RenderQueueJson(const Json& json, size_t width) {
  return RenderQueue(ParseQueue(json), width);
}

std::string RenderNodesJson(const Json& json, size_t width) {
  return RenderNodes(ParseNodes(json), width);
}

std::string RenderStatusJson(const Json& json, size_t) {
  return RenderStatus(ParseStatus(json));
}

// The reason in full, and what is known of the job's throughputs.
std::string RenderWhy(const Json& json, size_t) {
  // The shape is the coordinator's; value() takes a default for what is not.
  std::string text =
      StrCat("job ", json.value("job", uint64_t{0}), " ",
             json.value("name", ""), ": ", json.value("reason", ""), "\n");
  StrAppend(&text,
            absl::StrFormat("share of time: target %.0f %%, received %.0f %%\n",
                            100 * json.value("share_target", 0.0),
                            100 * json.value("share_got", 0.0)));
  for (const Json& one : json.value("throughputs", Json::array())) {
    StrAppend(&text, "throughput on ", one.value("type", ""), ": ",
              FormatRate(one.value("steps_per_s", 0.0)), " steps/s (",
              one.value("source", ""), ")\n");
  }
  return text;
}

absl::Status Show(Client& client, const QueryOptions& options, QueryKind kind,
                  const Render& render, Terminal& terminal) {
  JobId job;
  if (!options.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(job, client.Resolve(options.job));
  }
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(kind, job));
  terminal.Show(options.json ? json.dump(options.watch ? -1 : 2) + "\n"
                             : render(json, terminal.width()));
  return absl::OkStatus();
}

absl::Status Run(const QueryOptions& options, QueryKind kind,
                 const Render& render) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
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
      "Lists jobs. ST: PD waiting, R running, S paused, CG pausing, CD "
      "finished, F held, CA cancelled. TARGET/GOT: share of time");
  const auto options =
      AddQuery(*queue, QueryKind::kQueue, RenderQueueJson, exit_code);
  queue->add_flag("--watch", options->watch, "again every second");

  CLI::App* nodes =
      app.add_subcommand("nodes", "Lists servers and their accelerators");
  AddQuery(*nodes, QueryKind::kNodes, RenderNodesJson, exit_code);

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
