// The leases of workers. LeaseDesk answers the workers' messages, and
// LeaseEvents applies the journaled events that follow from them. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_LEASES_H_
#define GAVEL_COORDINATOR_ENGINE_LEASES_H_

#include <cstdint>
#include <string>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/assignments.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
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

// Applies the journaled events of workers: WorkerJoined, LeaseStarted,
// LeaseEnded and StepsReported. The result depends on the journal alone. Not
// thread-safe; stateless.

class LeaseEvents {
 public:
  // Borrowed, and outlive this.
  LeaseEvents(const Outbox& outbox, Agenda& agenda, const JobTable& jobs,
              Changes& changes, const Cluster& cluster, LeaseBook& leases,
              const EngineOptions& options, Checkpoints& checkpoints,
              Measurements& measurements, HangWatch& hang, Ledger& ledger,
              TrialBook& trials, Processes& processes, Assignments& assignments,
              Accusations& accusations, Endings& endings)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        leases_(leases),
        options_(options),
        checkpoints_(checkpoints),
        measurements_(measurements),
        hang_(hang),
        ledger_(ledger),
        trials_(trials),
        processes_(processes),
        assignments_(assignments),
        accusations_(accusations),
        endings_(endings) {}

  void On(Time now, const event::WorkerJoined& e);
  void On(Time now, const event::LeaseStarted& e);
  void On(Time now, const event::LeaseEnded& e);
  void On(Time now, const event::StepsReported& e);

 private:
  const Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  LeaseBook& leases_;
  const EngineOptions& options_;
  Checkpoints& checkpoints_;
  Measurements& measurements_;
  HangWatch& hang_;
  Ledger& ledger_;
  TrialBook& trials_;
  Processes& processes_;
  Assignments& assignments_;
  Accusations& accusations_;
  Endings& endings_;
};

// Answers the hellos, lease requests, reports and releases of workers. Leases
// are granted only here. LeaseEvents and Endings apply the events that it
// journals. Not thread-safe; a restart forgets its own state (FailureStreaks).

class LeaseDesk {
 public:
  // Borrowed, and outlive this.
  LeaseDesk(const Terms& terms, Outbox& outbox, Agenda& agenda,
            const JobTable& jobs, const Cluster& cluster,
            const ThroughputMatrix& throughputs, const LeaseBook& leases,
            Agents& agents, const EngineOptions& options, Recorder& recorder,
            HangWatch& hang, const RoundClock& round, Processes& processes)
      : terms_(terms),
        outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        leases_(leases),
        agents_(agents),
        options_(options),
        recorder_(recorder),
        hang_(hang),
        round_(round),
        processes_(processes) {}

  void Admit(Time now, const event::WorkerJoined& e);
  void Admit(Time now, event::LeaseEnded e);
  void Admit(Time now, event::StepsReported e);
  void Admit(Time now, const event::WorkerGone& e);
  void Admit(Time now, const event::WorkerBusy& e);
  void Admit(Time now, const event::WorkerSaidFinished& e);
  void Admit(Time now, const event::LeaseRequested& e);

 private:
  void Reject(const WorkerKey& worker, std::string reason);
  void AnswerRequest(Time now, Job& job, Worker& worker,
                     const LeaseRequest& request);
  // The shortest lease, in seconds, that is granted to a job which has its
  // accelerators.
  double LeastLease(const Job& job) const;
  void Deny(const WorkerKey& key, const Job& job, uint64_t nonce,
            double retry_after_s);
  void Grant(Time now, Job& job, int rank, uint64_t nonce, bool renewal);
  void AdmitFailedDevice(Time now, JobId job, AcceleratorId where);
  void NoteFailure(Time now, JobId job, AcceleratorId where);
  void AddPart(const Job& job, int rank, LeaseGrant& grant) const;

  const Terms& terms_;
  Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const LeaseBook& leases_;
  Agents& agents_;
  const EngineOptions& options_;
  Recorder& recorder_;
  HangWatch& hang_;
  const RoundClock& round_;
  Processes& processes_;
  FailureStreaks streaks_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_LEASES_H_
