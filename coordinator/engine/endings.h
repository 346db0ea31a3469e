// How leases, processes and jobs end, and how a worker whose loop stands still
// is found. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ENDINGS_H_
#define GAVEL_COORDINATOR_ENGINE_ENDINGS_H_

#include <optional>
#include <string>

#include "coordinator/engine/assignments.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/round_clock.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Finds workers whose loop stands still: they make no step and pass no
// boundary, although their lease thread continues to renew the lease. Otherwise
// such a worker would keep its accelerator for ever if nobody asked it to
// pause.
//
// The verdict rests on the worker's own reports, about one a second, that its
// counts have not changed. Silence proves nothing; the lease of a silent worker
// ends by itself. Not thread-safe; the state is in Worker.

// Notes a report of the worker. A restart forgets it, and the worker reports
// again.
void NoteSteps(Time now, Worker& worker, const Progress& told);
// For how many seconds the worker's loop had stood still at its last report.
double StandsStill(const Worker& worker);
// For how many seconds the loop may stand still; kNever if the worker has no
// lease or there is no limit.
double HangTimeout(const State& s, const Job& job, const Worker& worker);
// The rank that has stood still for longest, if that is at least a quarter of
// the time allowed (kToldFraction).
std::optional<Standstill> StandstillOf(const State& s, const Job& job);

// How leases, processes and jobs end, and which ends count as failures. Applies
// the events WorkerGone, WorkerAbandoned and AcceleratorLost. Not thread-safe;
// stateless.

// Classifies the end of a rank's process by its exit, its messages and the
// requests that it had received. A process that has a session is done only if
// it sent WorkerFinished: exit code 0 may be that of a shell around it.
event::ProcessEnd ReadEnd(Time now, const Job& job, int rank,
                          const WorkerExited& exit);

void On(State& s, Time now, const event::WorkerGone& e);
void On(State& s, Time now, const event::WorkerAbandoned& e);
// Applies the end of the rank's process. May end the job, or start the
// process again.
void ProcessEnded(State& s, Time now, Job& job, int rank,
                  const WorkerExited& exit,
                  event::ProcessEnd end = event::ProcessEnd::kLeft);
// Moves the job to `state`. The job loses its accelerators, and its processes
// are asked to end.
void EndJob(State& s, Time now, Job& job, JobState state, Reason reason,
            PauseTier tier = PauseTier::kStop);
// A worker stopped of its own accord: its lease ran out, it could not get the
// accelerator, or its gang did not come together. No rank of the gang gets a
// lease of this epoch again.
void GiveUpEpoch(State& s, Time now, Job& job, ReleaseCause cause);
// Ends the worker's lease: its accelerator is free.
void EndLease(State& s, Time now, Job& job, Worker& worker);
// Without `e.job`, the accelerator is lost for all jobs. With it, that job
// reports that it can't use the accelerator, and is kept out of it. Other
// jobs lose it only if Accusations (failures.h) confirms the report, since
// the fault may lie with the job, say with a program that was built without
// CUDA. A job that can't use the accelerators of a second server either, or a
// second accelerator where no other server has the type, is held.
void On(State& s, Time now, const event::AcceleratorLost& e);
// The job did not fit into the memory of `where`. This is not counted as a
// failure. Processes of other jobs that are parked there are evicted. If the
// job ran beside `partner`, the pair is excluded from the type. If it had the
// accelerator to itself, it is excluded from the type, or, where `cause` says
// that others filled the memory, avoids the accelerator for some time.
void OutOfMemory(State& s, Job& job, AcceleratorId where, JobId partner,
                 ReleaseCause cause, Time now);
// Takes the accelerators from jobs whose processes wait for a checkpoint that
// no reachable server can send, and ends those processes, so that other jobs
// can have the accelerators.
void GiveUpFetches(State& s, Time now);

// The exit to assume for a process whose agent is gone or can't be asked. It is
// no failure of the job. `launch_hung` is set if the process was still being
// launched: the launch may be what took the agent down.
WorkerExited EndedWithAgent(const std::string& server, const Worker& worker,
                            const WorkerKey& key);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ENDINGS_H_
