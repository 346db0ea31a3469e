// What comes in, and what the engine has to be done about it.
#include <time.h>

#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/server/coordinator_impl.h"
#include "core/codec.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// Of this thread, so that a machine that is busy costs nobody anything.
double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) / 1e9;
}

}  // namespace

void CoordinatorServer::Impl::Handle(Incoming incoming) {
  const absl::StatusOr<Identity> sender =
      gatekeeper->Admit(clock.Now(), incoming, engine);
  if (!sender.ok()) return Refuse(incoming, sender.status());
  if (const absl::Status valid = CheckMessage(incoming.message); !valid.ok()) {
    return Drop(incoming, valid);
  }
  if (const auto worker = SendingWorker(incoming.message)) {
    workers.Saw(*worker, incoming.peer);
    if (std::holds_alternative<LeaseRequest>(incoming.message)) {
      router->MayRenew(incoming);
    }
  }
  std::optional<std::string> server = SendingAgent(incoming.message);
  std::string agent_before;
  std::optional<Message> told;
  if (server.has_value()) {
    told = incoming.message;
    const std::string* const before = agents.Find(*server);
    if (before != nullptr) agent_before = *before;
    agents.Saw(*server, incoming.peer);
  }
  agent_rejected = false;
  if (const auto* launched = std::get_if<WorkerLaunched>(&incoming.message)) {
    Log(facts.Of(*launched, engine));
  }
  if (const auto* exited = std::get_if<WorkerExited>(&incoming.message)) {
    workers.Forget(exited->worker);
  }
  if (const auto line = reports.Take(clock.Now(), &incoming.message)) {
    options.log->warn("{}", *line);
  }
  std::optional<Event> event = TakeClientMessage(incoming, *sender);
  if (!event) event = EventOf(std::move(incoming.message));
  if (event) Step(*event);
  // An agent that the engine refused vouches for nobody.
  if (told && !agent_rejected) gatekeeper->NoteWorkers(*told, engine.jobs());
  // Of two agents with one name, what is for that name goes to the first.
  if (agent_rejected && !agent_before.empty()) {
    agents.Saw(*server, agent_before);
  }
}

void CoordinatorServer::Impl::Refuse(const Incoming& incoming,
                                     const absl::Status& why) {
  if (std::has_single_bit(++refused)) {
    options.log->warn("{} refused ({} messages so far): {}",
                      MessageName(incoming.message), refused,
                      ToStd(why.message()));
  }
  std::optional<Message> answer =
      RefusalOf(incoming.message, why, PersistedPosition());
  if (answer.has_value()) Send(incoming.peer, *std::move(answer));
  if (absl::IsUnauthenticated(why)) return router->Cut(incoming);
  router->Offend(incoming);
}

void CoordinatorServer::Impl::Drop(const Incoming& incoming,
                                   const absl::Status& why) {
  // Logged ever more rarely, so that nobody fills the disk from outside.
  if (std::has_single_bit(++dropped)) {
    options.log->warn("{} dropped ({} messages so far): {}",
                      MessageName(incoming.message), dropped,
                      ToStd(why.message()));
  }
  if (const auto* hello = std::get_if<AgentHello>(&incoming.message)) {
    Send(incoming.peer, AgentRejected{hello->server, PersistedPosition(),
                                      std::string(why.message()),
                                      hello->incarnation, hello->state_id});
  }
}

std::optional<Event> CoordinatorServer::Impl::TakeClientMessage(
    const Incoming& incoming, const Identity& sender) {
  const Time now = clock.Now();
  const Requester from{incoming.peer, incoming.address, sender};
  return std::visit(
      [&]<class T>(const T& message) -> std::optional<Event> {
        if constexpr (requires { clients.Take(now, from, message); }) {
          const double before_s = ProcessorSeconds();
          std::optional<Event> event = clients.Take(now, from, message);
          gatekeeper->Charge(now, sender, ProcessorSeconds() - before_s);
          return event;
        }
        return std::nullopt;
      },
      incoming.message);
}

void CoordinatorServer::Impl::Step(const Event& event) {
  Actions actions = engine.Step(clock.Now(), event);
  const bool many = actions.size() > Outbox::kSentAtOnceMax;
  for (Action& action : actions) {
    for (Action& now : outbox.Take(std::move(action), many)) {
      std::visit([this](auto& a) { Carry(std::move(a)); }, now);
    }
  }
}

void CoordinatorServer::Impl::Carry(action::Persist&& action) {
  clients.Note(*action.event);
  for (const Fact& fact : facts.Observe(*action.event, engine)) Log(fact);
  recorder.Append(std::move(action), engine);
}

void CoordinatorServer::Impl::Carry(action::SolvePolicy&& action) {
  solver->Solve(std::move(action));
}

// A renewal needs no row in which the journal would notice a successor, and
// this one may have stood still since the worker asked: then the successor may
// take the lease as over. If it has not begun yet, it waits as long as this
// grant, which counts from when it was asked for.
void CoordinatorServer::Impl::Carry(action::SendToWorker&& action) {
  if (std::holds_alternative<LeaseGrant>(action.message) && !IsOwner()) {
    return;
  }
  const std::string* peer = workers.Find(action.worker);
  if (peer == nullptr || Send(*peer, std::move(action.message))) return;
  workers.Forget(action.worker);
}

void CoordinatorServer::Impl::Carry(action::SendToAgent&& action) {
  if (const auto* rejected = std::get_if<AgentRejected>(&action.message)) {
    agent_rejected = true;
    Log(ClusterFacts::Of(*rejected));
  } else if (const auto* stop = std::get_if<StopWorker>(&action.message)) {
    Log(facts.Of(clock.Now(), *stop, engine));
  }
  if (auto* welcome = std::get_if<AgentWelcome>(&action.message)) {
    welcome->cluster_id = cluster_id;
  }
  const std::string* peer = agents.Find(action.server);
  if (peer == nullptr || Send(*peer, std::move(action.message))) return;
  agents.Forget(action.server);
}

void CoordinatorServer::Impl::Carry(action::Reply&& action) {
  clients.Answer(action);
}

void CoordinatorServer::Impl::Log(const std::optional<Fact>& fact) {
  if (fact.has_value()) options.log->log(fact->level, "{}", fact->text);
}

void CoordinatorServer::Impl::Carry(action::Halt&& action) {
  Halt(absl::AbortedError(action.reason));
}

void CoordinatorServer::Impl::Halt(absl::Status why) {
  if (!halted.ok()) return;
  options.log->critical("{}", ToStd(why.message()));
  halted = std::move(why);
}

// A message that is lost on the way is asked for again; nothing waits for it.
bool CoordinatorServer::Impl::Send(const std::string& peer, Message message) {
  gatekeeper->Seal(&message);
  const absl::Status sent = router->Send(peer, message);
  if (sent.ok()) return true;
  options.log->debug("{} not sent: {}", MessageName(message),
                     ToStd(sent.message()));
  return !absl::IsNotFound(sent);
}

}  // namespace gavel
