// Explains to people why a job is in its present state. Not thread-safe;
// stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
#define GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_

#include <optional>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/planner.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// The time that an active job has received in all and, for each type, the
// figures of the job alone (not of its pairs) that its priority is computed
// from.
event::Received ReceivedOf(const State& s, JobId job, Time now);
// The reason for the job's state, with its place in line if it waits for its
// priority.
Reason Why(const State& s, JobId job, Time now);
// The same without the place in line.
Reason WhyUnranked(const State& s, JobId job, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
