#include "coordinator/cli/dashboard.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/history_table.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/what_if.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/metrics.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/history.h"
#include "coordinator/server/queue_view.h"
#include "coordinator/server/rows.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

constexpr double kDay_s = 24 * 3600;
// A log's last lines are looked for in so many bytes at its end.
constexpr uint64_t kLogEndBytes[] = {uint64_t{64} << 10, uint64_t{1} << 20};
// Between two looks at whether the coordinator ends.
constexpr std::chrono::milliseconds kStopLook(100);

constexpr char kTotalsFilter[] = R"({"totals": true})";
const std::vector<std::string> kPresentStates = {"PD", "R", "S", "CG", "F"};

absl::StatusOr<std::string> Text(const absl::StatusOr<Json>& json) {
  if (!json.ok()) return json.status();
  return DumpJson(*json);
}

size_t LinesOf(std::string_view text) {
  return static_cast<size_t>(std::ranges::count(text, '\n')) +
         (text.empty() || text.ends_with('\n') ? 0 : 1);
}

// The last lines of a text.
std::string LastLines(std::string_view text, size_t lines) {
  size_t begin = text.ends_with('\n') ? text.size() - 1 : text.size();
  while (begin > 0) {
    if (text[begin - 1] == '\n' && --lines == 0) break;
    --begin;
  }
  return std::string(text.substr(lines == 0 ? begin : 0));
}

// The rows of the matrix: a job, and where each throughput comes from.
Json MatrixRow(const ForecastRow& job) {
  Json throughputs = Json::array();
  for (const auto& [type, steps_per_s] : job.throughputs) {
    const std::string* const source = FindNamed(job.sources, type);
    throughputs.push_back({{"type", type},
                           {"steps_per_s", steps_per_s},
                           {"source", source == nullptr ? "" : *source}});
  }
  return {{"job", job.id},
          {"name", job.name},
          {"throughputs", std::move(throughputs)}};
}

// Adds to leases the reasons of their pauses and moves.
void AddReasons(const Json& reasons, Json* leases) {
  std::map<uint64_t, Json*> by_seq;
  for (Json& lease : *leases) by_seq[lease.value("seq", uint64_t{0})] = &lease;
  for (const Json& reason : reasons) {
    const auto lease = by_seq.find(reason.value("lease", uint64_t{0}));
    if (lease == by_seq.end()) continue;
    const bool moved = reason.value("seq", uint64_t{0}) == lease->first;
    (*lease->second)[moved ? "why_moved" : "why_ended"] =
        reason.value("text", "");
  }
}

}  // namespace

// ---- Samples of shares

void FairnessRecord::AddTo(const std::vector<SharerRow>& sharers,
                           Series* series) const {
  for (const SharerRow& sharer : sharers) {
    const std::pair key(sharer.name, sharer.owner);
    if (!series->contains(key)) {
      if (series->size() >= kNamesMax) continue;
      (*series)[key].resize(at_s_.size() - 1);
    }
    Point point;
    if (sharer.target > 0) point.share = sharer.got / sharer.target;
    point.rho = sharer.rho;
    (*series)[key].push_back(point);
  }
  for (auto& [key, points] : *series) {
    points.resize(at_s_.size());
    if (at_s_.size() > kSamplesMax) points.pop_front();
  }
  // A name that no sample has a value of makes room for another.
  std::erase_if(*series, [](const auto& one) {
    return std::ranges::none_of(one.second, [](const Point& point) {
      return point.share || point.rho;
    });
  });
}

void FairnessRecord::Add(double at_s, const JobTotalsRow& totals) {
  const std::lock_guard lock(mutex_);
  at_s_.push_back(at_s);
  AddTo(totals.users, &users_);
  AddTo(totals.apps, &apps_);
  if (at_s_.size() > kSamplesMax) at_s_.pop_front();
}

Json FairnessRecord::ToJson() const {
  const auto rounded = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? Json(std::round(*value * 1e4) / 1e4)
                                          : Json();
  };
  const auto list = [&](const Series& series) {
    Json rows = Json::array();
    for (const auto& [key, points] : series) {
      Json shares = Json::array();
      Json rhos = Json::array();
      for (const Point& point : points) {
        shares.push_back(rounded(point.share));
        rhos.push_back(rounded(point.rho));
      }
      rows.push_back({{"name", key.first},
                      {"owner", key.second},
                      {"share", std::move(shares)},
                      {"rho", std::move(rhos)}});
    }
    return rows;
  };
  const std::lock_guard lock(mutex_);
  return {{"at_s", at_s_}, {"users", list(users_)}, {"apps", list(apps_)}};
}

CoordinatorDocuments::CoordinatorDocuments(std::optional<double> sample_s)
    : sample_s_(sample_s),
      previews_(AtEnd::kDrop,
                [](auto previews, const std::stop_token&) {
                  for (auto& solve : previews) solve();
                  return kNever;
                }),
      samples_(AtEnd::kDrop, [this](const auto&, const std::stop_token& stop) {
        return stop.stop_requested() ? kNever : Sample();
      }) {}

Time CoordinatorDocuments::Sample() {
  const DocumentRequest reader;
  const absl::StatusOr<Json> status = Query(reader, QueryKind::kStatus);
  const absl::StatusOr<Json> totals =
      Query(reader, QueryKind::kQueue, kTotalsFilter);
  if (totals.ok()) record_.Add(WallClockNow(), ReadJson<JobTotalsRow>(*totals));
  if (sample_s_) return *sample_s_;
  if (!status.ok()) return kSampleElse_s;
  return std::max(kSampleMin_s, ParseStatus(*status).round_duration_s.value_or(
                                    kSampleElse_s));
}

absl::StatusOr<QueryReply> CoordinatorDocuments::Ask(
    const DocumentRequest& from, const QueryRequest& query) {
  return requests_->Ask<QueryReply>(from.key, from.address, query,
                                    kReplyTimeout_s);
}

absl::StatusOr<Json> CoordinatorDocuments::Query(const DocumentRequest& from,
                                                 QueryKind kind,
                                                 const std::string& filter) {
  return AskAllPages(
      {0, kind, from.job, 0, filter},
      [&](const QueryRequest& query) { return Ask(from, query); });
}

absl::StatusOr<Json> CoordinatorDocuments::PresentJobs(
    const DocumentRequest& from) {
  GAVEL_ASSIGN_OR_RETURN(const std::string filter,
                         QueueFilter("", "", kPresentStates));
  return Query(from, QueryKind::kQueue, filter);
}

absl::StatusOr<Json> CoordinatorDocuments::History(const DocumentRequest& from,
                                                   const char* table,
                                                   double since_s) {
  HistoryFilter filter;
  filter.table = table;
  filter.since_s = since_s;
  int pages = 0;
  return AskAllPages(
      {0, QueryKind::kHistory, from.job, 0, FormatHistoryFilter(filter)},
      [&](const QueryRequest& query) -> absl::StatusOr<QueryReply> {
        if (++pages <= kHistoryPagesMax) return Ask(from, query);
        return absl::FailedPreconditionError(
            "the history is too long for the dashboard; `gavel history` and "
            "`gavel usage` read all of it");
      });
}

absl::StatusOr<DocumentRequest> CoordinatorDocuments::Resolve(
    const DocumentRequest& request) {
  DocumentRequest resolved = request;
  resolved.job = JobId();
  const uint64_t array = request.job.value();
  GAVEL_ASSIGN_OR_RETURN(const Json rows,
                         Query(resolved, QueryKind::kQueue,
                               ElementFilter(array, *request.array_index)));
  if (rows.empty()) return NoElement(array, *request.array_index);
  resolved.job = JobId(rows.front().value("id", uint64_t{0}));
  resolved.array_index.reset();
  return resolved;
}

absl::StatusOr<std::string> CoordinatorDocuments::Get(
    const DocumentRequest& request) {
  if (request.array_index) {
    GAVEL_ASSIGN_OR_RETURN(const DocumentRequest resolved, Resolve(request));
    return Get(resolved);
  }
  switch (request.kind) {
    case DocumentKind::kStatus:
      return Text(Query(request, QueryKind::kStatus));
    case DocumentKind::kNodes:
      return Text(Query(request, QueryKind::kNodes));
    case DocumentKind::kJobs:
      return Text(JobsPage(request));
    case DocumentKind::kJob:
      return Text(OneJob(request));
    case DocumentKind::kLog:
      return Text(LogTail(request));
    case DocumentKind::kLoss:
      return Text(Losses(request));
    case DocumentKind::kFairness:
      return Text(Fairness(request));
    case DocumentKind::kPolicy:
      return Text(Policies(request));
    case DocumentKind::kPreview:
      return Text(SolvePreview(request));
    case DocumentKind::kApps: {
      GAVEL_ASSIGN_OR_RETURN(const Json jobs, PresentJobs(request));
      return DumpJson(AppsJson(AppsOf(ParseQueue(jobs))));
    }
    case DocumentKind::kMetrics:
      return Metrics(request);
  }
  return absl::NotFoundError("there is no such document");
}

absl::Status CoordinatorDocuments::Act(const std::string& key,
                                       const std::string& address,
                                       const CommandRequest& command) {
  GAVEL_ASSIGN_OR_RETURN(
      const CommandReply reply,
      requests_->Ask<CommandReply>(key, address, command, kReplyTimeout_s));
  if (reply.error.empty()) return absl::OkStatus();
  if (command.job.valid()) {
    // The coordinator says the same of a job that is not there to both.
    DocumentRequest of_job;
    of_job.key = key;
    of_job.address = address;
    of_job.job = command.job;
    const absl::StatusOr<Json> known = Query(of_job, QueryKind::kQueue);
    if (ToStd(known.status().message()) == reply.error) {
      return absl::NotFoundError(reply.error);
    }
  }
  return absl::FailedPreconditionError(reply.error);
}

// Rows from the cursor on, as many as wanted.
absl::StatusOr<Json> CoordinatorDocuments::JobsPage(
    const DocumentRequest& request) {
  GAVEL_ASSIGN_OR_RETURN(
      const std::string filter,
      QueueFilter(request.user, request.app,
                  request.states.empty() ? kPresentStates : request.states));
  Json jobs = Json::array();
  QueryRequest query{0, QueryKind::kQueue, JobId(), request.cursor, filter};
  do {
    GAVEL_ASSIGN_OR_RETURN(const QueryReply reply, Ask(request, query));
    if (!reply.error.empty()) return absl::FailedPreconditionError(reply.error);
    Json page = Json::parse(reply.json, nullptr, /*allow_exceptions=*/false);
    for (Json& row : page) {
      if (jobs.size() >= request.limit) break;
      jobs.push_back(std::move(row));
    }
    query.cursor = reply.next_cursor;
    if (jobs.size() >= request.limit && !jobs.empty()) {
      // Perhaps the page had more.
      ListingCursor last = ListingCursor::Read(reply.next_cursor);
      last.job = JobId(jobs.back().value("id", uint64_t{0}));
      query.cursor = last.Write();
      break;
    }
  } while (query.cursor != 0);
  return Json{{"jobs", std::move(jobs)}, {"next_cursor", query.cursor}};
}

// A job that the engine has forgotten is still in the history.
absl::StatusOr<Json> CoordinatorDocuments::OneJob(
    const DocumentRequest& request) {
  GAVEL_ASSIGN_OR_RETURN(Json past, History(request, "jobs"));
  const absl::StatusOr<Json> rows = Query(request, QueryKind::kQueue);
  if (absl::IsUnavailable(rows.status())) return rows.status();
  if (!rows.ok() && past.empty()) {
    return absl::NotFoundError(rows.status().message());
  }
  GAVEL_ASSIGN_OR_RETURN(Json leases, History(request, "leases"));
  GAVEL_ASSIGN_OR_RETURN(const Json reasons, History(request, "reasons"));
  AddReasons(reasons, &leases);
  GAVEL_ASSIGN_OR_RETURN(Json checkpoints, History(request, "checkpoints"));
  GAVEL_ASSIGN_OR_RETURN(Json steps, History(request, "steps"));
  Json job;
  job["job"] = rows.ok() && !rows->empty() ? rows->front() : Json();
  const absl::StatusOr<Json> why = Query(request, QueryKind::kWhy);
  job["why"] = why.ok() ? *why : Json();
  job["history"] = past.empty() ? Json() : past.front();
  job["leases"] = std::move(leases);
  job["checkpoints"] = std::move(checkpoints);
  job["steps"] = std::move(steps);
  return job;
}

absl::Status CoordinatorDocuments::RefusalOf(const DocumentRequest& request,
                                             const absl::Status& why) {
  if (!absl::IsFailedPrecondition(why)) return why;
  const absl::StatusOr<Json> known = Query(request, QueryKind::kQueue);
  return absl::IsFailedPrecondition(known.status())
             ? absl::NotFoundError(why.message())
             : why;
}

absl::StatusOr<CoordinatorDocuments::LogEnd> CoordinatorDocuments::ReadLogEnd(
    const DocumentRequest& request, uint64_t bytes) {
  LogRequest log;
  log.worker = {request.job, 0};
  log.tail_bytes = bytes;
  LogEnd end;
  for (int piece = 0; piece < kLogPiecesMax && !end.is_complete; ++piece) {
    GAVEL_ASSIGN_OR_RETURN(
        LogReply reply, requests_->Ask<LogReply>(request.key, request.address,
                                                 log, kLogTimeout_s));
    if (!reply.error.empty()) {
      return RefusalOf(request, absl::FailedPreconditionError(reply.error));
    }
    end.server = reply.server;
    end.is_complete = reply.data.empty();
    if (piece == 0) {
      end.is_all = reply.next_offset <= reply.data.size();
      // It begins in the middle of a line.
      if (!end.is_all) reply.data.erase(0, reply.data.find('\n') + 1);
    }
    end.text = LastLines(end.text + reply.data, request.tail);
    log.offset = reply.next_offset;
  }
  return end;
}

// On the server where it ran last.
absl::StatusOr<Json> CoordinatorDocuments::LogTail(
    const DocumentRequest& request) {
  LogEnd shown;
  for (const uint64_t bytes : kLogEndBytes) {
    GAVEL_ASSIGN_OR_RETURN(LogEnd end, ReadLogEnd(request, bytes));
    // Where more is written meanwhile than is read, the shorter end is right.
    if (shown.is_complete && !end.is_complete) break;
    shown = std::move(end);
    if (shown.is_all || LinesOf(shown.text) >= request.tail) break;
  }
  return Json{{"job", request.job.value()},
              {"rank", 0},
              {"server", shown.server},
              {"complete", shown.is_complete},
              {"text", shown.text}};
}

absl::StatusOr<Json> CoordinatorDocuments::Losses(
    const DocumentRequest& request) {
  const absl::StatusOr<Json> json = Query(request, QueryKind::kWhy);
  if (!json.ok()) return RefusalOf(request, json.status());
  Json points = Json::array();
  for (const LossRow& point : ParseWhy(*json).losses) {
    points.push_back({{"steps_done", point.steps}, {"loss", point.loss}});
  }
  return Json{{"job", request.job.value()}, {"points", std::move(points)}};
}

absl::Status CoordinatorDocuments::AddUsage(const DocumentRequest& request,
                                            double since_s, double now_s,
                                            Json* fairness, Json* shares) {
  UsageHistory history;
  GAVEL_ASSIGN_OR_RETURN(history.shares, History(request, "shares", since_s));
  *shares = history.shares;
  GAVEL_ASSIGN_OR_RETURN(history.jobs, History(request, "jobs", since_s));
  GAVEL_ASSIGN_OR_RETURN(history.leases, History(request, "leases", since_s));
  *fairness = UsageJson(UsageOf(history, since_s, now_s), since_s, now_s);
  return absl::OkStatus();
}

absl::StatusOr<Json> CoordinatorDocuments::Fairness(
    const DocumentRequest& request) {
  const double now_s = WallClockNow();
  const double since_s = now_s - kUsageDays * kDay_s;
  GAVEL_ASSIGN_OR_RETURN(const Json jobs, PresentJobs(request));
  Json fairness = Json::object();
  Json shares;
  const absl::Status read =
      AddUsage(request, since_s, now_s, &fairness, &shares);
  if (!read.ok()) fairness["usage_error"] = std::string(read.message());
  fairness["apps"] = AppsJson(AppsOf(ParseQueue(jobs)));
  if (shares.size() > kSharesMax) {
    shares.erase(shares.begin(),
                 shares.end() - static_cast<std::ptrdiff_t>(kSharesMax));
  }
  fairness["shares"] = std::move(shares);
  fairness["samples"] = record_.ToJson();
  return fairness;
}

absl::StatusOr<Json> CoordinatorDocuments::Policies(
    const DocumentRequest& request) {
  GAVEL_ASSIGN_OR_RETURN(Json status, Query(request, QueryKind::kStatus));
  Json rows = Json::array();
  QueryRequest query;
  query.kind = QueryKind::kForecast;
  do {
    GAVEL_ASSIGN_OR_RETURN(const QueryReply reply, Ask(request, query));
    if (!reply.error.empty()) return absl::FailedPreconditionError(reply.error);
    const Json page =
        Json::parse(reply.json, nullptr, /*allow_exceptions=*/false);
    for (const ForecastRow& job : ParseForecast(page)) {
      if (rows.size() < kMatrixRowsMax) rows.push_back(MatrixRow(job));
    }
    query.cursor = reply.next_cursor;
  } while (query.cursor != 0 && rows.size() < kMatrixRowsMax);
  Json policy;
  policy["solve_s"] = status.value("solve_s", Json());
  policy["status"] = std::move(status);
  policy["policies"] = PolicyNames();
  policy["throughputs"] = std::move(rows);
  policy["throughputs_left_out"] = query.cursor != 0;
  return policy;
}

absl::StatusOr<Json> CoordinatorDocuments::SolvePreview(
    const DocumentRequest& request) {
  const std::unique_lock lock(preview_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || previews_.IsBusy()) {
    return absl::UnavailableError(
        "another preview is being solved; try again in a moment");
  }
  GAVEL_ASSIGN_OR_RETURN(const Json status, Query(request, QueryKind::kStatus));
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, Query(request, QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(const Json jobs, Query(request, QueryKind::kForecast));
  std::packaged_task<absl::StatusOr<Json>()> solve(
      [live = LiveState{ParseStatus(status), ParseNodes(nodes),
                        ParseForecast(jobs)},
       policy = request.name]() -> absl::StatusOr<Json> {
        GAVEL_ASSIGN_OR_RETURN(const PolicyPreview preview,
                               Preview(live, policy));
        return PreviewJson(preview);
      });
  std::future<absl::StatusOr<Json>> solved = solve.get_future();
  previews_.Post(std::move(solve));
  const Stopwatch clock;
  while (solved.wait_for(kStopLook) != std::future_status::ready) {
    if (stopping_) return absl::UnavailableError("the coordinator has stopped");
    if (clock.elapsed_s() >= kPreviewTimeout_s) {
      return absl::UnavailableError(
          StrCat("the preview is not solved after ", kPreviewTimeout_s,
                 " s; `gavel policy ", request.name,
                 " --preview` solves it on your machine, without a limit"));
    }
  }
  return solved.get();
}

absl::StatusOr<std::string> CoordinatorDocuments::Metrics(
    const DocumentRequest& request) {
  GAVEL_ASSIGN_OR_RETURN(const Json status, Query(request, QueryKind::kStatus));
  GAVEL_ASSIGN_OR_RETURN(const Json nodes, Query(request, QueryKind::kNodes));
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         Query(request, QueryKind::kQueue, kTotalsFilter));
  const JobTotalsRow jobs = ReadJson<JobTotalsRow>(json);
  const std::lock_guard lock(ages_mutex_);
  return MetricsText(ParseStatus(status), ParseNodes(nodes), jobs,
                     ages_.Oldest(MonotonicNow(), jobs.running));
}

// ---- The command `dashboard`: a link to the coordinator's pages.

namespace {

absl::Status ShowLink(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  GAVEL_ASSIGN_OR_RETURN(Json link, client->Query(QueryKind::kDashboard));
  // Browsers do not send the part after "#" to the server.
  const std::string url =
      StrCat(link.value("url", ""), "#token=", link.value("token", ""));
  if (options.json) {
    link["url"] = url;
    std::printf("%s\n", link.dump(2).c_str());
    return absl::OkStatus();
  }
  std::printf("%s\n", url.c_str());
  std::vector<std::string> notices = {
      StrCat("for ", link.value("valid_s", 0.0) / 3600,
             " hours this link has your rights; give it to nobody")};
  if (link.value("ends_oldest", false)) {
    notices.push_back(StrCat("your oldest link has ended for it: you may have ",
                             DashboardTokens::kTokensOfOneKeyMax, " at once"));
  }
  PrintNotices(notices);
  return absl::OkStatus();
}

}  // namespace

void AddDashboardCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<ClientOptions>(
      app, exit_code, "dashboard",
      "Prints a link to the dashboard of a coordinator with --http; by it a "
      "browser acts with your rights for twelve hours",
      ShowLink);
  AddClientOptions(command, &options);
}

}  // namespace gavel
