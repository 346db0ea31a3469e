// The commands that follow a job from its submission to its end: submit and
// run, logs and wait.
#include "coordinator/cli/job_commands.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/what_if.h"
#include "coordinator/server/history.h"
#include "coordinator/workload/job_array.h"
#include "coordinator/workload/job_spec.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {

// ---- `gavel logs`, `gavel wait`, and what other commands watch jobs with.

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

// The notice of a job that is started again.
static std::string FailureText(const QueueRow& job) {
  std::string how;
  if (job.exit && job.exit->signal) {
    how = StrCat(" (killed by signal ", *job.exit->signal, ")");
  } else if (job.exit && job.exit->exit_code) {
    how = StrCat(" (exit code ", *job.exit->exit_code, ")");
  }
  return StrCat("job ", ShownId(job), " failed", how, " and is started again");
}

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
  if (stream.error().empty()) {
    if (stream.any() || options.since_s > 0) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(const QueueRow row, JobOf(client, job));
    PrintNotices({StrCat("job ", ShownId(row), " has printed nothing",
                         row.reason.empty() ? "" : "; it is ", row.reason)});
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      stream.any() ? StrCat("this is not all of it: ", stream.error())
                   : stream.error());
}

absl::StatusOr<Followed> FollowOutput(
    Client& client, JobId job, const OutputOptions& options,
    const std::function<bool(const QueueRow&)>& look) {
  Followed followed;
  GAVEL_ASSIGN_OR_RETURN(followed.job, JobOf(client, job));
  GAVEL_RETURN_IF_ERROR(CheckRank(followed.job, options.rank));
  JobStream stream(client, {job, options.rank}, options);
  Patience patience(client);
  int failures = followed.job.failures_in_a_row;
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
    if (followed.job.failures_in_a_row > failures && !followed.job.Ended()) {
      PrintNotices({FailureText(followed.job)});
    }
    failures = followed.job.failures_in_a_row;
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
  return StrCat("Job ", ShownId(job), " (", job.name, ") ",
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

// ---- The commands that submit jobs, from files or from the command line
// itself.

namespace {

// ---- What is submitted

struct SubmitOptions : ClientOptions {
  std::vector<std::string> paths;
  std::vector<std::string> program;  // replaces `command`; empty: not given
  std::optional<std::string> name;
  std::optional<std::string> types;  // by commas
  std::optional<int> gpus;
  std::optional<std::string> after;  // by commas
  std::optional<std::string> array;
  std::string not_before;
  std::vector<std::string> settings;  // KEY=VALUE
  bool wait = false;
  bool dry_run = false;
};

absl::StatusOr<std::vector<JobSetting>> SettingsOf(
    const SubmitOptions& options) {
  std::vector<JobSetting> settings;
  for (const std::string& text : options.settings) {
    GAVEL_ASSIGN_OR_RETURN(JobSetting setting, ParseSetting(text));
    settings.push_back(std::move(setting));
  }
  if (options.name) settings.push_back({"--name", "name", *options.name});
  if (options.types) settings.push_back({"--types", "types", *options.types});
  if (options.gpus) {
    settings.push_back({"--gpus", "scale_factor", StrCat(*options.gpus)});
  }
  if (options.after) {
    settings.push_back({"--after", "after_success", *options.after});
  }
  if (options.array) settings.push_back({"--array", "array", *options.array});
  if (!options.not_before.empty()) {
    const double now_s = WallClockNow();
    GAVEL_ASSIGN_OR_RETURN(const double at_s,
                           ParseTimeAhead(options.not_before, now_s));
    if (at_s < now_s) {
      return absl::InvalidArgumentError(
          StrCat("--not-before \"", options.not_before,
                 "\" has passed; without it the job may start now"));
    }
    settings.push_back({"--not-before", "not_before_s",
                        absl::StrFormat("%.3f", at_s - now_s)});
  }
  return settings;
}

// A connection, and the jobs to submit over it.
struct Submission {
  std::unique_ptr<Client> client;
  std::vector<JobFile> files;
};

// Reads the files with the settings that were given, or makes the one job that
// these alone describe, and connects.
absl::StatusOr<Submission> Prepare(const SubmitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(std::vector<JobSetting> settings, SettingsOf(options));
  if (!options.program.empty()) {
    settings.push_back(ProgramSetting(options.program));
  }
  Submission made;
  if (!options.paths.empty()) {
    GAVEL_ASSIGN_OR_RETURN(made.files, ReadJobFiles(options.paths, settings));
  }
  GAVEL_ASSIGN_OR_RETURN(made.client, options.Connect());
  if (!options.paths.empty()) return made;
  const bool named = std::ranges::count(settings, "name", &JobSetting::key) > 0;
  if (!named) {
    GAVEL_ASSIGN_OR_RETURN(const std::string name,
                           made.client->FreeName(options.program.front()));
    settings.push_back({"--name", "name", name});
  }
  GAVEL_ASSIGN_OR_RETURN(
      JobFile file,
      MakeJobFile(StrCat("-- ", options.program.front()), settings));
  made.files.push_back(std::move(file));
  return made;
}

void WarnOfUnknown(const JobFile& file, const char* key,
                   const std::vector<std::string>& named,
                   const std::set<std::string>& known) {
  for (const std::string& name : named) {
    if (known.contains(name)) continue;
    PrintNotices({StrCat("job \"", file.spec.name, "\": ", key, " names \"",
                         name, "\", which the cluster does not have; it has ",
                         absl::StrJoin(known, ", "))});
  }
}

// Types and servers that a job names and the cluster does not have, as far as
// servers are there.
void WarnOfUnknown(Client& client, const JobFile& file) {
  const JobSpec& spec = file.spec;
  if (spec.types.empty() && spec.servers.empty() &&
      spec.exclude_servers.empty()) {
    return;
  }
  const absl::StatusOr<Json> json = client.Query(QueryKind::kNodes);
  if (!json.ok()) return;
  std::set<std::string> types;
  std::set<std::string> servers;
  for (const NodeRow& node : ParseNodes(*json)) {
    servers.insert(node.server);
    for (const AcceleratorRow& one : node.accelerators) types.insert(one.type);
  }
  if (servers.empty()) return;
  WarnOfUnknown(file, "types", spec.types, types);
  WarnOfUnknown(file, "servers", spec.servers, servers);
  WarnOfUnknown(file, "exclude_servers", spec.exclude_servers, servers);
}

absl::StatusOr<JobId> SubmitFile(Client& client, const JobFile& file) {
  GAVEL_ASSIGN_OR_RETURN(const JobId job,
                         client.Submit(file.path, file.text, file.directory));
  WarnOfUnknown(client, file);
  return job;
}

// ---- submit

// The jobs of the submission that were cancelled at once, because of a parent.
std::vector<QueueRow> CancelledAtOnce(Client& client, const JobFile& file,
                                      JobId job) {
  const JobSpec& spec = file.spec;
  if (spec.after_success.empty() && spec.after_by_index.empty()) return {};
  const Json filter = {{"array", job.value()}, {"states", Json::array({"CA"})}};
  const absl::StatusOr<Json> json =
      HasElements(spec)
          ? client.Query(QueryKind::kQueue, JobId(), filter.dump())
          : client.Query(QueryKind::kQueue, job);
  if (!json.ok()) return {};
  std::vector<QueueRow> rows = ParseQueue(*json);
  std::erase_if(rows, [](const QueueRow& row) { return row.state != "CA"; });
  return rows;
}

// A forecast of a job, as if it were submitted now.
struct DryRun {
  std::vector<FitRow> fits;
  std::optional<WhatIf> forecast;
  std::string no_forecast;  // why there is none
};

// Takes out the parents that are among the files before it, which would be
// there when it is submitted. Whether there are any.
bool TakeOutEarlier(const std::set<std::string>& earlier, JobSpec* spec) {
  size_t taken = 0;
  for (auto* names :
       {&spec->after_success, &spec->after_any, &spec->after_by_index}) {
    taken += std::erase_if(*names, [&](const std::string& name) {
      return earlier.contains(name);
    });
  }
  return taken > 0;
}

// `earlier`: the names of the jobs, arrays and elements in the files before
// this one.
absl::StatusOr<DryRun> Try(Client& client, const JobFile& file,
                           const LiveState& live,
                           const std::set<std::string>& earlier) {
  constexpr double kSimulationLimit_s = 20;
  DryRun result;
  absl::StatusOr<std::vector<FitRow>> fits = FitOf(file.spec, live.nodes);
  GAVEL_RETURN_IF_ERROR(Annotate(fits.status(), file.path));
  result.fits = *std::move(fits);
  JobSpec wanted = file.spec;
  const bool follows = TakeOutEarlier(earlier, &wanted);
  GAVEL_RETURN_IF_ERROR(
      client.CheckSubmission(file.path, FormatJobSpec(wanted), file.directory));
  const absl::StatusOr<JobSpec> spec = WithParentsLeft(client, wanted);
  // A job whose parent was cancelled is accepted, and then cancelled.
  if (!spec.ok() && !absl::IsCancelled(spec.status())) {
    return Annotate(spec.status(), file.path);
  }
  result.no_forecast = NoForecastOf(file.spec);
  if (!result.no_forecast.empty()) return result;
  if (!spec.ok()) {
    result.no_forecast = std::string(spec.status().message());
    return result;
  }
  if (follows) {
    result.no_forecast = "it waits for a job of the files before it";
    return result;
  }
  absl::StatusOr<WhatIf> forecast = Predict(live, *spec, kSimulationLimit_s);
  if (forecast.ok()) {
    result.forecast = *std::move(forecast);
  } else {
    result.no_forecast = std::string(forecast.status().message());
  }
  return result;
}

absl::Status TryAll(Client& client, const std::vector<JobFile>& files,
                    bool json) {
  GAVEL_ASSIGN_OR_RETURN(LiveState live, QueryLiveState(client, kWithWaiting));
  GAVEL_RETURN_IF_ERROR(NoteUser(client, &live));
  Json all = Json::array();
  std::set<std::string> earlier;
  const absl::Status status = ForEach(files, [&](const JobFile& file) {
    GAVEL_ASSIGN_OR_RETURN(const DryRun result,
                           Try(client, file, live, earlier));
    earlier.insert(file.spec.name);
    for (const int index : IndicesOf(file.spec)) {
      earlier.insert(ElementIdentity(file.spec, index).name);
    }
    const std::string toml = FormatJobSpec(file.spec);
    if (json) {
      all.push_back({{"name", file.spec.name},
                     {"job", toml},
                     {"fits", FitJson(result.fits)},
                     {"forecast",
                      result.forecast ? WhatIfJson(*result.forecast) : Json()},
                     {"no_forecast", result.no_forecast}});
      return absl::OkStatus();
    }
    Terminal().Write(StrCat(
        toml, "\n", RenderFit(result.fits),
        result.forecast ? RenderWhatIf(*result.forecast, WallClockNow())
                        : StrCat("  no forecast: ", result.no_forecast, "\n")));
    return absl::OkStatus();
  });
  for (const JobFile& file : files) WarnOfUnknown(client, file);
  if (json) std::printf("%s\n", all.dump(2).c_str());
  return status;
}

absl::StatusOr<int> Submit(const SubmitOptions& options) {
  if (options.paths.empty() && options.program.empty()) {
    throw CLI::RequiredError("JOB.toml, or a program behind \"--\",");
  }
  GAVEL_ASSIGN_OR_RETURN(const Submission made, Prepare(options));
  const auto& [client, files] = made;
  if (options.dry_run) {
    GAVEL_RETURN_IF_ERROR(TryAll(*client, files, options.json));
    return kExitOk;
  }
  std::vector<JobId> jobs;
  int exit_code = kExitOk;
  Json submitted = Json::array();
  const absl::Status status = ForEach(files, [&](const JobFile& file) {
    GAVEL_ASSIGN_OR_RETURN(const JobId job, SubmitFile(*client, file));
    Json row = {{"id", job.value()}, {"name", file.spec.name}};
    const size_t elements = IndicesOf(file.spec).size();
    if (elements > 0) row["elements"] = elements;
    if (options.wait) {
      GAVEL_ASSIGN_OR_RETURN(const std::vector<JobId> all,
                             client->ResolveAll(StrCat(job.value())));
      jobs.insert(jobs.end(), all.begin(), all.end());
    }
    std::vector<QueueRow> cancelled;
    if (!options.wait) cancelled = CancelledAtOnce(*client, file, job);
    if (!cancelled.empty()) {
      exit_code = kExitEvicted;
      row["cancelled"] = cancelled.front().reason;
    }
    submitted.push_back(std::move(row));
    if (!options.json) {
      absl::PrintF("Submitted %s (%s)\n",
                   elements == 0 ? StrCat("job ", job.value())
                                 : StrCat("array ", job.value(), " of ",
                                          elements, " jobs"),
                   file.spec.name);
    }
    if (!options.json && !cancelled.empty()) {
      const size_t more = cancelled.size() - 1;
      absl::PrintF("%s%s\n", OutcomeText(cancelled.front()),
                   more > 0 ? StrCat(" (and so are ", more, " more)") : "");
    }
    return absl::OkStatus();
  });
  const bool waits = options.wait && status.ok();
  if (options.json && !waits) std::printf("%s\n", submitted.dump(2).c_str());
  std::fflush(stdout);
  GAVEL_RETURN_IF_ERROR(status);
  return waits ? WaitForAll(*client, jobs, options.json)
               : absl::StatusOr<int>(exit_code);
}

// ---- run

// The user's answer after Ctrl-C.
enum class Wish { kCancel, kWatch, kLeave };

// Counts SIGINT and SIGTERM. Made before other threads.
class Interrupts {
 public:
  Interrupts() {
    signals_.Attach([this] { ++count_; });
  }
  int count() const { return count_; }

 private:
  std::atomic<int> count_ = 0;
  StopSignals signals_;  // its thread ends before the count goes
};

// Asks what to do after Ctrl-C. Another one after the first `interrupted`
// leaves the job alone. A job that ends meanwhile is watched to its end.
// Without a terminal nobody can be asked.
Wish Ask(Client& client, const QueueRow& job, const Interrupts& interrupts,
         int interrupted) {
  if (isatty(STDIN_FILENO) == 0) return Wish::kCancel;
  const auto question = [&] {
    absl::FPrintF(stderr,
                  "\nCancel job %d (%s)? y: yes, n: no, watch on, l: leave it "
                  "running [y/n/l] ",
                  job.id, job.name);
  };
  question();
  constexpr int kLook_ms = 100;
  constexpr int kLooksAQuery = 10;
  for (int look = 1; interrupts.count() == interrupted; ++look) {
    if (look % kLooksAQuery == 0) {
      const absl::StatusOr<QueueRow> now = JobOf(client, JobId(job.id));
      if (now.ok() && now->Ended()) return Wish::kWatch;
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kLook_ms) <= 0) continue;
    std::array<char, 256> line{};
    const ssize_t size = read(STDIN_FILENO, line.data(), line.size());
    if (size <= 0) return Wish::kWatch;
    const std::string answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(
        absl::string_view(line.data(), static_cast<size_t>(size))));
    if (answer == "y" || answer == "yes") return Wish::kCancel;
    if (answer == "n" || answer == "no") return Wish::kWatch;
    if (answer == "l") return Wish::kLeave;
    question();
  }
  return Wish::kLeave;
}

// The user's view of a job that `gavel run` has submitted.
class JobWatch {
 public:
  JobWatch(Client& client, const SubmitOptions& options,
           const Interrupts& interrupts)
      : client_(client), options_(options), interrupts_(interrupts) {}

  // False: the user wants to see no more of it.
  bool Look(const QueueRow& job) {
    TellWhy(job);
    const int interrupted = interrupts_.count();
    if (interrupted == answered_) return true;
    Wish wish = Wish::kLeave;
    if (!cancelled_) wish = Ask(client_, job, interrupts_, interrupted);
    answered_ = interrupts_.count();
    left_ = wish == Wish::kLeave;
    if (wish != Wish::kCancel) return !left_;
    const absl::Status status =
        client_.Command(CommandKind::kCancel, JobId(job.id));
    cancelled_ = status.ok();
    if (!status.ok()) PrintNotices({std::string(status.message())});
    return true;
  }
  bool left() const { return left_; }

 private:
  // Why it waits, until it runs for the first time.
  void TellWhy(const QueueRow& job) {
    if (job.state != "PD" || job.reason == reason_ || options_.json) return;
    reason_ = job.reason;
    absl::FPrintF(stderr, "gavel: job %d (%s) is %s\n", job.id, job.name,
                  job.reason);
  }

  Client& client_;
  const SubmitOptions& options_;
  const Interrupts& interrupts_;
  int answered_ = 0;
  bool cancelled_ = false;
  bool left_ = false;
  std::string reason_;
};

absl::StatusOr<int> SubmitAndFollow(const SubmitOptions& options) {
  if (options.program.empty() && options.paths.empty()) {
    throw CLI::RequiredError("JOB.toml, or a program behind \"--\",");
  }
  const Interrupts interrupts;
  GAVEL_ASSIGN_OR_RETURN(const Submission made, Prepare(options));
  const auto& [client, files] = made;
  const JobFile& file = files.front();
  if (HasElements(file.spec)) {
    return absl::InvalidArgumentError(
        StrCat(file.path, ": it stands for ", IndicesOf(file.spec).size(),
               " jobs, and `gavel run` shows one; use `gavel submit`"));
  }
  GAVEL_ASSIGN_OR_RETURN(const JobId job, SubmitFile(*client, file));
  if (options.json) {
    const Json line = {{"id", job.value()}, {"name", file.spec.name}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  JobWatch watch(*client, options, interrupts);
  OutputOptions output;
  output.json = options.json;
  GAVEL_ASSIGN_OR_RETURN(
      const Followed followed,
      FollowOutput(*client, job, output,
                   [&](const QueueRow& row) { return watch.Look(row); }));
  if (watch.left()) {
    absl::FPrintF(stderr,
                  "gavel: job %d (%s) goes on; `gavel logs -f %d` shows it, "
                  "`gavel cancel %d` ends it\n",
                  job.value(), file.spec.name, job.value(), job.value());
    return kExitInterrupted;
  }
  if (options.json) {
    std::printf("%s\n", OutcomeJson(followed.job).dump().c_str());
  }
  if (!followed.error.empty()) PrintNotices({followed.error});
  const int exit_code = ExitCodeOfJob(followed.job);
  if (exit_code != kExitOk) {
    absl::FPrintF(stderr, "gavel: %s\n", OutcomeText(followed.job));
  }
  return exit_code;
}

// ---- Their options

constexpr char kRunFooter[] =
    "--set takes any key of a job file (`gavel help --files`), those of a "
    "table "
    "as --set environment.DATA=/data. It overrides the file's, and --name, "
    "--types and --gpus override it. Without a name the job is called like its "
    "program.";

void AddJobOptions(CLI::App& command, SubmitOptions* options) {
  AddClientOptions(command, options);
  AddOption(command, "--name", options->name, "NAME", "of the job");
  AddOption(command, "--types", options->types, "TYPE",
            "accelerator types that it may run on: v100,p100");
  AddOption(command, "--gpus", options->gpus, "",
            "accelerators that it needs at once (`scale_factor`)");
  AddOption(command, "--after", options->after, "JOB",
            "starts once these jobs, or all of an array, have finished: names "
            "or ids, by commas; --set after_any=JOB: once they have ended in "
            "any way; --set after_by_index=ARRAY: each element once that of "
            "the same index has finished")
      ->check(CheckNonEmpty);
  AddOption(command, "--not-before", options->not_before, "TIME",
            "it does not start before: 2026-11-21T18:30, or 2h from now");
  AddOption(command, "--set", options->settings, "KEY=VALUE",
            "any key of a job file: weight=2")
      ->allow_extra_args(false);
}

}  // namespace

void AddSubmitCommands(CLI::App& app, const std::vector<std::string>& program,
                       int* exit_code) {
  auto [submit, of_submit] = AddCommand<SubmitOptions>(
      app, exit_code, "submit",
      "Submits jobs: of files, or of a program behind \"--\"", Submit);
  of_submit.program = program;
  AddJobOptions(submit, &of_submit);
  AddOption(submit, "--array", of_submit.array, "INDICES",
            "several jobs, one for each index: 0-99, or 0-99%10 for at most 10 "
            "at once (`array`)");
  submit.add_flag("--wait", of_submit.wait,
                  "until they have ended, with the exit code of `gavel wait`");
  submit.add_flag(
      "--dry-run", of_submit.dry_run,
      "submits nothing: shows the job as it is read, where it fits, "
      "and when it would start and end as `gavel what-if` does");
  AddOption(submit, "jobs", of_submit.paths, "JOB.toml", "job files");
  submit.footer(StrCat(
      "Called as: gavel submit [JOB.toml...] [OPTIONS] [-- ./train ...]\n",
      kRunFooter));

  auto [run, of_run] = AddCommand<SubmitOptions>(
      app, exit_code, "run",
      "Submits a job and shows its output until it has ended. Ctrl-C asks "
      "whether to cancel it. The exit code is that of `gavel wait`",
      SubmitAndFollow);
  of_run.program = program;
  AddJobOptions(run, &of_run);
  AddOption(run, "job", of_run.paths, "JOB.toml", "a job file")->expected(0, 1);
  run.footer(
      StrCat("Called as: gavel run [JOB.toml] [OPTIONS] [-- ./train ...]\n",
             kRunFooter));
}

}  // namespace gavel
