// The leases of workers. LeaseDesk answers the workers' messages, and
// LeaseEvents applies the journaled events that follow from them. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_LEASES_H_
#define GAVEL_COORDINATOR_ENGINE_LEASES_H_

#include <cstdint>
#include <string>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Applies the journaled events of workers: WorkerJoined, LeaseStarted,
// LeaseEnded and StepsReported. The result depends on the journal alone. Not
// thread-safe; stateless.

void On(State& s, Time now, const event::WorkerJoined& e);
void On(State& s, Time now, const event::LeaseStarted& e);
void On(State& s, Time now, const event::LeaseEnded& e);
void On(State& s, Time now, const event::StepsReported& e);

// Answers the hellos, lease requests, reports and releases of workers. Leases
// are granted only here. LeaseEvents and Endings apply the events that it
// journals. Not thread-safe; a restart forgets its own state (FailureStreaks).

void Admit(State& s, Time now, const event::WorkerJoined& e);
void Admit(State& s, Time now, event::LeaseEnded e);
void Admit(State& s, Time now, event::StepsReported e);
void Admit(State& s, Time now, const event::WorkerGone& e);
void Admit(State& s, Time now, const event::WorkerBusy& e);
void Admit(State& s, Time now, const event::WorkerSaidFinished& e);
void Admit(State& s, Time now, const event::LeaseRequested& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_LEASES_H_
