// What the engine sends to many at once (a round's notices to thousands of
// workers): it goes out a part at a time, so that what comes in meanwhile is
// answered in between. To one receiver in the engine's order. The coordinator's
// event loop owns one. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_OUTBOX_H_
#define GAVEL_COORDINATOR_SERVER_OUTBOX_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>

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

  // Takes `action` if it is a message that has to wait: one of many, or with
  // others before it to the same receiver. False: it is to be carried out now,
  // and untouched.
  bool Take(Action& action, bool of_many);

  // The next one that waits, in order.
  std::optional<Action> Next();

  bool empty() const { return waiting_.empty(); }

 private:
  using Receiver = std::variant<WorkerKey, std::string>;
  static std::optional<Receiver> ReceiverOf(const Action& action);

  std::deque<Action> waiting_;
  std::map<Receiver, int> waiting_for_;  // how many, none of them 0
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_OUTBOX_H_
