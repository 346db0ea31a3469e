// Servers that join, fall silent and leave. Admits hellos and heartbeats of
// agents, applies ServerJoined and ServerLost, and compares the processes that
// an agent lists with those that the engine knows. Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SERVERS_H_
#define GAVEL_COORDINATOR_ENGINE_SERVERS_H_

#include "coordinator/engine/agents.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

void Admit(State& s, Time now, const event::ServerJoined& e);
void Admit(State& s, Time now, const event::AgentHeard& e);
void On(State& s, Time now, const event::ServerJoined& e);
void On(State& s, Time now, const event::ServerLost& e);
// Records the event once, although the agent repeats its message.
void Admit(State& s, Time now, const event::AgentLeaves& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SERVERS_H_
