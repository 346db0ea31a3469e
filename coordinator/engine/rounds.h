// Rounds: resizing elastic jobs, planning the next round, beginning it, and
// giving out accelerators that become free in the middle. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/units.h"

// How many workers elastic jobs get: they grow into idle accelerators, and
// shrink before anybody has to wait (Gandiva, section 3.4, "grow-shrink"). The
// engine asks at each round, and at once for jobs that wait. Pure.
//
// Any number between a job's bounds is allowed: a data loader with a global
// batch size cuts each step for any number of workers to within one sample.

namespace gavel {

// A job that runs in the round that was planned, or waits.
struct SizedJob {
  JobId id;
  int size = 1;  // workers that it is planned with, or waits with
  int size_min = 1, size_asked = 1, size_max = 1;  // equal: not elastic
  std::optional<size_t> type;  // where the plan has it; none: it waits
  std::vector<bool> usable;    // by type
  // It was resized so recently that it may only shrink for others.
  bool rests = false;
  // It waits, and starts where the plan has it: with any size, at no cost.
  bool starts = false;
  double resize_cost_s = 0;  // in which it does nothing
  std::function<Throughput(size_t type, int size)> speed;
};

struct ElasticOptions {
  double horizon_s = 0;  // a larger size must pay off within this time
  // Set in the middle of a round: running jobs stay as they are, and waiting
  // jobs may take the free accelerators that they can use.
  bool keep_running = false;
};

// Chooses the sizes of `jobs`, which are in the order in which they are served
// when they wait. `free` has the accelerators of each type that the plan leaves
// idle, `capacity` all usable ones. Ties are broken by job id.
//
// 1. A job that waits and fits somewhere, if need be with fewer workers than it
//    asked for, gets room: first free accelerators, then those of elastic jobs
//    there beyond the size that they asked for, then those beyond their
//    minimum. The job that loses least gives first.
// 2. A job gives workers back if they make it faster by less than a quarter of
//    the speed-up that as many more would ideally give.
// 3. Accelerators that are still idle go, one by one, to the largest gain in
//    throughput relative to that of the job's asked size: first up to the asked
//    size, then up to the maximum. A type where a job waits that it could serve
//    is left out, and so is a gain that does not repay the cost of resizing
//    within the horizon.
std::vector<Resize> ChooseSizes(std::vector<SizedJob> jobs,
                                std::vector<int> free,
                                const std::vector<int>& capacity,
                                const std::vector<std::string>& types,
                                const ElasticOptions& options);

}  // namespace gavel

namespace gavel::engine {

struct State;

// Resizes elastic jobs: hands the plan of a round to ChooseSizes, and records
// its sizes. From then on plans and the policy use the new size,
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

// The plan of a round: the rows that the mechanism chooses from, and the jobs
// that get accelerators. Not thread-safe.

// Makes the rows of a round for the mechanism (Gavel section 5). There is one
// for each unit that may run, with the accelerators that it holds, its share,
// the time that it has received and the cost of moving it. Stateless; not
// thread-safe.

// The units that may run, as of `at`.
RoundTable RoundUnits(const State& s, Time at, bool with_trials);
// The last part of RoundUnits without trials, behind the rows of all jobs: adds
// the pairs that have a share, and weighs the shares of entities.
void FinishUnits(const State& s, Time at, RoundTable& units);
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
// round. This only proposes; the functions above decide.
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

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
