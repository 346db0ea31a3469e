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
#include "coordinator/engine/trial_book.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

// Workers whose loop stands still: no step, no boundary, while their lease
// thread continues to renew. Without this, one that nobody asks to pause would
// keep its accelerator for ever.
//
// Judged by what the worker itself reports, about once a second: that its
// counts have not changed. Silence is no proof; where nothing is heard the
// lease ends. Not thread-safe; the state is Worker's.

class HangWatch {
 public:
  // Borrowed, and outlive this.
  HangWatch(const Cluster& cluster, const ThroughputMatrix& throughputs,
            const EngineOptions& options)
      : cluster_(cluster), throughputs_(throughputs), options_(options) {}

  // Forgotten by a restart, like all that the worker tells again.
  void NoteSteps(Time now, Worker& worker, const Progress& told);
  // For how long its loop had stood still when it last told.
  static double StandsStill(const Worker& worker);
  // For how long it may; kNever: it has no lease, or no limit.
  double HangTimeout(const Job& job, const Worker& worker) const;
  // The rank that has stood still for longest, if for much of what is allowed.
  std::optional<Standstill> StandstillOf(const Job& job) const;

 private:
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
};

// How leases, processes and jobs end, and what of it is a failure. Events:
// WorkerGone, WorkerAbandoned, AcceleratorLost. Not thread-safe; stateless.

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

#endif  // GAVEL_COORDINATOR_ENGINE_ENDINGS_H_
