// The way out to workers, agents and clients: the address from which each
// worker and agent was last heard, and sending. The coordinator's event loop
// owns one. Not thread-safe; borrows the gatekeeper, the router and the log.
#ifndef GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_
#define GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_

#include <cstddef>
#include <string>

#include "coordinator/server/access/gatekeeper.h"
#include "coordinator/server/peer_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/transport/router.h"
#include "spdlog/logger.h"

namespace gavel {

class PeerLinks {
 public:
  static constexpr size_t kWorkersMax = 64 * 1024;
  static constexpr size_t kAgentsMax = 4096;

  PeerLinks(Gatekeeper& gatekeeper, Router& router, spdlog::logger& log)
      : gatekeeper_(gatekeeper), router_(router), log_(log) {}

  // Seals the message's journal position and sends it. A message that is lost
  // is asked for again; nothing waits for it. False: that peer is gone.
  bool Send(const std::string& peer, Message message);
  // Nothing is sent to a worker or agent which was not heard from. One whose
  // connection has ended is forgotten.
  void SendToWorker(const WorkerKey& worker, Message message);
  void SendToAgent(const std::string& server, Message message);

  PeerTable<WorkerKey>& workers() { return workers_; }
  PeerTable<std::string>& agents() { return agents_; }
  const PeerTable<std::string>& agents() const { return agents_; }
  void ForgetAgents() { agents_ = PeerTable<std::string>(kAgentsMax); }

 private:
  Gatekeeper& gatekeeper_;
  Router& router_;
  spdlog::logger& log_;
  PeerTable<WorkerKey> workers_{kWorkersMax};
  PeerTable<std::string> agents_{kAgentsMax};
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_
