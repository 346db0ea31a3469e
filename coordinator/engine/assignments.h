// Gives jobs accelerators and takes them back, and changes the number of
// workers of an elastic job as it is assigned anew.
//
// A gang that shrinks keeps the processes of its first ranks, with their state
// in memory; the others commit with them and end. One that grows starts again
// as a whole from the generation that it commits: the new ranks have to start
// and to restore anyway, and so all have the same step. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ASSIGNMENTS_H_
#define GAVEL_COORDINATOR_ENGINE_ASSIGNMENTS_H_

#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// All of the gang run again: what the change has cost.
void NoteResized(Time now, Job& job);
// Gives the job `next`, alone or with a partner that gets the same (empty: it
// waits). Whoever holds a lease of the old assignment is asked to stop; the
// new one is granted when they have.
void Assign(State& s, Time now, Job& job,
            const std::vector<AcceleratorId>& next, JobId partner,
            PauseTier tier = PauseTier::kPark);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ASSIGNMENTS_H_
