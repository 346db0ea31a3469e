// Deadlines: agents, workers and leases that are overdue. Each look says when
// the next one is due (agenda.h). Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
#define GAVEL_COORDINATOR_ENGINE_SWEEPER_H_

#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Looks at all deadlines.
void Sweep(State& s, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
