// How far a pause goes, and what memory there is for those that are away.
//
// The tier of a pause follows from how long the job is expected to be away, in
// rounds the larger of
//   - by its share s of the time: (1 - s) / s, what lies between two of its
//     rounds on average;
//   - by its place p in line on the type where it is the furthest ahead, of
//     which it needs k of c accelerators: p k / c, rounded up;
// and at least one. Up to DecisionSettings::keep_absence_s_max it is kept on
// the accelerator (kKeep), if that has room for it beside who comes next;
// beyond park_absence_s_max it is evicted; else it is parked in host memory.
// One that changes nothing but its partner is away for a moment and is kept as
// well.
//
// Budgets are what agents declare. On an accelerator: a context for each
// process that has run there and lives, what kept jobs hold, and the most that
// who runs there was seen to hold. On a server: the host memory of its parked
// jobs. Beyond a budget, whoever has been away the longest is evicted. An
// exclusive accelerator has room for one process: nobody is kept or parked with
// a context there that others are in the way of. Not thread-safe; stateless.
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
// Of those whose round is over, where it is not kPark. Chosen once and
// journaled with the round: a replay decides nothing.
Tiers ChooseTiers(const State& s, Time now);
// Records who has to end, where a budget is exceeded.
void MakeRoom(State& s, Time now);
void On(State& s, Time now, const event::WorkersEvicted& e);
// Where a waiting job has its tensors, for people.
std::string MemoryText(const State& s, const Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_MEMORY_PLAN_H_
