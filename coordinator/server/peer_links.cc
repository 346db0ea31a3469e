#include "coordinator/server/peer_links.h"

#include <utility>

#include "core/codec.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {

bool PeerLinks::Send(const std::string& peer, Message message) {
  gatekeeper_.Seal(&message);
  const absl::Status sent = router_.Send(peer, message);
  if (sent.ok()) return true;
  log_.debug("{} not sent: {}", MessageName(message), ToStd(sent.message()));
  return !absl::IsNotFound(sent);
}

void PeerLinks::SendToWorker(const WorkerKey& worker, Message message) {
  const std::string* const peer = workers_.Find(worker);
  if (peer == nullptr || Send(*peer, std::move(message))) return;
  workers_.Forget(worker);
}

void PeerLinks::SendToAgent(const std::string& server, Message message) {
  const std::string* const peer = agents_.Find(server);
  if (peer == nullptr || Send(*peer, std::move(message))) return;
  agents_.Forget(server);
}

}  // namespace gavel
