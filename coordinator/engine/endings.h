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

// Finds workers whose loop stands still: they make no step and pass no
// boundary, although their lease thread continues to renew the lease. Otherwise
// such a worker would keep its accelerator for ever if nobody asked it to
// pause.
//
// The verdict rests on the worker's own reports, about one a second, that its
// counts have not changed. Silence proves nothing; the lease of a silent worker
// ends by itself. Not thread-safe; the state is in Worker.

class HangWatch {
 public:
  // Borrowed, and outlive this.
  HangWatch(const Cluster& cluster, const ThroughputMatrix& throughputs,
            const EngineOptions& options)
      : cluster_(cluster), throughputs_(throughputs), options_(options) {}

  // Notes a report of the worker. A restart forgets it, and the worker reports
  // again.
  void NoteSteps(Time now, Worker& worker, const Progress& told);
  // For how many seconds the worker's loop had stood still at its last report.
  static double StandsStill(const Worker& worker);
  // For how many seconds the loop may stand still; kNever if the worker has no
  // lease or there is no limit.
  double HangTimeout(const Job& job, const Worker& worker) const;
  // The rank that has stood still for longest, if that is at least a quarter of
  // the time allowed (kToldFraction).
  std::optional<Standstill> StandstillOf(const Job& job) const;

 private:
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
};

// How leases, processes and jobs end, and which ends count as failures. Applies
// the events WorkerGone, WorkerAbandoned and AcceleratorLost. Not thread-safe;
// stateless.

// Classifies the end of a rank's process by its exit, its messages and the
// requests that it had received. A process that has a session is done only if
// it sent WorkerFinished: exit code 0 may be that of a shell around it.
event::ProcessEnd ReadEnd(Time now, const Job& job, int rank,
                          const WorkerExited& exit);

class Endings {
 public:
  // Borrowed, and outlive this.
  Endings(Agenda& agenda, JobTable& jobs, Changes& changes, Cluster& cluster,
          ThroughputMatrix& throughputs, AcceleratorSpeeds& speeds,
          AssignedAccelerators& assigned, LeaseBook& leases,
          const EngineOptions& options, Checkpoints& checkpoints,
          Measurements& measurements, Ledger& ledger, IsolatedTime& isolated,
          TrialBook& trials, RoundClock& round, Processes& processes,
          Assignments& assignments, Avoidance& avoidance,
          Accusations& accusations)
      : agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        speeds_(speeds),
        assigned_(assigned),
        leases_(leases),
        options_(options),
        checkpoints_(checkpoints),
        measurements_(measurements),
        ledger_(ledger),
        isolated_(isolated),
        trials_(trials),
        round_(round),
        processes_(processes),
        assignments_(assignments),
        avoidance_(avoidance),
        accusations_(accusations) {}

  void On(Time now, const event::WorkerGone& e);
  void On(Time now, const event::WorkerAbandoned& e);
  // Applies the end of the rank's process. May end the job, or start the
  // process again.
  void ProcessEnded(Time now, Job& job, int rank, const WorkerExited& exit,
                    event::ProcessEnd end = event::ProcessEnd::kLeft);
  // Moves the job to `state`. The job loses its accelerators, and its processes
  // are asked to end.
  void EndJob(Time now, Job& job, JobState state, Reason reason,
              PauseTier tier = PauseTier::kStop);
  // A worker stopped of its own accord: its lease ran out, it could not get the
  // accelerator, or its gang did not come together. No rank of the gang gets a
  // lease of this epoch again.
  void GiveUpEpoch(Time now, Job& job, ReleaseCause cause);
  // Ends the worker's lease: its accelerator is free.
  void EndLease(Time now, Job& job, Worker& worker);
  // Without `e.job`, the accelerator is lost for all jobs. With it, that job
  // reports that it can't use the accelerator, and is kept out of it. Other
  // jobs lose it only if Accusations (failures.h) confirms the report, since
  // the fault may lie with the job, say with a program that was built without
  // CUDA. A job that can't use the accelerators of a second server either, or a
  // second accelerator where no other server has the type, is held.
  void On(Time now, const event::AcceleratorLost& e);
  // The job did not fit into the memory of `where`. This is not counted as a
  // failure. Processes of other jobs that are parked there are evicted. If the
  // job ran beside `partner`, the pair is excluded from the type. If it had the
  // accelerator to itself, it is excluded from the type, or, where `cause` says
  // that others filled the memory, avoids the accelerator for some time.
  void OutOfMemory(Job& job, AcceleratorId where, JobId partner,
                   ReleaseCause cause, Time now);
  // Takes the accelerators from jobs whose processes wait for a checkpoint that
  // no reachable server can send, and ends those processes, so that other jobs
  // can have the accelerators.
  void GiveUpFetches(Time now);

 private:
  // Evicts the processes of all jobs except `but` that are parked there.
  // Returns whether there were any.
  bool EvictParkedOn(Time now, AcceleratorId where, JobId but);
  bool GiveUpSize(Time now, Job& job);
  void LoseForAll(Time now, AcceleratorId lost);
  void KeepOut(Time now, Job& job, AcceleratorId lost);
  bool CanUseNone(JobId accuser, AcceleratorId last) const;
  bool GiveUpLaunching(Time now, Job& job, const WorkerExited& exit);
  void CountFailure(Time now, Job& job, const FailedEnd& end);
  void AvoidPlace(Time now, JobId job, AcceleratorId where, bool leased);
  void TryElsewhere(Time now, Job& job);
  bool GiveUpFetching(Time now, Job& job, const std::string& server);

  Agenda& agenda_;
  JobTable& jobs_;
  Changes& changes_;
  Cluster& cluster_;
  ThroughputMatrix& throughputs_;
  AcceleratorSpeeds& speeds_;
  AssignedAccelerators& assigned_;
  LeaseBook& leases_;
  const EngineOptions& options_;
  Checkpoints& checkpoints_;
  Measurements& measurements_;
  Ledger& ledger_;
  IsolatedTime& isolated_;
  TrialBook& trials_;
  RoundClock& round_;
  Processes& processes_;
  Assignments& assignments_;
  Avoidance& avoidance_;
  Accusations& accusations_;
};

// The exit to assume for a process whose agent is gone or can't be asked. It is
// no failure of the job. `launch_hung` is set if the process was still being
// launched: the launch may be what took the agent down.
WorkerExited EndedWithAgent(const std::string& server, const Worker& worker,
                            const WorkerKey& key);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ENDINGS_H_
