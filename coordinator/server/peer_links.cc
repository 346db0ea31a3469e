#include "coordinator/server/peer_links.h"

#include <iterator>
#include <utility>

#include "core/codec.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {

bool PeerLinks::Send(const std::string& peer, Message message) {
  if (local_.Answer(peer, &message)) return true;
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

void PeerLinks::SendToBidder(const BidderKey& bidder, Message message) {
  const std::string* const peer = bidders_.Find(bidder);
  if (peer == nullptr) return;
  const auto* notice = std::get_if<BidderNotice>(&message);
  const bool refused =
      notice != nullptr && (notice->kind == BidderNoticeKind::kNoApp ||
                            notice->kind == BidderNoticeKind::kRefused);
  const bool sent = Send(*peer, std::move(message));
  if (refused || !sent) bidders_.Forget(bidder);
}

std::vector<Action> SendQueue::Take(Action&& action, bool of_many) {
  std::vector<Action> now;
  if (of_many || !waiting_.empty()) {
    const std::optional<Receiver> receiver = ReceiverOf(action);
    if (of_many && receiver.has_value()) {
      waiting_.push_back(std::move(action));
      waiting_for_[*receiver].push_back(std::prev(waiting_.end()));
      return now;
    }
    const auto before = receiver.has_value() ? waiting_for_.find(*receiver)
                                             : waiting_for_.end();
    if (before != waiting_for_.end()) {
      for (const auto one : before->second) {
        now.push_back(std::move(*one));
        waiting_.erase(one);
      }
      waiting_for_.erase(before);
    }
  }
  now.push_back(std::move(action));
  return now;
}

std::optional<Action> SendQueue::Next() {
  if (waiting_.empty()) return std::nullopt;
  std::optional<Action> next = std::move(waiting_.front());
  waiting_.pop_front();
  const auto others = waiting_for_.find(*ReceiverOf(*next));
  others->second.pop_front();
  if (others->second.empty()) waiting_for_.erase(others);
  return next;
}

// nullopt: the action sends no message, or it answers an agent that has just
// spoken, whose rejection another agent of the same name must not get.
std::optional<SendQueue::Receiver> SendQueue::ReceiverOf(const Action& action) {
  if (const auto* to = std::get_if<action::SendToWorker>(&action)) {
    return to->worker;
  }
  const auto* to = std::get_if<action::SendToAgent>(&action);
  if (to == nullptr || std::holds_alternative<AgentRejected>(to->message)) {
    return std::nullopt;
  }
  return to->server;
}

}  // namespace gavel
