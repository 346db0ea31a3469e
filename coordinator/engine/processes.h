// The processes of jobs: launches them, asks them to pause or to end, and
// notifies them when they may request a lease. The ranks of a gang meet at a
// store: rank 0 is granted its lease first and opens the store for its epoch.
// Its next request has the address of the store; then the other ranks are
// granted theirs.
//
// Not thread-safe. Snapshot fields: the pace of launches.
#ifndef GAVEL_COORDINATOR_ENGINE_PROCESSES_H_
#define GAVEL_COORDINATOR_ENGINE_PROCESSES_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "coordinator/engine/action.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/round_clock.h"
#include "coordinator/engine/terms.h"
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
// Lets the agent stop the worker, whatever the worker itself does. Sweeper
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

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_PROCESSES_H_
