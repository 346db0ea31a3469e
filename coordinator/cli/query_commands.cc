// The commands that ask the coordinator: queue, nodes, why, status and logs.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/history_tables.h"
#include "core/error_line.h"
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
                    {"rho", row.rho ? Json(*row.rho) : Json()},
                    {"bidder", row.bidder}});
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

// ---- logs ----

constexpr double kFollowInterval_s = 0.3;

struct LogsOptions : ClientOptions {
  std::string job;
  int rank = 0;
  std::string server;  // empty: where it ran last
  bool follow = false;
  bool raw = false;
};

// Prints output as it is, or as lines of JSON: {"offset": bytes before it,
// "data": text}. A program may write anything, so that a terminal gets it
// Visible, unless --raw is given.
class Printer {
 public:
  explicit Printer(const LogsOptions& options)
      : json_(options.json),
        visible_(Terminal().is_terminal() && !options.raw) {}
  ~Printer() { Write(TakeVisible(&rest_, /*all=*/true)); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void Print(const LogReply& reply, uint64_t offset) {
    std::string text = reply.data;
    if (json_ && !text.empty()) {
      const Json line = {{"offset", offset}, {"data", reply.data}};
      // A program may write bytes that are no text.
      text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    if (!visible_) return Write(text);
    rest_ += text;
    Write(TakeVisible(&rest_, /*all=*/false));
  }

 private:
  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  const bool json_;
  const bool visible_;
  std::string rest_;  // of a character of several bytes
};

// The job as it is now; nothing: it is forgotten. INVALID_ARGUMENT: the job
// never has such a rank, however long one waits.
absl::StatusOr<std::optional<QueueRow>> JobOf(Client& client,
                                              const WorkerId& worker) {
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         client.Query(QueryKind::kQueue, worker.job));
  std::vector<QueueRow> rows = ParseQueue(json);
  if (rows.empty()) return std::nullopt;
  const int ranks =
      std::max(rows.front().scale_factor, rows.front().scale_factor_max);
  if (worker.rank >= ranks) {
    return absl::InvalidArgumentError(
        StrCat("job ", worker.job.value(), " has no rank ", worker.rank,
               ", its ranks are 0 to ", ranks - 1));
  }
  return std::move(rows.front());
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

// Each server keeps the output that was written there, so a job that has moved
// has several logs.
void TellOfOtherServers(Client& client, const WorkerId& worker) {
  std::vector<std::string> servers = ServersOf(client, worker);
  if (servers.size() < 2) return;
  servers.pop_back();
  for (std::string& server : servers) {
    server = StrCat("`gavel logs ", worker.job.value(), " --rank ", worker.rank,
                    " --server ", server, "`");
  }
  absl::FPrintF(stderr,
                "gavel: what it wrote before on other servers is not shown; %s "
                "tells\n",
                absl::StrJoin(servers, " and "));
}

// For the exit code of a command that followed a job: an error unless the job
// has finished.
absl::Status Outcome(const std::optional<QueueRow>& job) {
  if (!job.has_value() || job->state == "CD") return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("job ", job->id, " ", job->name, " is ", job->reason));
}

absl::Status ShowLogs(const LogsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const JobId id, client->Resolve(options.job));
  const WorkerId worker{id, options.rank};
  const bool tell = options.server.empty();
  std::optional<QueueRow> job;
  if (options.follow) {
    GAVEL_ASSIGN_OR_RETURN(job, JobOf(*client, worker));
    if (tell) TellOfOtherServers(*client, worker);
  }
  Printer printer(options);
  uint64_t offset = 0;
  while (true) {
    // The job is asked for before the log, so that all output up to its end is
    // read.
    if (options.follow) {
      GAVEL_ASSIGN_OR_RETURN(job, JobOf(*client, worker));
    }
    const bool ended = !job.has_value() || job->Ended();
    GAVEL_ASSIGN_OR_RETURN(const LogReply reply,
                           client->Log(worker, offset, options.server));
    if (!reply.error.empty() && ended) {
      return absl::FailedPreconditionError(reply.error);
    }
    printer.Print(reply, offset);
    offset = reply.next_offset > offset ? reply.next_offset : offset;
    if (!reply.data.empty()) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (ended) break;
    client->Sleep(kFollowInterval_s);
  }
  if (!options.follow && tell) TellOfOtherServers(*client, worker);
  return Outcome(job);
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

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LogsOptions>(
      app, exit_code, "logs", "Shows the output of a job's worker", ShowLogs);
  AddConnectionOptions(command, &options);
  AddOption(command, "job", options.job, "JOB", "id or name")->required();
  AddOption(command, "--rank", options.rank, "", "which worker of a gang")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--server", options.server, "SERVER",
            "what it wrote there, before it moved");
  command.add_flag("-f,--follow", options.follow,
                   "goes on until the job has ended, and fails unless it has "
                   "finished");
  command.add_flag("--json", options.json, "lines of JSON");
  command.add_flag("--raw", options.raw,
                   "to a terminal too the bytes as they are, which may change "
                   "what it shows and does");
}

}  // namespace gavel
