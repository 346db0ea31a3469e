// Deadlines: agents, workers and leases that are overdue. Each look says when
// the next one is due (agenda.h). Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
#define GAVEL_COORDINATOR_ENGINE_SWEEPER_H_

#include "coordinator/engine/agents.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Looks at all deadlines.
void Sweep(State& s, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
