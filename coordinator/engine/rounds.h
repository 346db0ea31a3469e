// Rounds: resizing elastic jobs, planning the next round, beginning it, and
// giving out accelerators that become free in the middle. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_H_

#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/assignments.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/elastic.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/planner.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/round_clock.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Resizes elastic jobs: hands the plan of a round to elastic.h, and records the
// sizes that it chooses. From then on plans and the policy use the new size,
// Job::scale_factor; the gang itself changes when the job is assigned anew. Not
// thread-safe; stateless.

// Chooses the sizes for the round that begins at `at`. With `keep_running`,
// only waiting jobs get a new size, in the middle of a round.
void ResizeJobs(State& s, Time now, Time at, bool keep_running);
void On(State& s, Time now, const event::JobsResized& e);

// Plans rounds ahead of their start, announces them, carries them out, and
// fills free accelerators in between. Not thread-safe; stateless, as RoundClock
// keeps the time.

// Decides the next round ahead of its start: a job that continues can have
// its leases extended without a gap, and the processes of a new one are
// started in time.
void PlanRoundAhead(State& s, Time now);
void On(State& s, Time now, const event::RoundPlanned& e);
void On(State& s, Time now, const event::RoundStarted& e);
// Gives free accelerators to the waiting jobs that are next in line, in the
// middle of a round, so that none is idle while a job waits. No running job
// is interrupted.
void Fill(State& s, Time now);
void On(State& s, Time now, const event::UnitsAssigned& e);
// Plans the next round if that is due.
void Look(State& s, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
