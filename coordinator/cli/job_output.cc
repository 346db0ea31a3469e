// `gavel logs`, `gavel wait`, and what other commands watch jobs with.
#include "coordinator/cli/job_output.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/server/history_tables.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

constexpr double kFollowInterval_s = 0.3;
constexpr double kWaitInterval_s = 0.5;

// Prints output as it is, or as lines of JSON: {"offset": bytes before it on
// the server, "data": text, and where, when and by which process it was
// written}. A program may write anything, so that a terminal gets it Visible,
// unless --raw is given.
class Printer {
 public:
  explicit Printer(const OutputOptions& options)
      : json_(options.json),
        visible_(Terminal().is_terminal() && !options.raw) {}
  ~Printer() { Write(TakeVisible(&rest_, /*all=*/true)); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void Print(const LogReply& reply, uint64_t offset) {
    if (reply.data.empty()) return;
    std::string text = reply.data;
    if (json_) {
      Json line = {{"offset", offset}, {"data", reply.data}};
      if (!reply.server.empty()) line["server"] = reply.server;
      if (reply.incarnation > 0) {
        line["incarnation"] = reply.incarnation;
        line["written_s"] = reply.written_s;
      }
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

// A coordinator that does not answer is asked again, for as long as it takes:
// jobs train on while it is restarted.
class Patience {
 public:
  explicit Patience(Client& client) : client_(client) {}

  // True: ask again.
  bool Has(const absl::Status& status) {
    if (!absl::IsUnavailable(status)) return false;
    if (!told_) {
      PrintNotices({StrCat(status.message(), "; waiting for it")});
    }
    told_ = true;
    client_.Sleep(kWaitInterval_s);
    return true;
  }

 private:
  Client& client_;
  bool told_ = false;
};

// INVALID_ARGUMENT: the job never has such a rank, however long one waits.
absl::Status CheckRank(const QueueRow& job, int rank) {
  const int ranks = std::max(job.scale_factor, job.scale_factor_max);
  if (rank < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("job ", job.id, " has no rank ",
                                           rank, ", its ranks are 0 to ",
                                           ranks - 1));
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

// The output of a worker as one stream. Each server keeps its part of it, by
// incarnation. An incarnation runs on one server, so the parts of all servers
// in the order of incarnations make the stream.
class JobStream {
 public:
  JobStream(Client& client, const WorkerId& worker,
            const OutputOptions& options)
      : client_(client), worker_(worker), options_(options), printer_(options) {
    if (!options.server.empty()) {
      sources_.push_back({options.server});
      return;
    }
    for (const std::string& server : ServersOf(client, worker)) {
      sources_.push_back({server});
    }
  }

  // Prints the next piece. False: there is none now. UNAVAILABLE: the
  // coordinator does not answer.
  absl::StatusOr<bool> PrintPiece() {
    GAVEL_RETURN_IF_ERROR(FetchLatest());
    GAVEL_RETURN_IF_ERROR(FetchOthers());
    Source* first = nullptr;
    for (Source& source : sources_) {
      if (source.piece.data.empty()) continue;
      if (first == nullptr ||
          source.piece.incarnation < first->piece.incarnation) {
        first = &source;
      }
    }
    if (first == nullptr) return false;
    printer_.Print(first->piece, first->offset);
    first->offset = first->piece.next_offset;
    first->piece = LogReply();
    any_ = true;
    return true;
  }

  // Why the latest output can't be had; empty: it could.
  const std::string& error() const { return error_; }
  bool any() const { return any_; }  // something was printed
  // Notes on servers before the latest.
  void TellTroubles() {
    for (Source& source : sources_) {
      const bool troubled = !source.trouble.empty() && !source.server.empty();
      if (!troubled || IsLatest(source)) continue;
      PrintNotices({StrCat("what it wrote on ", source.server,
                           " is not shown: ", source.trouble)});
      source.trouble.clear();
    }
  }

 private:
  struct Source {
    std::string server;
    uint64_t offset = 0;
    LogReply piece = {};  // fetched, and not printed yet
    bool over = false;    // all of it was read, unless it is the latest again
    std::string trouble = {};
  };

  bool IsLatest(const Source& source) const { return source.server == latest_; }
  Source& SourceOf(const std::string& server) {
    const auto found = std::ranges::find(sources_, server, &Source::server);
    if (found != sources_.end()) return *found;
    sources_.push_back({server});
    return sources_.back();
  }
  absl::StatusOr<LogReply> Read(const Source& source,
                                const std::string& server) {
    return client_.Log(worker_, source.offset, server, options_.since_s);
  }
  static void Keep(LogReply reply, Source& source) {
    source.trouble = reply.error;
    if (reply.error.empty()) source.piece = std::move(reply);
  }

  // The latest server is whichever the coordinator says: the job may have moved
  // since the last time.
  absl::Status FetchLatest() {
    if (!options_.server.empty()) latest_ = options_.server;
    if (!SourceOf(latest_).piece.data.empty()) return absl::OkStatus();
    const uint64_t offset = SourceOf(latest_).offset;
    GAVEL_ASSIGN_OR_RETURN(LogReply reply,
                           Read(SourceOf(latest_), options_.server));
    const bool told = !reply.server.empty();
    // A coordinator of an earlier version names no server.
    if (!told && reply.error.empty() && latest_.empty()) {
      std::erase_if(sources_, [](const Source& source) {
        return !source.server.empty();
      });
    }
    if (told && reply.server != latest_) {
      latest_ = reply.server;
      const Source& source = SourceOf(latest_);
      if (!source.piece.data.empty()) return absl::OkStatus();
      if (source.offset != offset) {
        GAVEL_ASSIGN_OR_RETURN(reply, Read(source, latest_));
      }
    }
    error_ = reply.error;
    Keep(std::move(reply), SourceOf(latest_));
    return absl::OkStatus();
  }

  // Each of the others has a piece then, as far as there is more.
  absl::Status FetchOthers() {
    for (Source& source : sources_) {
      const bool has = !source.piece.data.empty() || source.over;
      if (has || IsLatest(source) || source.server.empty()) continue;
      GAVEL_ASSIGN_OR_RETURN(LogReply reply, Read(source, source.server));
      Keep(std::move(reply), source);
      source.over |= source.piece.data.empty();
    }
    return absl::OkStatus();
  }

  Client& client_;
  const WorkerId worker_;
  const OutputOptions& options_;
  Printer printer_;
  std::vector<Source> sources_;
  std::string latest_;  // a server; empty: not known yet
  std::string error_;
  bool any_ = false;
};

}  // namespace

absl::StatusOr<QueueRow> JobOf(Client& client, JobId job) {
  GAVEL_ASSIGN_OR_RETURN(const Json json, client.Query(QueryKind::kQueue, job));
  std::vector<QueueRow> rows = ParseQueue(json);
  if (!rows.empty()) return std::move(rows.front());
  return absl::FailedPreconditionError(
      StrCat("there is no job ", job.value(), "; `gavel queue` lists them"));
}

absl::Status PrintOutput(Client& client, JobId job,
                         const OutputOptions& options) {
  JobStream stream(client, {job, options.rank}, options);
  bool more = true;
  while (more) {
    GAVEL_ASSIGN_OR_RETURN(more, stream.PrintPiece());
  }
  stream.TellTroubles();
  if (stream.error().empty()) return absl::OkStatus();
  if (!stream.any()) return absl::FailedPreconditionError(stream.error());
  PrintNotices({stream.error()});
  return absl::OkStatus();
}

absl::StatusOr<Followed> FollowOutput(
    Client& client, JobId job, const OutputOptions& options,
    const std::function<bool(const QueueRow&)>& look) {
  Followed followed;
  GAVEL_ASSIGN_OR_RETURN(followed.job, JobOf(client, job));
  GAVEL_RETURN_IF_ERROR(CheckRank(followed.job, options.rank));
  JobStream stream(client, {job, options.rank}, options);
  Patience patience(client);
  while (look == nullptr || look(followed.job)) {
    // The job is asked for before the log, so that all output up to its end is
    // read.
    absl::StatusOr<QueueRow> now = JobOf(client, job);
    if (patience.Has(now.status())) continue;
    GAVEL_RETURN_IF_ERROR(now.status());
    followed.job = *std::move(now);
    const absl::StatusOr<bool> printed = stream.PrintPiece();
    if (patience.Has(printed.status())) continue;
    GAVEL_RETURN_IF_ERROR(printed.status());
    stream.TellTroubles();
    if (*printed) continue;
    // A job that is not over may be started again: its process may have ended,
    // its output goes on.
    if (followed.job.Ended()) {
      followed.error = stream.error();
      break;
    }
    client.Sleep(kFollowInterval_s);
  }
  return followed;
}

// Returns once the job has ended, or is held.
static absl::StatusOr<QueueRow> WaitForEnd(Client& client, JobId job) {
  Patience patience(client);
  while (true) {
    absl::StatusOr<QueueRow> row = JobOf(client, job);
    if (patience.Has(row.status())) continue;
    if (!row.ok() || row->Ended()) return row;
    client.Sleep(kWaitInterval_s);
  }
}

// ---- How it ended

int ExitCodeOfJob(const QueueRow& job) {
  if (job.state == "CD") {
    return job.exit ? job.exit->exit_code.value_or(kExitOk) : kExitOk;
  }
  const bool evicted = job.state == "CA" || job.code == "held_by_user" ||
                       job.code == "held_time_limit";
  if (evicted) return kExitEvicted;
  constexpr int kOfSignal = 128;  // as shells have it
  if (job.exit && job.exit->signal) return kOfSignal + *job.exit->signal;
  const int code = job.exit ? job.exit->exit_code.value_or(0) : 0;
  return code == 0 ? kExitFailed : code;
}

std::string OutcomeText(const QueueRow& job) {
  return StrCat("Job ", job.id, " (", job.name, ") ",
                job.state == "CD" ? "finished" : StrCat("is ", job.reason));
}

Json OutcomeJson(const QueueRow& job) {
  return {{"id", job.id},       {"name", job.name},
          {"state", job.state}, {"reason", job.reason},
          {"code", job.code},   {"exit_code", ExitCodeOfJob(job)}};
}

// ---- Commands

namespace {

struct LogsOptions : ClientOptions {
  std::string job;
  OutputOptions output;
  std::string since;
  bool follow = false;
};

absl::Status ShowLogs(const LogsOptions& options) {
  OutputOptions output = options.output;
  if (!options.since.empty()) {
    GAVEL_ASSIGN_OR_RETURN(output.since_s,
                           ParseWallTime(options.since, WallClockNow()));
  }
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(options.job));
  if (!options.follow) return PrintOutput(*client, job, output);
  GAVEL_ASSIGN_OR_RETURN(const Followed followed,
                         FollowOutput(*client, job, output));
  if (!followed.error.empty()) {
    return absl::FailedPreconditionError(followed.error);
  }
  if (followed.job.state == "CD") return absl::OkStatus();
  return absl::FailedPreconditionError(OutcomeText(followed.job));
}

struct WaitOptions : ClientOptions {
  std::vector<std::string> jobs;
};

absl::StatusOr<int> Wait(const WaitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  std::vector<JobId> jobs;
  GAVEL_RETURN_IF_ERROR(ForEach(options.jobs, [&](const std::string& name) {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<JobId> all,
                           client->ResolveAll(name));
    jobs.insert(jobs.end(), all.begin(), all.end());
    return absl::OkStatus();
  }));
  return WaitForAll(*client, jobs, options.json);
}

}  // namespace

absl::StatusOr<int> WaitForAll(Client& client, const std::vector<JobId>& jobs,
                               bool json) {
  int exit_code = kExitOk;
  Json outcomes = Json::array();
  for (const JobId job : jobs) {
    GAVEL_ASSIGN_OR_RETURN(const QueueRow row, WaitForEnd(client, job));
    outcomes.push_back(OutcomeJson(row));
    if (exit_code == kExitOk) exit_code = ExitCodeOfJob(row);
    if (!json) Terminal().Write(OutcomeText(row) + "\n");
    std::fflush(stdout);
  }
  if (json) std::printf("%s\n", outcomes.dump(2).c_str());
  return exit_code;
}

void AddLogsCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<LogsOptions>(
      app, exit_code, "logs",
      "Shows the output of a job's worker, on all servers where it ran",
      ShowLogs);
  AddConnectionOptions(command, &options);
  OutputOptions& output = options.output;
  AddOption(command, "job", options.job, "JOB", "id or name")->required();
  AddOption(command, "--rank", output.rank, "", "which worker of a gang")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--server", output.server, "SERVER",
            "only what it wrote there");
  AddOption(command, "--since", options.since, "TIME",
            "only what it wrote since then, or up to a minute before: 10m ago, "
            "or 2026-11-21T18:30");
  command.add_flag("-f,--follow", options.follow,
                   "goes on until the job has ended, and fails unless it has "
                   "finished");
  command.add_flag("--json", output.json, "lines of JSON");
  command.add_flag("--raw", output.raw,
                   "to a terminal too the bytes as they are, which may change "
                   "what it shows and does");
}

void AddWaitCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<WaitOptions>(
      app, exit_code, "wait",
      "Waits until jobs have ended. Exit code: 0 if all have finished, else "
      "that of the first that has not, 128 more than the signal that ended it, "
      "75 if it was cancelled, held by somebody or ended by its time limit",
      Wait);
  AddClientOptions(command, &options);
  AddJobNames(command, &options.jobs);
}

}  // namespace gavel
