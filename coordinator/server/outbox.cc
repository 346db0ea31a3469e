#include "coordinator/server/outbox.h"

#include <iterator>
#include <utility>

namespace gavel {

std::vector<Action> Outbox::Take(Action&& action, bool of_many) {
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

std::optional<Action> Outbox::Next() {
  if (waiting_.empty()) return std::nullopt;
  std::optional<Action> next = std::move(waiting_.front());
  waiting_.pop_front();
  const auto others = waiting_for_.find(*ReceiverOf(*next));
  others->second.pop_front();
  if (others->second.empty()) waiting_for_.erase(others);
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
