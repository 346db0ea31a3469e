// The engine's events and actions in words, one line each, for `gavel replay`.
// Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_HISTORY_EVENT_TEXT_H_
#define GAVEL_COORDINATOR_CLI_HISTORY_EVENT_TEXT_H_

#include <set>
#include <string>

#include "coordinator/engine/action.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"

namespace gavel {

// "LeaseStarted: job 1 rank 0 epoch 2 on here-0 (v100)". `engine` knows the
// accelerators.
std::string EventText(const Event& event, const Engine& engine);

// "LeaseGrant to job 1 rank 0"; empty for what is only bookkeeping.
std::string ActionText(const Action& action);

// Jobs that it names.
std::set<JobId> JobsOf(const Event& event);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_HISTORY_EVENT_TEXT_H_
