#include "coordinator/server/outbox.h"

#include <utility>

namespace gavel {

bool Outbox::Take(Action& action, bool of_many) {
  if (!of_many && waiting_.empty()) return false;
  std::optional<Receiver> receiver = ReceiverOf(action);
  if (!receiver.has_value()) return false;
  if (!of_many && !waiting_for_.contains(*receiver)) return false;
  ++waiting_for_[*std::move(receiver)];
  waiting_.push_back(std::move(action));
  return true;
}

std::optional<Action> Outbox::Next() {
  if (waiting_.empty()) return std::nullopt;
  std::optional<Action> next = std::move(waiting_.front());
  waiting_.pop_front();
  const auto counted = waiting_for_.find(*ReceiverOf(*next));
  if (--counted->second == 0) waiting_for_.erase(counted);
  return next;
}

// Nothing: it is not a message, or the answer to who has just spoken, which
// another one of the same name must not get.
std::optional<Outbox::Receiver> Outbox::ReceiverOf(const Action& action) {
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
