// The actions that a step of the engine returns: plain structs, which the
// server and the simulator carry out in order.
#ifndef GAVEL_COORDINATOR_ENGINE_ACTION_H_
#define GAVEL_COORDINATOR_ENGINE_ACTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/policy/policy.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::action {

// Append this row to the journal and answer with event::Persisted, in order,
// once it is on disk. Rows may be committed in groups.
struct Persist {
  uint64_t seq = 0;
  uint64_t term = 0;
  Time time = 0;
  std::string row;  // EncodeEvent
  // The event that `row` encodes; null if the row was read from a journal.
  std::shared_ptr<const Event> event = nullptr;
};

// Solve and answer with event::AllocationReady of the same epoch. The problem
// does not change while the solver holds a pointer to it: the engine then
// copies it for the next change. Dropping the pointer before the answer saves
// that copy.
struct SolvePolicy {
  uint64_t epoch = 0;
  std::shared_ptr<const PolicyProblem> problem;
  std::string policy = "";  // name of the deciding one; empty: unknown
};

// Sends to one worker. The message is dropped if the worker is not connected:
// it asks again.
struct SendToWorker {
  WorkerKey worker;
  Message message;
};

// Sends to one agent. The message is dropped if the agent is not connected: its
// next hello brings both sides up to date.
struct SendToAgent {
  std::string server;
  Message message;
};

// Sends to the process that bids for an app. The message is dropped if it is
// not connected.
struct SendToBidder {
  BidderKey bidder;
  Message message;
};

// Answers the client behind JobSubmitted or one of the events of operators and
// owners in event.h, such as JobCommanded. If `error` is empty, the command is
// done and durable.
struct Reply {
  uint64_t reply_to = 0;
  JobId job;
  std::string error;
};

// A peer has seen a later journal than this one: a newer coordinator runs, or
// this journal lost its end. Stop at once, print `reason`, grant nothing more.
struct Halt {
  std::string reason;
};

}  // namespace gavel::action

namespace gavel {

using Action = std::variant<action::Persist, action::SolvePolicy,
                            action::SendToWorker, action::SendToAgent,
                            action::SendToBidder, action::Reply, action::Halt>;
using Actions = std::vector<Action>;

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ACTION_H_
