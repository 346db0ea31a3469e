#include "coordinator/server/client_requests.h"

#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/server/query.h"
#include "coordinator/server/submission.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kBusy[] =
    "the coordinator has too many requests to answer; try again";

}  // namespace

ClientRequests::ClientRequests(const Engine& engine,
                               const PeerTable<std::string>& agents, Send send,
                               Options options)
    : engine_(engine),
      agents_(agents),
      send_(std::move(send)),
      options_(std::move(options)) {}

std::optional<Event> ClientRequests::Take(Time now, const std::string& peer,
                                          const SubmitRequest& request) {
  const Client client{peer, request.request, /*submitted=*/true};
  absl::StatusOr<JobSpec> spec =
      ReadSubmission(request, options_.state_directory, engine_.jobs());
  if (!spec.ok()) {
    Reply(client, JobId(), std::string(spec.status().message()));
    return std::nullopt;
  }
  const std::optional<uint64_t> handle = clients_.Add(now, client);
  if (!handle) {
    Reply(client, JobId(), kBusy);
    return std::nullopt;
  }
  return event::JobSubmitted{*std::move(spec), *handle};
}

std::optional<Event> ClientRequests::Take(Time now, const std::string& peer,
                                          const CommandRequest& request) {
  const Client client{peer, request.request, /*submitted=*/false};
  if (request.kind == CommandKind::kShutdown) {
    shutdown_requested_ = true;
    Reply(client, JobId(), "");
    return std::nullopt;
  }
  const std::optional<uint64_t> handle = clients_.Add(now, client);
  if (!handle) {
    Reply(client, JobId(), kBusy);
    return std::nullopt;
  }
  return event::JobCommanded{request.job, request.kind, *handle};
}

std::optional<Event> ClientRequests::Take(Time now, const std::string& peer,
                                          const QueryRequest& request) {
  send_(peer, AnswerQuery(request, {engine_, now, options_.policy}));
  return std::nullopt;
}

std::optional<Event> ClientRequests::Take(Time now, const std::string& peer,
                                          const LogRequest& request) {
  const auto refuse = [&](std::string error) {
    RefuseLog(peer, request.request, std::move(error));
    return std::nullopt;
  };
  const auto job = engine_.jobs().find(request.worker.job);
  if (job == engine_.jobs().end()) {
    return refuse(StrCat("there is no job ", request.worker.job.value(),
                         "; `gavel queue` lists them"));
  }
  const std::vector<Worker>& workers = job->second.workers;
  if (request.worker.rank < 0 ||
      static_cast<size_t>(request.worker.rank) >= workers.size()) {
    return refuse(StrCat("job ", job->first.value(), " has no rank ",
                         request.worker.rank, ", its ranks are 0 to ",
                         workers.size() - 1));
  }
  const std::string& server =
      workers[static_cast<size_t>(request.worker.rank)].server;
  if (server.empty()) {
    return refuse(StrCat("job ", job->first.value(), " has not started yet"));
  }
  const std::string* agent = agents_.Find(server);
  if (agent == nullptr) {
    return refuse(StrCat("the agent of server ", server,
                         ", which has the log, is not connected"));
  }
  LogRequest passed_on = request;
  const std::optional<uint64_t> handle =
      logs_.Add(now, {peer, request.request, server, *agent});
  if (!handle) return refuse(kBusy);
  passed_on.request = *handle;
  send_(*agent, passed_on);
  return std::nullopt;
}

std::optional<Event> ClientRequests::Take(Time, const std::string& peer,
                                          const LogReply& reply) {
  const LogReader* reader = logs_.Find(reply.request);
  if (reader == nullptr || reader->agent != peer) return std::nullopt;
  LogReply passed_on = reply;
  passed_on.request = reader->request;
  send_(reader->peer, passed_on);
  logs_.Take(reply.request);
  return std::nullopt;
}

void ClientRequests::Answer(const action::Reply& reply) {
  const std::optional<Client> client = clients_.Take(reply.reply_to);
  if (client) Reply(*client, reply.job, reply.error);
}

void ClientRequests::Expire(Time now) {
  while (auto reader = logs_.TakeOlderThan(now - kLogTimeout_s)) {
    RefuseLog(reader->peer, reader->request,
              StrCat("the agent of server ", reader->server,
                     " did not answer in ", kLogTimeout_s, " s"));
  }
}

void ClientRequests::Reply(const Client& client, JobId job, std::string error) {
  if (client.submitted) {
    send_(client.peer, SubmitReply{client.request, job, std::move(error)});
  } else {
    send_(client.peer, CommandReply{client.request, std::move(error)});
  }
}

void ClientRequests::RefuseLog(const std::string& peer, uint64_t request,
                               std::string error) {
  LogReply reply;
  reply.request = request;
  reply.ended = true;
  reply.error = std::move(error);
  send_(peer, reply);
}

}  // namespace gavel
