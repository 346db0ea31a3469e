// Jobs that are submitted: whether they are let in, and what is kept of them.
// Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_
#define GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

void Admit(State& s, Time now, event::JobSubmitted e);
void On(State& s, Time now, const event::JobSubmitted& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_
