// What the engine wants done. Plain structs; the server and the simulator
// carry them out in order.
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
  // What the row says; null: read from a file, or no journal is kept.
  std::shared_ptr<const Event> event = nullptr;
};

// Solve and answer with event::AllocationReady of the same epoch. The problem
// does not change while somebody has it; whoever lets go of it before the
// answer saves the engine a copy.
struct SolvePolicy {
  uint64_t epoch = 0;
  std::shared_ptr<const PolicyProblem> problem;
  std::string policy = "";  // that decides now, by its name; empty: not told
};

// To one worker; dropped when it is not connected (it will ask).
struct SendToWorker {
  WorkerKey worker;
  Message message;
};

// To one agent; dropped when it is not connected (its hello says all).
struct SendToAgent {
  std::string server;
  Message message;
};

// Answers a JobSubmitted, or an event of operator_events.h or JobCommanded.
// `error` empty: done and durable.
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

using Action =
    std::variant<action::Persist, action::SolvePolicy, action::SendToWorker,
                 action::SendToAgent, action::Reply, action::Halt>;
using Actions = std::vector<Action>;

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ACTION_H_
