// The coordinator's parts and the turns of its loop. Included by the files that
// implement it only: coordinator_server.cc has the loop,
// coordinator_messages.cc what comes in and goes out. One thread owns it.
#ifndef GAVEL_COORDINATOR_SERVER_COORDINATOR_IMPL_H_
#define GAVEL_COORDINATOR_SERVER_COORDINATOR_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/server/access/gatekeeper.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/cluster_facts.h"
#include "coordinator/server/coordinator_server.h"
#include "coordinator/server/engine_clock.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/journal/recorder.h"
#include "coordinator/server/outbox.h"
#include "coordinator/server/peer_table.h"
#include "coordinator/server/report_check.h"
#include "coordinator/server/solver_thread.h"
#include "coordinator/server/wire_counts.h"
#include "runtime/transport/router.h"

namespace gavel {

struct CoordinatorServer::Impl {
  static constexpr size_t kWorkerPeersMax = 64 * 1024;
  static constexpr size_t kAgentPeersMax = 4096;

  Impl(CoordinatorServerOptions given, std::string cluster,
       std::unique_ptr<Gatekeeper> keeper, std::unique_ptr<Router> bound);

  absl::Status Start(std::unique_ptr<Journal> journal,
                     std::unique_ptr<Policy> policy);
  absl::Status Run();

  // One turn of the loop: messages, what the threads have done, deadlines.
  void Turn();
  void ReceiveSome();
  void SendSome();
  void TakeCompletions();
  double WaitTime() const;
  bool Over() const;

  void Handle(Incoming incoming);
  void Drop(const Incoming& incoming, const absl::Status& why);
  void Refuse(const Incoming& incoming, const absl::Status& why);
  bool IsOwner();  // false: it has halted
  void LookAround();
  void TakeSettings();
  std::optional<Event> TakeClientMessage(const Incoming& incoming,
                                         const Identity& sender);

  void Log(const std::optional<Fact>& fact);

  void Step(const Event& event);
  void Carry(action::Persist&& action);
  void Carry(action::SolvePolicy&& action);
  void Carry(action::SendToWorker&& action);
  void Carry(action::SendToAgent&& action);
  void Carry(action::Reply&& action);
  void Carry(action::Halt&& action);
  void Halt(absl::Status why);
  // What may be told at once: who saw what is then lost would halt us.
  JournalPosition PersistedPosition() const {
    return {engine.position().term, persisted_seq};
  }
  // False: that peer is gone.
  bool Send(const std::string& peer, Message message);

  CoordinatorServerOptions options;
  const std::string cluster_id;            // Journal::cluster_id
  std::unique_ptr<Gatekeeper> gatekeeper;  // the router's thread asks it
  std::unique_ptr<Router> router;
  Engine engine;
  EngineClock clock{0};
  PeerTable<WorkerKey> workers{kWorkerPeersMax};
  PeerTable<std::string> agents{kAgentPeersMax};
  ClientRequests clients;
  ReportCheck reports;
  ClusterFacts facts;
  Outbox outbox;
  uint64_t persisted_seq = 0;         // that the engine was told
  std::vector<std::string> troubles;  // that the log was told
  uint64_t dropped = 0;               // messages that can't be what they say
  uint64_t refused = 0;               // that their senders may not send
  WireReport wire_report;
  absl::Status halted;
  Time stop_at = kNever;
  Time look_at = 0;
  bool solve_abandoned = false;
  bool agent_rejected = false;  // in the present step
  std::atomic<bool> stop_requested{false};
  std::mutex settings_mutex;  // guards the next
  std::optional<QuotaOptions> new_quota;
  // Last, so that they end before the router that they wake.
  std::unique_ptr<SolverThread> solver;
  Recorder recorder;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_COORDINATOR_IMPL_H_
