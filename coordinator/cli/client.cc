#include "coordinator/cli/client.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/table.h"
#include "coordinator/server/limits.h"
#include "coordinator/workload/job_array.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// The coordinator itself waits up to 10 s for the agent that has the log.
constexpr double kLogTimeout_s = 12;
constexpr double kResendInterval_s = 0.05;
constexpr int kPagesMax = 10'000;
constexpr double kTooSoon_s = 1;
constexpr int kAttemptsTooSoon = 30;

using Clock = std::chrono::steady_clock;

// Names are what somebody typed.
std::string FilterText(const Json& filter) {
  return filter.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double SecondsUntil(Clock::time_point end) {
  const std::chrono::duration<double> left = end - Clock::now();
  return left.count();
}

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(seconds));
}

}  // namespace

absl::StatusOr<Json> AskAllPages(
    QueryRequest request,
    const std::function<absl::StatusOr<QueryReply>(const QueryRequest&)>& ask) {
  Json all;
  for (int page = 0; page < kPagesMax; ++page) {
    GAVEL_ASSIGN_OR_RETURN(const QueryReply reply, ask(request));
    if (!reply.error.empty()) return absl::FailedPreconditionError(reply.error);
    Json part = Json::parse(reply.json, nullptr, /*allow_exceptions=*/false);
    if (part.is_discarded()) {
      return absl::UnavailableError(
          "the coordinator's answer is no JSON; is it of this version?");
    }
    if (page == 0) {
      all = std::move(part);
    } else {
      for (Json& row : part) all.push_back(std::move(row));
    }
    request.cursor = reply.next_cursor;
    if (request.cursor == 0) break;
  }
  return all;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const std::string& endpoint, const KeyFlags& keys) {
  GAVEL_RETURN_IF_ERROR(CheckResolves(endpoint));
  GAVEL_ASSIGN_OR_RETURN(std::optional<CurveClient> client_keys,
                         FindClientKeys(endpoint, keys, kClientKeyFile));
  GAVEL_ASSIGN_OR_RETURN(auto dealer, Dealer::Connect(endpoint, {client_keys}));
  const std::string public_key =
      client_keys.has_value() ? client_keys->own.public_key : "";
  bool connected = dealer->WaitForLink(kConnectTimeout_s);
  const LinkState state = dealer->link().state;
  if (state == LinkState::kUnknown || state == LinkState::kSilent) {
    connected = connected || dealer->WaitForLink(kBusyTimeout_s);
  }
  if (!connected) {
    return absl::UnavailableError(
        LinkText(dealer->link(), endpoint, public_key));
  }
  return std::unique_ptr<Client>(
      new Client(endpoint, std::move(dealer), public_key));
}

absl::Status Client::NoAnswer() const {
  if (dealer_->link().refused()) {
    return absl::UnavailableError(
        LinkText(dealer_->link(), endpoint_, public_key_));
  }
  return absl::UnavailableError(StrCat("the coordinator at ", endpoint_,
                                       " does not answer; is it still running, "
                                       "and a coordinator of this version?"));
}

absl::Status Client::SendWithin(const Message& message, double timeout_s) {
  const Clock::time_point end = After(timeout_s);
  while (!dealer_->Send(message).ok()) {
    if (SecondsUntil(end) <= 0) return NoAnswer();
    dealer_->WaitUntilConnected(kResendInterval_s);
  }
  return absl::OkStatus();
}

template <class Reply>
absl::StatusOr<std::optional<Reply>> Client::Await(uint64_t request,
                                                   double timeout_s) {
  const Clock::time_point end = After(timeout_s);
  while (SecondsUntil(end) > 0) {
    GAVEL_ASSIGN_OR_RETURN(auto received, dealer_->Receive(SecondsUntil(end)));
    if (!received) continue;
    Reply* reply = std::get_if<Reply>(&*received);
    if (reply != nullptr && reply->request == request) return std::move(*reply);
  }
  return std::nullopt;
}

template <class Reply>
absl::StatusOr<Reply> Client::Ask(const Message& message, uint64_t request,
                                  double timeout_s) {
  GAVEL_RETURN_IF_ERROR(SendWithin(message, timeout_s));
  GAVEL_ASSIGN_OR_RETURN(std::optional<Reply> reply,
                         Await<Reply>(request, timeout_s));
  if (reply) return *std::move(reply);
  return NoAnswer();
}

template <class Reply>
absl::StatusOr<Reply> Client::AskToChange(const Message& message,
                                          uint64_t request, double timeout_s) {
  GAVEL_RETURN_IF_ERROR(SendWithin(message, kReplyTimeout_s));
  const double quiet_s = std::min(kReplyTimeout_s, timeout_s);
  GAVEL_ASSIGN_OR_RETURN(std::optional<Reply> reply,
                         Await<Reply>(request, quiet_s));
  if (!reply && quiet_s < timeout_s) {
    PrintNotices({StrCat("the coordinator at ", endpoint_,
                         " has not answered yet; waiting up to ", timeout_s,
                         " s for it")});
    GAVEL_ASSIGN_OR_RETURN(reply, Await<Reply>(request, timeout_s - quiet_s));
  }
  if (reply) return *std::move(reply);
  if (dealer_->link().refused()) return NoAnswer();
  return absl::UnavailableError(
      StrCat("the request was sent to the coordinator at ", endpoint_,
             ", which did not answer within ", timeout_s,
             " s: it may have been done; see `gavel queue` before you repeat "
             "it"));
}

template <class Reply, class Asks>
absl::StatusOr<Reply> Client::AskPatiently(const Asks& ask) {
  for (int attempt = 0;; ++attempt) {
    absl::StatusOr<Reply> reply = ask(++last_request_);
    const bool too_soon =
        reply.ok() && absl::StrContains(reply->error, ToAbsl(kTooOften));
    if (!too_soon || attempt == kAttemptsTooSoon) return reply;
    if (!std::exchange(has_waited_, true)) {
      PrintNotices(
          {"this asks for more than the requests a second that you "
           "may make (--quota-requests), and goes on more slowly"});
    }
    Sleep(kTooSoon_s);
  }
}

absl::StatusOr<JobId> Client::Submit(const std::string& source,
                                     const std::string& toml,
                                     const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const SubmitReply reply,
                         AskPatiently<SubmitReply>([&](uint64_t request) {
                           return AskToChange<SubmitReply>(
                               SubmitRequest{request, source, toml, directory},
                               request, kChangeTimeout_s);
                         }));
  if (reply.error.empty()) return reply.job;
  return absl::FailedPreconditionError(reply.error);
}

absl::Status Client::CheckSubmission(const std::string& source,
                                     const std::string& toml,
                                     const std::string& directory) {
  QueryRequest query;
  query.kind = QueryKind::kAdmission;
  query.submission = {0, source, toml, directory};
  return QueryAllPages(query).status();
}

absl::Status Client::Command(CommandKind kind, JobId job) {
  return Command(CommandRequest{0, kind, job});
}

absl::Status Client::Command(CommandRequest command, double timeout_s) {
  GAVEL_ASSIGN_OR_RETURN(const CommandReply reply,
                         AskPatiently<CommandReply>([&](uint64_t request) {
                           command.request = request;
                           return AskToChange<CommandReply>(command, request,
                                                            timeout_s);
                         }));
  if (reply.error.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(reply.error);
}

absl::Status Client::SetGoal(const AppGoal& goal, double timeout_s) {
  const uint64_t request = ++last_request_;
  GAVEL_ASSIGN_OR_RETURN(
      const CommandReply reply,
      AskToChange<CommandReply>(AppGoalRequest{request, goal}, request,
                                timeout_s));
  if (reply.error.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(reply.error);
}

absl::StatusOr<Json> Client::Query(QueryKind kind, JobId job,
                                   const std::string& filter) {
  return QueryAllPages({0, kind, job, 0, filter});
}

absl::StatusOr<Json> Client::QueryAllPages(const QueryRequest& first) {
  return AskAllPages(
      first, [this](QueryRequest query) -> absl::StatusOr<QueryReply> {
        return AskPatiently<QueryReply>([&](uint64_t request) {
          query.request = request;
          return Ask<QueryReply>(query, request, kReplyTimeout_s);
        });
      });
}

absl::StatusOr<LogReply> Client::Log(const WorkerId& worker, uint64_t offset,
                                     const std::string& server,
                                     double since_s) {
  return AskPatiently<LogReply>([&](uint64_t request) {
    return Ask<LogReply>(LogRequest{request, worker, offset, server, since_s},
                         request, kLogTimeout_s);
  });
}

absl::StatusOr<Client::Reference> Client::ResolveReference(
    const std::string& job) {
  const size_t bracket = job.find("_[");
  if (bracket != std::string::npos && !job.ends_with(']')) {
    return absl::InvalidArgumentError(StrCat(
        "\"", job, "\" has no ] at its end; write ", job.substr(0, bracket),
        "_[7-20], or ", job.substr(0, bracket), "_7 for one element"));
  }
  if (bracket != std::string::npos) {
    const std::string elements =
        job.substr(bracket + 2, job.size() - bracket - 3);
    const absl::Status status = ParseIndices(elements).status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          StrCat("\"", job, "\": ", ToStd(status.message())));
    }
    GAVEL_ASSIGN_OR_RETURN(const JobId array, Resolve(job.substr(0, bracket)));
    return Reference{array, elements};
  }
  GAVEL_ASSIGN_OR_RETURN(const JobId id, Resolve(job));
  return Reference{id, ""};
}

absl::StatusOr<std::vector<JobId>> Client::ResolveAll(const std::string& job) {
  GAVEL_ASSIGN_OR_RETURN(const Reference named, ResolveReference(job));
  std::vector<int> indices;
  if (!named.elements.empty()) {
    GAVEL_ASSIGN_OR_RETURN(indices, ParseIndices(named.elements));
  }
  const Json filter = {{"array", named.job.value()}};
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         Query(QueryKind::kQueue, JobId(), FilterText(filter)));
  std::vector<JobId> jobs;
  for (const QueueRow& row : ParseQueue(json)) {
    if (!indices.empty() &&
        !std::ranges::binary_search(indices, row.array_index.value_or(-1))) {
      continue;
    }
    jobs.emplace_back(row.id);
  }
  if (!jobs.empty()) return jobs;
  if (named.elements.empty()) return std::vector{named.job};
  return absl::NotFoundError(
      StrCat("there is no job ", job, "; `gavel queue` lists them"));
}

std::string ElementFilter(uint64_t array, uint64_t index) {
  return FilterText({{"array", array}, {"array_index", index}});
}

absl::Status NoElement(uint64_t array, uint64_t index) {
  return absl::NotFoundError(
      StrCat("there is no job ", array, "_", index, ": array ", array,
             " has no such element, or is none; `gavel queue` lists them"));
}

absl::StatusOr<JobId> Client::ElementOf(uint64_t array, uint64_t index) {
  GAVEL_ASSIGN_OR_RETURN(const Json json, Query(QueryKind::kQueue, JobId(),
                                                ElementFilter(array, index)));
  const std::vector<QueueRow> rows = ParseQueue(json);
  if (rows.empty()) return NoElement(array, index);
  return JobId(rows.front().id);
}

absl::StatusOr<JobId> Client::Resolve(const std::string& job) {
  uint64_t id = 0;
  if (absl::SimpleAtoi(job, &id) && id != 0) return JobId(id);
  if (job.find("_[") != std::string::npos) {
    return absl::InvalidArgumentError(
        StrCat("\"", job,
               "\" names several jobs; this command takes one at a "
               "time, as 42_7"));
  }
  if (const auto element = ParseElementId(job)) {
    return ElementOf(element->array, static_cast<uint64_t>(element->index));
  }
  const size_t slash = job.find('/');
  const bool named = slash != std::string::npos;
  const std::string name = named ? job.substr(slash + 1) : job;
  Json filter = {{"name", name}, {"one_of_array", true}};
  // The caller's own job is meant, where it has one.
  if (named) {
    filter["user"] = job.substr(0, slash);
  } else {
    filter["own"] = true;
  }
  absl::StatusOr<JobId> found = Choose(name, filter);
  if (!named && absl::IsNotFound(found.status())) {
    filter.erase("own");
    found = Choose(name, filter);
  }
  if (!absl::IsNotFound(found.status())) return found;
  return absl::NotFoundError(
      StrCat("there is no job named \"", job, "\"; `gavel queue` lists them"));
}

absl::StatusOr<std::string> Client::FreeName(const std::string& program) {
  constexpr size_t kBytesMax = 48;
  std::string base = std::filesystem::path(program).stem().string();
  for (char& c : base) {
    if (!IsValidName({&c, 1})) c = '-';
  }
  base.erase(0, base.find_first_not_of('-'));
  base.resize(std::min(base.size(), kBytesMax));
  if (std::ranges::all_of(base, absl::ascii_isdigit)) base = "job";
  const auto name_of = [&](uint64_t number) {
    return number == 1 ? base : StrCat(base, "-", number);
  };
  const auto is_taken = [&](uint64_t number) -> absl::StatusOr<bool> {
    const Json filter = {{"name", name_of(number)},
                         {"own", true},
                         {"ended_max", 0},
                         {"one_of_array", true}};
    GAVEL_ASSIGN_OR_RETURN(
        const Json json, Query(QueryKind::kQueue, JobId(), FilterText(filter)));
    return !json.empty();
  };
  // Doubling and bisection find a free number with few queries.
  uint64_t taken = 0;
  uint64_t free = 1;
  for (;; taken = std::exchange(free, 2 * free)) {
    GAVEL_ASSIGN_OR_RETURN(const bool is, is_taken(free));
    if (!is) break;
  }
  while (free - taken > 1) {
    const uint64_t middle = taken + (free - taken) / 2;
    GAVEL_ASSIGN_OR_RETURN(const bool is, is_taken(middle));
    (is ? taken : free) = middle;
  }
  return name_of(free);
}

absl::StatusOr<JobId> Client::Choose(const std::string& name,
                                     const Json& filter) {
  GAVEL_ASSIGN_OR_RETURN(const Json json,
                         Query(QueryKind::kQueue, JobId(), FilterText(filter)));
  const QueueRow* best = nullptr;
  const std::vector<QueueRow> rows = ParseQueue(json);
  for (const QueueRow& row : rows) {
    const bool both_there = best != nullptr && !best->Over() && !row.Over();
    if (both_there && best->owner != row.owner) {
      return absl::InvalidArgumentError(
          StrCat("several users have a job named \"", name,
                 "\"; name one by its id, or as ", best->owner, "/", name,
                 " or ", row.owner, "/", name));
    }
    if (best == nullptr || !row.Over() || best->Over()) best = &row;
  }
  if (best != nullptr) {
    return JobId(best->name == name ? best->id : best->array);
  }
  return absl::NotFoundError("no such job");
}

void Client::Sleep(double seconds) {
  // Late answers are passed over; they would only be in the way.
  const Clock::time_point end = After(seconds);
  while (SecondsUntil(end) > 0) {
    const auto received = dealer_->Receive(SecondsUntil(end));
    if (!received.ok() || !received->has_value()) return;
  }
}

absl::StatusOr<std::vector<std::string>> ParseState(const std::string& state) {
  std::vector<std::string> letters = StateLettersOf(state);
  if (!letters.empty()) return letters;
  return absl::InvalidArgumentError(StrCat(
      "\"", state,
      "\" is no state of a job; give PD or waiting, R or running, S or "
      "paused, CG or pausing, F or held, CD or finished, CA or cancelled"));
}

absl::StatusOr<std::string> QueueFilter(const std::string& user,
                                        const std::string& app,
                                        const std::vector<std::string>& states,
                                        std::optional<size_t> ended_max) {
  Json filter = Json::object();
  for (const std::string& state : states) {
    GAVEL_ASSIGN_OR_RETURN(const auto letters, ParseState(state));
    for (const std::string& one : letters) filter["states"].push_back(one);
  }
  if (!user.empty()) filter["user"] = user;
  if (!app.empty()) filter["app"] = app;
  if (ended_max) filter["ended_max"] = *ended_max;
  return filter.empty() ? "" : FilterText(filter);
}

}  // namespace gavel
