#include "coordinator/server/client_requests.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/history.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/query.h"
#include "coordinator/workload/job_spec.h"
#include "core/error_line.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

bool IsLimited(const Requester& from) {
  return from.identity.role == Role::kUser;
}

constexpr char kBusy[] =
    "the coordinator has too many requests to answer; try again";
constexpr size_t kTargetMax = 160;      // of the audit log: a server and a uuid
constexpr size_t kReasonMax = 300;      // likewise: why something was not done
constexpr double kGoalStepsMax = 1e15;  // in a goal of an app

std::string_view OnOff(bool on) { return on ? "on" : "off"; }

// The object of a command, for the audit log.
std::string ObjectOf(const CommandRequest& request) {
  if (request.job.valid()) {
    const std::string job = StrCat("job ", request.job.value());
    if (request.elements.empty()) return job;
    return StrCat(job, "_[", PrintableLine(request.elements, kTargetMax), "]");
  }
  std::string target = PrintableLine(request.target, kTargetMax);
  if (request.introspection.has_value()) {
    StrAppend(&target, target.empty() ? "" : " ", "introspection ",
              OnOff(*request.introspection));
  }
  return target;
}

absl::Status CheckGoal(const AppGoal& goal) {
  for (const double steps :
       {goal.steps_to_come, goal.longest_to_come, goal.steps_total,
        goal.longest_total, goal.stop_at}) {
    if (steps >= 0 && steps <= kGoalStepsMax) continue;
    return absl::InvalidArgumentError(
        StrCat("app \"", PrintableLine(goal.app, kTargetMax), "\": ", steps,
               " steps; give a number from 0 to ", kGoalStepsMax));
  }
  return absl::OkStatus();
}

// The account that answers are counted for: the principal, or the connection
// where clients have no keys.
const std::string& ReaderOf(const Requester& from) {
  return from.identity.name.empty() ? from.peer : from.identity.name;
}

}  // namespace

ClientRequests::ClientRequests(const Engine& engine,
                               const PeerTable<std::string>& agents, Send send,
                               Options options)
    : engine_(engine),
      agents_(agents),
      send_(std::move(send)),
      options_(std::move(options)),
      history_(QueryThread::kHistory, options_.wake),
      views_(engine),
      queries_(QueryThread::kListings, options_.wake),
      quota_(options_.quota) {}

absl::StatusOr<JobSpec> ClientRequests::ReadSpec(
    const Requester& from, const SubmitRequest& request) const {
  const Identity& owner = from.identity;
  // A job that runs as its owner can't write to our directory.
  const std::string state = owner.unix_user.empty()
                                ? options_.state_directory
                                : request.directory + "/gavel-state";
  GAVEL_ASSIGN_OR_RETURN(
      JobSpec spec,
      ReadSubmission(request, state, options_.cluster_id, engine_.next_job()));
  spec.owner = owner.name;
  spec.unix_user = owner.unix_user;
  const std::string what = StrCat("job \"", spec.name, "\"");
  GAVEL_RETURN_IF_ERROR(CheckWeight(what, spec.weight, options_.quota.weights));
  spec.owner_weight = owner.allowance.weight;
  if (IsLimited(from)) {
    GAVEL_RETURN_IF_ERROR(
        CheckAllowance(what, owner.allowance, spec.weight, &spec.entity));
  }
  return spec;
}

std::string ClientRequests::WhyNotAdmitted(const Requester& from,
                                           const SubmitRequest& request) const {
  const absl::StatusOr<JobSpec> spec = ReadSpec(from, request);
  absl::Status status = spec.status();
  if (spec.ok() && IsLimited(from)) {
    status = quota_.Check(from.identity.name, *spec, engine_.jobs());
  }
  return status.ok() ? engine_.WhyNotAdmitted(*spec)
                     : std::string(status.message());
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const SubmitRequest& request) {
  Client client{from, request.request, /*submitted=*/true, "submit", ""};
  absl::StatusOr<JobSpec> spec = ReadSpec(from, request);
  if (!spec.ok()) return Await(now, client, spec.status());
  if (IsLimited(from)) {
    const absl::Status taken =
        quota_.Take(now, from.identity.name, *spec, engine_.jobs());
    if (!taken.ok()) return Await(now, client, taken);
  }
  client.object = spec->name;
  return Await(now, client, event::JobSubmitted{*std::move(spec)});
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const CommandRequest& request) {
  const Client client{from, request.request,
                      /*submitted=*/false,
                      std::string(CommandName(request.kind)),
                      ObjectOf(request)};
  if (request.kind == CommandKind::kShutdown) {
    shutdown_requested_ = true;
    Reply(client, JobId(), "");
    return std::nullopt;
  }
  if (request.kind == CommandKind::kNotify) {
    TestNotices(now, client);
    return std::nullopt;
  }
  return Await(now, client, EventFor(now, from, request));
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const AppGoalRequest& request) {
  const Client client{
      from, request.request,
      /*submitted=*/false, "goal",
      StrCat("app ", PrintableLine(request.goal.app, kTargetMax))};
  const absl::Status sound = CheckGoal(request.goal);
  if (!sound.ok()) return Await(now, client, sound);
  return Await(now, client,
               event::AppGoalSet{from.identity.name, request.goal});
}

void ClientRequests::TestNotices(Time now, const Client& client) {
  const std::optional<uint64_t> handle = clients_.Add(now, client);
  if (!handle) return Reply(client, JobId(), kBusy);
  const absl::Status begun = options_.test_notices(*handle);
  if (!begun.ok()) Answer({*handle, JobId(), std::string(begun.message())});
}

std::optional<Event> ClientRequests::Await(Time now, const Client& client,
                                           absl::StatusOr<Event> event) {
  if (!event.ok()) {
    Reply(client, JobId(), std::string(event.status().message()));
    return std::nullopt;
  }
  const std::optional<uint64_t> handle = clients_.Add(now, client);
  if (!handle) {
    Reply(client, JobId(), kBusy);
    return std::nullopt;
  }
  std::visit(
      [&](auto& e) {
        if constexpr (requires { e.reply_to; }) e.reply_to = *handle;
      },
      *event);
  return *std::move(event);
}

absl::StatusOr<Event> ClientRequests::EventFor(
    Time now, const Requester& from, const CommandRequest& request) const {
  switch (request.kind) {
    case CommandKind::kDrain:
    case CommandKind::kResume: {
      if (!(request.within_s >= 0)) {
        return absl::InvalidArgumentError(
            "the time until which jobs may stay is before now");
      }
      event::AcceleratorsDrained drained{request.target};
      drained.drained = request.kind == CommandKind::kDrain;
      drained.until = now + request.within_s;
      return drained;
    }
    case CommandKind::kForget:
      return event::ServerForgotten{request.target};
    case CommandKind::kPolicy:
      return SetPolicy(request);
    case CommandKind::kUpdate:
      return Update(from, request);
    default: {
      if (request.elements.size() > kJobSpecBytesMax) {
        return absl::InvalidArgumentError(
            StrCat("the elements have ", request.elements.size(),
                   " bytes; name fewer of them at once"));
      }
      event::JobCommanded commanded{request.job, request.kind};
      const Job* job = engine_.FindJob(request.job);
      if (job == nullptr) job = FirstElement(engine_.jobs(), request.job);
      if (job != nullptr && job->array == request.job) {
        commanded.elements = request.elements;
      } else if (!request.elements.empty()) {
        return absl::InvalidArgumentError(
            StrCat(request.job.value(),
                   " is no array; `gavel queue` lists "
                   "jobs and arrays"));
      }
      const bool own = job == nullptr || job->spec.owner == from.identity.name;
      if (!own) commanded.by = from.identity.name;
      return commanded;
    }
  }
}

absl::StatusOr<Event> ClientRequests::SetPolicy(
    const CommandRequest& request) const {
  const std::optional<bool> introspection = request.introspection;
  const std::string& deciding = engine_.operated().policy.name;
  const std::string& name = request.target.empty() && introspection.has_value()
                                ? deciding
                                : request.target;
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy,
                         MakePolicy(name));
  if (name == deciding && !introspection.has_value()) {
    return absl::FailedPreconditionError(StrCat(name, " decides already"));
  }
  if (name == deciding && introspection == engine_.options().introspection) {
    return absl::FailedPreconditionError(
        StrCat("introspection is ", OnOff(*introspection), " already"));
  }
  event::PolicyChanged changed{name};
  changed.introspection = introspection;
  changed.introspection_is_own = introspection == options_.introspection;
  if (name != options_.policy) changed.instead_of = options_.policy;
  changed.packing = policy->packs();
  changed.progress = policy->reads_progress();
  return changed;
}

// Within the bounds of a submission. A job that is not there, or is over, is
// the engine's to refuse.
absl::StatusOr<Event> ClientRequests::Update(
    const Requester& from, const CommandRequest& request) const {
  event::JobUpdated updated{request.job, request.update};
  const Job* const job = engine_.FindJob(request.job);
  if (job == nullptr || !HasName(*job)) return updated;
  JobSpec spec = job->spec;
  GAVEL_RETURN_IF_ERROR(CheckUpdate(request.update, spec));
  ApplyUpdate(request.update, &spec);
  const std::string what = StrCat("job ", ShownId(*job));
  GAVEL_RETURN_IF_ERROR(CheckWeight(what, spec.weight, options_.quota.weights));
  if (request.update.entity) {
    const std::string why =
        WhyNoEntity(engine_.options().entities, spec.entity);
    if (!why.empty()) {
      return absl::InvalidArgumentError(StrCat(what, ": ", why));
    }
  }
  if (from.identity.role == Role::kUser) {
    GAVEL_RETURN_IF_ERROR(CheckAllowance(what, from.identity.allowance,
                                         spec.weight, &spec.entity));
    if (updated.update.entity) updated.update.entity = spec.entity;
  }
  return updated;
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const QueryRequest& request) {
  switch (request.kind) {
    case QueryKind::kHistory:
      // The journal knows elements, not arrays.
      if (FirstElement(engine_.jobs(), request.job) != nullptr) {
        RefuseQuery(from.peer, request.request, NoJob(request.job));
        break;
      }
      Ask(history_, from, request.request,
          [request, reader = from.identity,
           path = options_.state_directory + "/journal.db"] {
            return AnswerHistory(request, reader, path);
          });
      break;
    case QueryKind::kWhy:
      AnswerOfOne(now, from, request);
      break;
    case QueryKind::kQueue:
      request.job.valid() ? AnswerOfOne(now, from, request)
                          : List(now, from, request);
      break;
    case QueryKind::kNodes:
    case QueryKind::kForecast:
      AnswerAtOnce(now, from, request);
      break;
    case QueryKind::kStatus:
      Await(now, from, request, &statuses_);
      break;
    case QueryKind::kDashboard:
      AnswerDashboard(from, request);
      break;
    case QueryKind::kAdmission:
      send_(from.peer, QueryReply{request.request, "{}", 0,
                                  WhyNotAdmitted(from, request.submission)});
  }
  return std::nullopt;
}

void ClientRequests::AnswerAtOnce(Time now, const Requester& from,
                                  const QueryRequest& request) {
  QueryView view{engine_, now, engine_.operated().policy.name, options_.wire(),
                 options_.troubles()};
  // They may quote what a program of the operator's wrote.
  if (from.identity.role != Role::kOperator && !view.troubles.empty()) {
    view.troubles = {
        "there is trouble with the coordinator; an operator "
        "sees it in `gavel status`"};
  }
  if (request.kind == QueryKind::kStatus) {
    view.counts = &views_.counts();
    view.stays = &stay_costs_.row();
    if (options_.threads != nullptr) view.threads = options_.threads();
  }
  send_(from.peer, AnswerQuery(request, view));
}

void ClientRequests::RefuseQuery(const std::string& peer, uint64_t request,
                                 std::string error) {
  send_(peer, QueryReply{request, "", 0, std::move(error)});
}

std::string ClientRequests::NoJob(JobId job) const {
  if (FirstElement(engine_.jobs(), job) != nullptr) {
    return ArrayInstead(engine_.jobs(), job);
  }
  return StrCat("there is no job ", job.value(), "; `gavel queue` lists them");
}

// The token is in the answer alone: neither the log nor the journal has it.
void ClientRequests::AnswerDashboard(const Requester& from,
                                     const QueryRequest& request) {
  if (options_.dashboard == nullptr) {
    return RefuseQuery(from.peer, request.request,
                       "this coordinator has no dashboard; start it with "
                       "--http 127.0.0.1:8080");
  }
  const absl::StatusOr<std::string> token = options_.dashboard(from);
  Audit(from, "dashboard", "", token.ok(), ToStd(token.status().message()));
  if (!token.ok()) {
    return RefuseQuery(from.peer, request.request,
                       std::string(token.status().message()));
  }
  send_(from.peer, QueryReply{request.request, *token, 0, ""});
}

void ClientRequests::AnswerOfOne(Time now, const Requester& from,
                                 const QueryRequest& request,
                                 std::shared_ptr<const QueueView> queue) {
  const Job* const job = engine_.FindJob(request.job);
  if (job == nullptr) {
    return RefuseQuery(from.peer, request.request, NoJob(request.job));
  }
  std::vector<ThroughputRow> throughputs;
  if (request.kind == QueryKind::kWhy)
    throughputs = ThroughputsOf(*job, engine_);
  JobView view = views_.MakeOne(*job, now);
  const bool in_line = std::holds_alternative<reason::Priority>(view.reason);
  const bool is_large = views_.HasLargeApp(*job);
  if (!in_line && !is_large) {
    send_(from.peer, AnswerOfJob(request, from.identity, view, throughputs,
                                 WaitingLine(), now));
    return;
  }
  std::shared_ptr<PlanLine> line = queue ? queue->line : views_.line();
  if (queue == nullptr) queue = views_.Recent(now);
  if (line == nullptr || (is_large && queue == nullptr)) {
    return Await(now, from, request, &listings_);
  }
  Ask(queries_, from, request.request,
      [request, now, reader = from.identity, view = std::move(view),
       throughputs = std::move(throughputs), line = std::move(line), is_large,
       queue = std::move(queue)]() mutable {
        if (is_large) view.rho = queue->RhoOf(view.id);
        return AnswerOfJob(request, reader, view, throughputs, line->Get(),
                           now);
      });
}

// The first page starts a new view, which further pages continue.
void ClientRequests::List(Time now, const Requester& from,
                          const QueryRequest& request) {
  auto view =
      request.cursor != 0 ? views_.ForPage(request.cursor, now) : nullptr;
  if (view != nullptr) {
    return AskListing(from, request, std::move(view));
  }
  Await(now, from, request, &listings_);
}

void ClientRequests::Await(Time now, const Requester& from,
                           const QueryRequest& request,
                           std::vector<Listing>* waiting) {
  const std::string& reader = ReaderOf(from);
  const auto own = std::ranges::count_if(*waiting, [&](const Listing& one) {
    return ReaderOf(one.from) == reader;
  });
  if (waiting->size() >= kWaitingListingsMax ||
      static_cast<size_t>(own) >= QueryThread::kListings.of_one_max) {
    return RefuseQuery(from.peer, request.request, kBusy);
  }
  waiting->push_back({from, request});
  SendAnswers(now);
}

void ClientRequests::AskListing(const Requester& from,
                                const QueryRequest& request,
                                std::shared_ptr<const QueueView> view,
                                QueueViews::Dropped freed) {
  Ask(queries_, from, request.request,
      [request, view = std::move(view), reader = from.identity,
       freed = std::move(freed)] { return ListQueue(request, *view, reader); });
}

void ClientRequests::Ask(QueryThread& thread, const Requester& from,
                         uint64_t request, QueryThread::Write write) {
  if (thread.Ask(from.peer, ReaderOf(from), std::move(write))) return;
  RefuseQuery(from.peer, request, kBusy);
}

void ClientRequests::Note(const Event& decided) {
  stay_costs_.Note(decided, engine_);
  if (std::holds_alternative<event::AllocationReady>(decided) ||
      std::holds_alternative<event::RoundPlanned>(decided) ||
      std::holds_alternative<event::RoundStarted>(decided) ||
      std::holds_alternative<event::UnitsAssigned>(decided)) {
    views_.NotePlan();
  } else if (const auto* started = std::get_if<event::LeaseStarted>(&decided)) {
    views_.NoteHolder(started->worker.job);
  } else if (const auto* ended = std::get_if<event::LeaseEnded>(&decided)) {
    views_.NoteHolder(ended->worker.job);
  } else if (const auto* gone = std::get_if<event::WorkerGone>(&decided)) {
    views_.NoteHolder(gone->exit.worker.job);
  } else if (const auto* lost = std::get_if<event::WorkerAbandoned>(&decided)) {
    views_.NoteHolder(lost->worker.job);
  }
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const LogRequest& request) {
  const auto refuse = [&](std::string error) {
    RefuseLog(from.peer, request.request, std::move(error));
    return std::nullopt;
  };
  const auto job = engine_.jobs().find(request.worker.job);
  if (job == engine_.jobs().end()) return refuse(NoJob(request.worker.job));
  const std::vector<Worker>& workers = job->second.workers;
  if (workers.empty()) {
    return refuse(StrCat("job ", ShownId(job->second), " has not started yet"));
  }
  if (request.worker.rank < 0 ||
      static_cast<size_t>(request.worker.rank) >= workers.size()) {
    return refuse(StrCat("job ", ShownId(job->second), " has no rank ",
                         request.worker.rank, ", its ranks are 0 to ",
                         workers.size() - 1));
  }
  const std::string& server =
      request.server.empty()
          ? workers[static_cast<size_t>(request.worker.rank)].server
          : request.server;
  if (server.empty()) {
    return refuse(StrCat("job ", ShownId(job->second), " has not started yet"));
  }
  if (!engine_.cluster().servers().contains(server)) {
    return refuse(StrCat("there is no server \"", PrintableLine(server, 64),
                         "\"; `gavel nodes` lists them"));
  }
  const std::string* agent = agents_.Find(server);
  if (agent == nullptr) {
    return refuse(StrCat("the agent of server ", server,
                         ", which has the log, is not connected"));
  }
  LogRequest passed_on = request;
  const std::optional<uint64_t> handle =
      logs_.Add(now, {from.peer, request.request, server, *agent});
  if (!handle) return refuse(kBusy);
  passed_on.request = *handle;
  send_(*agent, passed_on);
  return std::nullopt;
}

std::optional<Event> ClientRequests::Take(Time, const Requester& from,
                                          const LogReply& reply) {
  const Reader* reader = logs_.Find(reply.request);
  if (reader == nullptr || reader->agent != from.peer) return std::nullopt;
  LogReply passed_on = reply;
  passed_on.request = reader->request;
  passed_on.server = reader->server;
  send_(reader->peer, passed_on);
  logs_.Take(reply.request);
  return std::nullopt;
}

std::optional<Event> ClientRequests::Take(Time now, const Requester& from,
                                          const TerminalRequest& request) {
  const auto refuse = [&](std::string error, bool for_ever = false) {
    RefuseTerminal(from.peer, request.request, std::move(error), for_ever);
    return std::nullopt;
  };
  const Job* const job = engine_.FindJob(request.worker.job);
  if (job == nullptr) {
    return refuse(StrCat("there is no job ", request.worker.job.value(),
                         "; `gavel queue` lists them"),
                  /*for_ever=*/true);
  }
  if (!job->spec.interactive()) {
    return refuse(StrCat("job ", ShownId(*job),
                         " has no terminal: its class is not \"interactive\"; "
                         "`gavel logs ",
                         ShownId(*job), "` shows its output"),
                  /*for_ever=*/true);
  }
  if (request.input.size() > kTerminalBytesMax) {
    return refuse(
        StrCat("input of ", request.input.size(), " bytes exceeds the ",
               kTerminalBytesMax, " of a message; send it in parts"),
        /*for_ever=*/true);
  }
  if (job->workers.empty()) {  // an element that was never in the queue
    return refuse(StrCat("job ", ShownId(*job), " has not started yet"));
  }
  const Worker& worker = job->workers.front();
  TerminalRequest passed_on = request;
  passed_on.worker = {job->id, 0, worker.incarnation};
  const uint64_t wanted = request.worker.incarnation;
  const std::string* const agent = agents_.Find(worker.server);
  // Another process has taken its place; or the job is over, and the agent that
  // has the rest of its output is gone.
  if ((wanted != 0 && wanted != worker.incarnation) ||
      (agent == nullptr && !HasName(*job) && !worker.is_live())) {
    TerminalReply reply{request.request, request.worker};
    reply.ended = true;
    send_(from.peer, reply);
    return std::nullopt;
  }
  if (worker.server.empty()) {
    return refuse(StrCat("job ", ShownId(*job), " has not started yet"));
  }
  if (agent == nullptr) {
    return refuse(StrCat("the agent of server ", worker.server,
                         ", which has the terminal, is not connected"));
  }
  const std::optional<uint64_t> handle =
      terminals_.Add(now, {from.peer, request.request, worker.server, *agent});
  if (!handle) return refuse(kBusy);
  passed_on.request = *handle;
  send_(*agent, std::move(passed_on));
  return std::nullopt;
}

std::optional<Event> ClientRequests::Take(Time, const Requester& from,
                                          const TerminalReply& reply) {
  const Reader* const reader = terminals_.Find(reply.request);
  if (reader == nullptr || reader->agent != from.peer) return std::nullopt;
  TerminalReply passed_on = reply;
  passed_on.request = reader->request;
  // An agent that has yet to launch the process does not know it either.
  const Job* const job = engine_.FindJob(reply.worker.job);
  if (reply.ended && reply.output.empty() && job != nullptr &&
      !job->workers.empty() &&
      job->workers.front().incarnation == reply.worker.incarnation &&
      job->workers.front().is_live()) {
    passed_on.ended = false;
    passed_on.error =
        StrCat("job ", ShownId(*job), " is being started, or has just ended");
  }
  send_(reader->peer, std::move(passed_on));
  terminals_.Take(reply.request);
  return std::nullopt;
}

void ClientRequests::Answer(const action::Reply& reply) {
  const std::optional<Client> client = clients_.Take(reply.reply_to);
  if (client) Reply(*client, reply.job, reply.error);
}

void ClientRequests::SendAnswers(Time now) {
  for (QueryThread* thread : {&history_, &queries_}) {
    while (auto answer = thread->TakeAnswer()) {
      send_(answer->peer, std::move(answer->reply));
    }
  }
  if (now >= counts_due_at()) GoOnWithCounts(now);
  if (now >= views_due_at()) GoOnWithView(now);
}

void ClientRequests::GoOnWithCounts(Time now) {
  if (!views_.is_counting()) counted_for_ = std::exchange(statuses_, {});
  if (!views_.CountSome(now)) return;
  for (const Listing& one : std::exchange(counted_for_, {})) {
    AnswerAtOnce(now, one.from, one.request);
  }
}

void ClientRequests::GoOnWithView(Time now) {
  // A question that comes while a view is being made is answered from the next
  // one, which shows all that was done before the question.
  if (!views_.is_making()) made_for_ = std::exchange(listings_, {});
  const std::shared_ptr<const QueueView> view = views_.Advance(now);
  if (view == nullptr) return;
  QueueViews::Dropped dropped = views_.TakeDropped();
  for (const Listing& one : std::exchange(made_for_, {})) {
    if (one.request.job.valid()) {
      AnswerOfOne(now, one.from, one.request, view);
    } else {
      AskListing(one.from, one.request, view, std::exchange(dropped, {}));
    }
  }
}

void ClientRequests::Expire(Time now) {
  while (auto reader = logs_.TakeOlderThan(now - kLogTimeout_s)) {
    RefuseLog(reader->peer, reader->request,
              StrCat("the agent of server ", reader->server,
                     " did not answer in ", kLogTimeout_s, " s"));
  }
  while (auto reader = terminals_.TakeOlderThan(now - kLogTimeout_s)) {
    RefuseTerminal(reader->peer, reader->request,
                   StrCat("the agent of server ", reader->server,
                          " did not answer in ", kLogTimeout_s, " s"),
                   /*for_ever=*/false);
  }
}

void ClientRequests::Audit(const Requester& from, std::string action,
                           std::string object, bool done,
                           std::string_view error) {
  if (options_.audit == nullptr) return;
  const Identity& who = from.identity;
  std::string result = done ? "done" : "not done";
  if (!done && !error.empty()) {
    StrAppend(&result, ": ", PrintableLine(error, kReasonMax));
  }
  options_.audit(
      done,
      {who.name, who.name.empty() ? "" : std::string(RoleName(who.role)),
       from.address, std::move(action), std::move(object), std::move(result)});
}

// The audit log first: who was answered finds it there.
void ClientRequests::Reply(const Client& client, JobId job, std::string error) {
  const std::string object =
      client.submitted && job.valid()
          ? StrCat("job ", job.value(), " ", client.object)
          : client.object;
  // Why a job file is wrong may quote it: that is for its owner alone.
  Audit(client.from, client.action, object, error.empty(),
        client.submitted ? "" : error);
  if (client.submitted) {
    send_(client.from.peer, SubmitReply{client.request, job, std::move(error)});
  } else {
    send_(client.from.peer, CommandReply{client.request, std::move(error)});
  }
}

void ClientRequests::RefuseLog(const std::string& peer, uint64_t request,
                               std::string error) {
  send_(peer, LogReply{request, "", 0, /*ended=*/true, std::move(error)});
}

void ClientRequests::RefuseTerminal(const std::string& peer, uint64_t request,
                                    std::string error, bool for_ever) {
  TerminalReply reply;
  reply.request = request;
  reply.error = std::move(error);
  reply.refused = for_ever;
  send_(peer, std::move(reply));
}

}  // namespace gavel
