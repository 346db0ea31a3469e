// The processes of jobs: launching them, asking them to pause or to end, and
// telling them when a lease is to be had. What several ranks of a job need of
// each other: rank 0 is granted first and opens a store for
// its epoch; its address comes with its next request, and then the others are
// granted.
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
#include "coordinator/jobs/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class Processes {
 public:
  // Borrowed, and outlive this.
  Processes(Outbox& outbox, Agenda& agenda, const JobTable& jobs,
            Changes& changes, const Cluster& cluster,
            const AssignedAccelerators& assigned, LeaseBook& leases,
            const EngineOptions& options, Checkpoints& checkpoints,
            const Ledger& ledger, const RoundClock& round)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        assigned_(assigned),
        leases_(leases),
        options_(options),
        checkpoints_(checkpoints),
        ledger_(ledger),
        round_(round) {}

  // Rank 0 of a gang tells where its store listens: with every request, so a
  // coordinator that starts again hears it again.
  void NoteGang(Job& job, const Worker& worker, const LeaseRequest& request);
  // A rank that has no store yet to meet the others at.
  static bool WaitsForGang(const Job& job, int rank, uint64_t epoch);
  // One rank is gone, so the others can't go on either: they are ended, and all
  // start again from the last generation.
  void RestartGang(Time now, Job& job);
  // A process on the server of each accelerator: launched where there is none,
  // asked to end where it is on another server, or sees another accelerator
  // only (its exit comes back here).
  void EnsureProcesses(Time now, Job& job,
                       const std::vector<AcceleratorId>& where);
  // A rank that stopped before its gang's end needs the others again: those
  // that are done already start once more.
  void ReviveDone(Time now, Job& job);
  // Nothing is in its way: it is sent to its agent, in its turn.
  void BeginLaunch(Time now, Job& job, int rank);
  // The process has spoken, or is gone: what it may use is told by its lease
  // from here on. Begins the launches that waited for it.
  void EndSilence(Time now, const WorkerKey& key, Worker& worker);
  // Ends the processes that have not spoken and are neither where their job is
  // nor where it is planned to be: others get what they may use.
  void EndMisplaced(Time now, Job& job);
  void EndMisplaced(Time now);
  // The job was parted from its partner: a launch of it that was to come later
  // waits until the partner's process has spoken or is gone.
  void HoldLaunches(Time now, Job& job);
  // Once more, by the same key.
  void SendLaunch(Time now, Job& job, int rank);
  // Asks the worker to stop; its process stays where `tier` is kPark or kKeep.
  // One that has not spoken hears no pause: its agent ends it.
  void Pause(Time now, Job& job, int rank, PauseTier tier);
  void EndWorkers(Time now, Job& job, PauseTier tier);
  // By its agent, whatever the worker itself would do; Sweep repeats it.
  void TellToStop(Time now, const Job& job, Worker& worker, double grace_s);
  // "Ask now": all ranks are there and the accelerators are free.
  void NotifyReady(Job& job);
  // Jobs that are assigned it may be able to start.
  void AcceleratorFreed(AcceleratorId accelerator);
  // They may ask for the next round's lease.
  void NoticeHolders(Job& job);

  // When a process that is to be launched now is, in turn with all others.
  Time NextLaunch(Time now) {
    return launches_.Next(now, options_.launches_per_s);
  }
  // Nothing waits for its launch any more.
  void RestartPace() { launches_ = {}; }

  static auto State(auto& part) { return std::tie(part.launches_); }

 private:
  void AddPlaceInGang(const Job& job, int rank, LaunchWorker& launch) const;
  void Launch(Time now, Job& job, int rank, AcceleratorId where);
  Message LaunchMessage(const Job& job, int rank) const;
  void Notify(const Job& job, int rank);

  Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const AssignedAccelerators& assigned_;
  LeaseBook& leases_;
  const EngineOptions& options_;
  Checkpoints& checkpoints_;
  const Ledger& ledger_;
  const RoundClock& round_;
  LaunchPace launches_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_PROCESSES_H_
