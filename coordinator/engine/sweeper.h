// Deadlines: agents, workers and leases that are overdue, and the times that
// job files name. Each look says when the next one is due (Agenda). Not
// thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
#define GAVEL_COORDINATOR_ENGINE_SWEEPER_H_

#include <string>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Looks at all deadlines.
void Sweep(State& s, Time now);

// The times that a job file names: not_before, when the job may start,
// time_limit, how long it may run, and idle_limit. A job that is not yet to
// start is held, and released when its time comes. One that has run for its
// limit is asked to stop at a boundary with a checkpoint, and is held. An
// interactive job that was idle for its limit is over (interactive.h). Not
// thread-safe; stateless.

// "2026-12-01T08:00:00Z"; seconds since 1970.
std::string UtcText(double wall_s);
// When the job's not_before is over. The time while no coordinator ran counts,
// as far as the machine's clock is known (EngineOptions::wall_offset_s).
Time NotBefore(const Job& job, double wall_offset_s);
// Whether it waits for its not_before.
bool IsAhead(const Job& job);

// Holds a job until its not_before, if that lies ahead.
void HoldUntilDue(State& s, Time now, Job& job);
// The same of an element of an array that was never in the queue. False: it may
// start.
bool HoldElementUntilDue(State& s, Job& job);
// A job that was held before its not_before, and is released before it, waits
// for it again. False: it may start.
bool HoldUntilDueAgain(State& s, Time now, Job& job);
// Finds those jobs again, in a state that was read or after a time without a
// coordinator.
void RebuildTimes(State& s);

// Looks at the times of all jobs.
void SweepTimes(State& s, Time now);
void On(State& s, Time now, const event::TimeReached& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
