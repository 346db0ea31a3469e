// The processes of jobs: launches them, asks them to pause or to end, and
// notifies them when they may request a lease. The ranks of a gang meet at a
// store: rank 0 is granted its lease first and opens the store for its epoch.
// Its next request has the address of the store; then the other ranks are
// granted theirs.
//
// Not thread-safe. Snapshot fields: the pace of launches.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Notes the address of the store of a gang. Rank 0 sends it with every
// request, so that a restarted coordinator learns it again.
void NoteGang(State& s, Job& job, const Worker& worker,
              const LeaseRequest& request);
// Whether the rank has to wait for rank 0 to open the store of that epoch.
bool WaitsForGang(const Job& job, int rank, uint64_t epoch);
// One rank is gone, so the others can't continue: they are ended, and all
// ranks start again from the last generation.
void RestartGang(State& s, Time now, Job& job);
// Makes sure that each rank has a process which can use its accelerator of
// `where`. Launches a missing one. Asks one to end that is on another server
// or sees only another accelerator; its exit leads here again.
void EnsureProcesses(State& s, Time now, Job& job,
                     const std::vector<AcceleratorId>& where);
// A rank that stopped before the end of its gang needs the other ranks, so
// those that are already done start once more.
void ReviveDone(State& s, Time now, Job& job);
// No other process is in the way of this launch: sends it to the agent when
// its turn comes.
void BeginLaunch(State& s, Time now, Job& job, int rank);
// The process has said hello, or is gone. From now on its lease alone says
// which accelerator it may use. Begins the launches that waited for it.
void EndSilence(State& s, Time now, const WorkerKey& key, Worker& worker);
// Ends the processes that have not said hello and were launched on an
// accelerator which their rank neither has nor is planned to get. Other jobs
// may get that accelerator. The second form does so for all jobs.
void EndMisplaced(State& s, Time now, Job& job);
void EndMisplaced(State& s, Time now);
// The job was parted from its partner. A launch of the job that is not due
// yet waits until the partner's process has said hello or is gone.
void HoldLaunches(State& s, Time now, Job& job);
// Sends the launch to the agent. It may be sent again with the same key.
void SendLaunch(State& s, Time now, Job& job, int rank);
// Asks the worker to stop. Its process stays if `tier` is kPark or kKeep. A
// process that has not said hello can't receive the request: its agent ends
// it.
void Pause(State& s, Time now, Job& job, int rank, PauseTier tier);
void EndWorkers(State& s, Time now, Job& job, PauseTier tier);
// Lets the agent stop the worker, whatever the worker itself does. Sweep
// repeats the message.
void TellToStop(State& s, Time now, const Job& job, Worker& worker,
                double grace_s);
// If all ranks have joined and the accelerators are free, notifies the ranks
// that they may request their leases now.
void NotifyReady(State& s, Job& job);
// Jobs that are assigned the accelerator may be able to start now.
void AcceleratorFreed(State& s, AcceleratorId accelerator);
// Notifies the ranks that hold a lease that they may request the next
// round's.
void NoticeHolders(State& s, Job& job);
// The time at which the next launch may be sent, in turn with all others.
Time NextLaunch(State& s, Time now);
// Starts the pace anew. Call this if no launch is waiting any more.
void RestartPace(State& s);

// Gives jobs accelerators and takes them back, and changes the number of
// workers of an elastic job as it is assigned anew.
//
// A gang that shrinks keeps the processes of its first ranks, with their state
// in memory; the others commit with them and end. One that grows starts again
// as a whole from the generation that it commits: the new ranks have to start
// and to restore anyway, and so all have the same step. Not thread-safe.

// All ranks of the gang run again: notes what the change has cost.
void NoteResized(Time now, Job& job);
// Gives the job the accelerators `next` (empty: it waits), alone or with a
// partner that gets the same. The workers that hold a lease of the old
// assignment are asked to stop, and the new one is granted when they have.
void Assign(State& s, Time now, Job& job,
            const std::vector<AcceleratorId>& next, JobId partner,
            PauseTier tier = PauseTier::kPark);

// How leases, processes and jobs end, and how a worker whose loop stands still
// is found. Not thread-safe.

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

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_H_
