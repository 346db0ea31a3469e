// How leases, processes and jobs end, and what of it is a failure. Events:
// WorkerGone, WorkerAbandoned, AcceleratorLost. Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_ENDINGS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_ENDINGS_H_

#include <string>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/isolated_time.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/measurements.h"
#include "coordinator/engine/rounds/round_clock.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/workers/accusations.h"
#include "coordinator/engine/workers/assignments.h"
#include "coordinator/engine/workers/avoidance.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/accelerator_speeds.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

// Tells how the end of a rank's process is to be read, from what the process
// said and what it was asked. A process that has a session is done only by its
// WorkerFinished: the code 0 of a shell around it tells nothing.
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
  // The process of that rank is gone. May end the job, or start it again.
  void ProcessEnded(Time now, Job& job, int rank, const WorkerExited& exit,
                    event::ProcessEnd end = event::ProcessEnd::kLeft);
  // The job leaves its state for that one: it loses its accelerators, and its
  // processes are asked to end.
  void EndJob(Time now, Job& job, JobState state, Reason reason,
              PauseTier tier = PauseTier::kStop);
  // A worker stopped on its own (its lease ran out, the accelerator was not to
  // be had, its gang did not come together): no lease of this epoch again, for
  // any of the gang.
  void GiveUpEpoch(Time now, Job& job, ReleaseCause cause);
  // The worker holds its accelerator no more.
  void EndLease(Time now, Job& job, Worker& worker);
  // On the word of a job it is lost for that job first: its program may be at
  // fault, built without CUDA, say, or its owner. See accusations.h. One that
  // can't use those of another server either is held.
  void On(Time now, const event::AcceleratorLost& e);
  // It does not fit there, which is no failure of its own. Processes that are
  // parked there end: only who had the accelerator to itself, and was not told
  // that others fill it, does not get its type again.
  void OutOfMemory(Job& job, AcceleratorId where, JobId partner,
                   ReleaseCause cause, Time now);
  // The jobs whose processes wait for a checkpoint that nobody can send any
  // more: others may have their accelerators.
  void GiveUpFetches(Time now);

 private:
  // Processes of other jobs that are parked there are told to end. Whether
  // there are any.
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

// As far as anybody can tell: its agent is gone, or can't be asked. Perhaps
// over the launch of this worker.
WorkerExited EndedWithAgent(const std::string& server, const Worker& worker,
                            const WorkerKey& key);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_ENDINGS_H_
