// Chooses the tier of each pause, and keeps paused jobs within the memory that
// there is for them.
//
// The tier of a pause follows from how long the job is expected to be away.
// That is, in rounds, the largest of
//   - (1 - s) / s for its share s of the time: the average pause between two of
//     its rounds;
//   - p k / c, rounded up, for its place p in line on the type where it is the
//     furthest ahead and needs k of c accelerators;
//   - one.
// Up to DecisionSettings::keep_absence_s_max the job is kept on the accelerator
// (kKeep), if that has room for it beside the next job. Beyond
// park_absence_s_max it is evicted. In between it is parked in host memory. A
// job that only changes its partner is away for a moment and is kept as well.
//
// Agents declare the budgets. On an accelerator a budget covers a context for
// each live process that has run there, the memory of kept jobs, and the most
// memory that the running job was seen to hold. On a server it covers the host
// memory of the parked jobs. Beyond a budget, the job that has been away the
// longest is evicted. An exclusive accelerator has room for one process, so no
// job is kept or parked with a context there when others need it. Not
// thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_MEMORY_PLAN_H_
#define GAVEL_COORDINATOR_ENGINE_MEMORY_PLAN_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

using Tiers = std::vector<std::pair<JobId, PauseTier>>;
// The tiers of the jobs whose round is over, except kPark. They are chosen once
// and journaled with the round, so that a replay decides nothing.
Tiers ChooseTiers(const State& s, Time now);
// Records the processes that have to end because a budget is exceeded.
void MakeRoom(State& s, Time now);
void On(State& s, Time now, const event::WorkersEvicted& e);
// Where a waiting job has its tensors, for people.
std::string MemoryText(const State& s, const Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_MEMORY_PLAN_H_
