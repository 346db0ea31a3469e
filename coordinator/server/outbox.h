// Messages that the engine sends to many receivers at once, such as a round's
// notices to thousands of workers. They go out in parts, so that requests are
// answered in between. The order of messages to one receiver is the engine's:
// an answer is sent behind the messages that wait for its receiver. The
// coordinator's event loop owns one. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_OUTBOX_H_
#define GAVEL_COORDINATOR_SERVER_OUTBOX_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/engine/action.h"
#include "core/ids.h"

namespace gavel {

class Outbox {
 public:
  // A step's actions are many beyond this; so many go out between two turns of
  // receiving, and more when kTurnsMax turns would not carry all that waits:
  // else what comes in by turns of as many would keep it waiting for ever.
  static constexpr size_t kSentAtOnceMax = 64;
  static constexpr size_t kTurnsMax = 64;

  // How many go out now.
  size_t DueNow() const {
    return std::max(kSentAtOnceMax, waiting_.size() / kTurnsMax);
  }

  // The actions to carry out now, in order: those that wait for the receiver of
  // `action`, then `action`. Nothing when `action` itself waits, as one of
  // many.
  std::vector<Action> Take(Action&& action, bool of_many);

  // The next one that waits, in order.
  std::optional<Action> Next();

  bool empty() const { return waiting_.empty(); }

 private:
  using Receiver = std::variant<WorkerKey, std::string>;
  static std::optional<Receiver> ReceiverOf(const Action& action);

  std::list<Action> waiting_;
  // In order; none is empty.
  std::map<Receiver, std::deque<std::list<Action>::iterator>> waiting_for_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_OUTBOX_H_
