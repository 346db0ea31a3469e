// The plan of a round: the rows that the mechanism chooses from, and the jobs
// that get accelerators. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_PLANNER_H_
#define GAVEL_COORDINATOR_ENGINE_PLANNER_H_

#include <optional>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/allocation.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Makes the rows of a round for the mechanism (Gavel section 5). There is one
// for each unit that may run, with the accelerators that it holds, its share,
// the time that it has received and the cost of moving it. Stateless; not
// thread-safe.

// The units that may run, as of `at`.
RoundTable RoundUnits(const State& s, Time at, bool with_trials);
// Adds the row of the job alone, and that of the pair that it runs in if the
// pair has no share. Without `at`, the rows have only the fields that decide
// where a unit goes.
void AddUnits(const State& s, const Job& job, std::optional<Time> at,
              bool with_trials, RoundUnit& row, RoundTable& units);
// Fills all of `row`, with the fields that decide whose turn it is.
void MakeUnit(const State& s, const ShareUnit& unit, const Job& job, Time at,
              RoundUnit& row);

// Plans a round: which jobs would run where.
//
// A policy may answer with an assignment, which says which jobs run. Then most
// jobs stay where they are, and only those are planned anew that may get
// another place. If it answers with shares, every job is planned in every
// round. The planner only proposes; Rounds (rounds.h) decides.
//
// Not thread-safe. No snapshot fields: after a restart all jobs are planned.

// Whether all jobs have to be planned together: the place of a job depends on
// the other jobs, or on more than the changes that touch the job.
bool PlansWhole(const State& s);
// Unless `types` is empty, jobs are to be placed only on the types that it
// marks. An assignment places each type by itself, so its plan may leave out
// the other types.
RoundPlan PlanAll(State& s, Time at, bool keep_running,
                  const std::vector<bool>& types = {});
// An assignment may give a job a type that other jobs still hold in this
// round. Until they are free, such jobs among `jobs` (nullopt: among all) run
// on idle accelerators of the usable type where they are fastest. Adds those
// to `places`.
void PlaceElsewhere(State& s, Time at,
                    const std::optional<std::vector<JobId>>& jobs,
                    std::vector<RoundAssignment::Entry>& places);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_PLANNER_H_
