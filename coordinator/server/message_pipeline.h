// The way of one received message through the coordinator: authenticate,
// authorise, validate, step, send. The event loop calls Handle for each message
// that the router has received. Not thread-safe; borrows all its parts.
#ifndef GAVEL_COORDINATOR_SERVER_MESSAGE_PIPELINE_H_
#define GAVEL_COORDINATOR_SERVER_MESSAGE_PIPELINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/engine_runner.h"
#include "coordinator/server/gatekeeper.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/peer_links.h"
#include "core/messages.h"
#include "runtime/transport/dealer_router.h"
#include "spdlog/logger.h"

namespace gavel {

class MessagePipeline {
 public:
  struct Parts {
    const Engine& engine;
    Gatekeeper& gatekeeper;
    Router& router;
    PeerLinks& peers;
    ClientRequests& clients;
    EngineRunner& runner;
    spdlog::logger& log;
  };
  explicit MessagePipeline(const Parts& parts) : parts_(parts) {}

  void Handle(Incoming incoming);

  // Messages which their senders may not send.
  uint64_t refused() const { return refused_; }

 private:
  // An agent's message, for what follows once the engine has judged it.
  struct AgentMessage {
    std::string server;
    Message message;
    // Where the server's agent was heard from before; empty: nowhere.
    std::string peer_before;
  };

  // The ends of a message which does not reach the engine. Refuse: its sender
  // may not send it. Drop: its content is impossible.
  void Refuse(const Incoming& incoming, const absl::Status& why);
  void Drop(const Incoming& incoming, const absl::Status& why);

  // Stores where the sender is to be answered. Nothing: not from an agent.
  std::optional<AgentMessage> NoteSender(Incoming& incoming);
  // The event that the engine has to decide; nothing when the message is
  // answered without the engine.
  std::optional<Event> EventFor(const Identity& sender, Incoming incoming);
  std::optional<Event> EventForClient(const Identity& sender,
                                      const Incoming& incoming);
  // The engine has accepted the agent's message, or refused it.
  void Settle(const AgentMessage& message, bool accepted);

  const Parts parts_;
  ReportCheck reports_;
  uint64_t dropped_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_MESSAGE_PIPELINE_H_
