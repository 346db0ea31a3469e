#include "coordinator/server/message_pipeline.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "coordinator/server/incoming.h"
#include "core/codec.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// The processor time of this thread alone, so that a busy machine does not
// raise the cost of a request.
double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) / 1e9;
}

bool RejectAgent(const Actions& actions) {
  return std::ranges::any_of(actions, [](const Action& action) {
    const auto* const sent = std::get_if<action::SendToAgent>(&action);
    return sent != nullptr &&
           std::holds_alternative<AgentRejected>(sent->message);
  });
}

}  // namespace

// A message is authorised before it is validated, so that a sender which may
// not send it gets that answer, and an entry in the audit log, whatever the
// message contains.
void MessagePipeline::Handle(Incoming incoming) {
  const Time now = parts_.runner.Now();
  const absl::StatusOr<Identity> sender =
      parts_.gatekeeper.Authenticate(now, incoming);
  if (!sender.ok()) return Refuse(incoming, sender.status());
  BidderKey* const bidder = SendingBidder(incoming.message);
  if (bidder != nullptr && bidder->owner.empty()) bidder->owner = sender->name;

  const absl::Status authorized =
      parts_.gatekeeper.Authorize(now, *sender, incoming, parts_.engine);
  if (!authorized.ok()) return Refuse(incoming, authorized);

  const absl::Status valid = CheckMessage(incoming.message);
  if (!valid.ok()) return Drop(incoming, valid);

  const std::optional<AgentMessage> of_agent = NoteSender(incoming);
  const std::optional<Event> event = EventFor(*sender, std::move(incoming));
  Actions actions = event ? parts_.runner.Step(*event) : Actions{};

  const bool accepted = !RejectAgent(actions);
  parts_.runner.CarryOut(std::move(actions));
  if (of_agent) Settle(*of_agent, accepted);
}

void MessagePipeline::Refuse(const Incoming& incoming,
                             const absl::Status& why) {
  // Logged ever more rarely: no sender can fill the disk.
  if (std::has_single_bit(++refused_)) {
    parts_.log.warn("{} refused ({} messages so far): {}",
                    MessageName(incoming.message), refused_,
                    ToStd(why.message()));
  }
  std::optional<Message> answer =
      RefusalOf(incoming.message, why, parts_.runner.PersistedPosition());
  if (answer) parts_.peers.Send(incoming.peer, *std::move(answer));
  if (LocalRequests::IsLocal(incoming)) return;  // has no connection to cut
  if (absl::IsUnauthenticated(why)) return parts_.router.Cut(incoming);
  parts_.router.RecordOffence(incoming);
}

void MessagePipeline::Drop(const Incoming& incoming, const absl::Status& why) {
  if (std::has_single_bit(++dropped_)) {
    parts_.log.warn("{} dropped ({} messages so far): {}",
                    MessageName(incoming.message), dropped_,
                    ToStd(why.message()));
  }
  if (!std::holds_alternative<AgentHello>(incoming.message)) return;
  parts_.peers.Send(
      incoming.peer,
      *RefusalOf(incoming.message, why, parts_.runner.PersistedPosition()));
}

std::optional<MessagePipeline::AgentMessage> MessagePipeline::NoteSender(
    Incoming& incoming) {
  if (const BidderKey* bidder = SendingBidder(incoming.message)) {
    // Only the latest process of an app has an address.
    parts_.peers.bidders().ForgetBefore({bidder->owner, bidder->app, 0},
                                        *bidder);
    parts_.peers.bidders().Saw(*bidder, incoming.peer);
  }
  const Message& message = incoming.message;
  PeerTable<WorkerKey>& workers = parts_.peers.workers();
  if (const auto worker = SendingWorker(message)) {
    workers.Saw(*worker, incoming.peer);
    if (std::holds_alternative<LeaseRequest>(message)) {
      parts_.router.MayRenew(incoming);
    }
  }
  if (const auto* exited = std::get_if<WorkerExited>(&message)) {
    workers.Forget(exited->worker);
  }
  const std::optional<std::string> server = SendingAgent(message);
  if (!server) return std::nullopt;
  PeerTable<std::string>& agents = parts_.peers.agents();
  const std::string* const before = agents.Find(*server);
  AgentMessage of_agent{*server, message, before == nullptr ? "" : *before};
  agents.Saw(*server, incoming.peer);
  return of_agent;
}

std::optional<Event> MessagePipeline::EventFor(const Identity& sender,
                                               Incoming incoming) {
  if (const auto* launched = std::get_if<WorkerLaunched>(&incoming.message)) {
    parts_.runner.NoteLaunch(*launched);
  }
  if (const auto line = reports_.Take(parts_.runner.Now(), &incoming.message)) {
    parts_.log.warn("{}", *line);
  }
  std::optional<Event> event = EventForClient(sender, incoming);
  return event ? std::move(event) : EventOf(std::move(incoming.message));
}

std::optional<Event> MessagePipeline::EventForClient(const Identity& sender,
                                                     const Incoming& incoming) {
  const Time now = parts_.runner.Now();
  const Requester from{incoming.peer, incoming.address, sender,
                       incoming.public_key};
  return std::visit(
      [&]<class T>(const T& message) -> std::optional<Event> {
        if constexpr (ForClients<T>) {
          const double before_s = ProcessorSeconds();
          std::optional<Event> event = parts_.clients.Take(now, from, message);
          parts_.gatekeeper.Charge(now, sender, ProcessorSeconds() - before_s);
          return event;
        }
        return std::nullopt;
      },
      incoming.message);
}

void MessagePipeline::Settle(const AgentMessage& of_agent, bool accepted) {
  if (accepted) {
    // Only an agent that the engine knows vouches for the keys of workers.
    parts_.gatekeeper.NoteWorkers(of_agent.message, parts_.engine.jobs());
  } else if (!of_agent.peer_before.empty()) {
    // When two agents have one name, the first one gets the messages to that
    // name.
    parts_.peers.agents().Saw(of_agent.server, of_agent.peer_before);
  }
}

}  // namespace gavel
