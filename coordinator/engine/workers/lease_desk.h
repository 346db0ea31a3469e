// Answers workers: their hellos, requests for leases, reports and releases. A
// lease is granted here and nowhere else. What it lets in is journaled and then
// applied by lease_events.h. Not thread-safe; what it has of its own is
// forgotten by a restart.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_DESK_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_DESK_H_

#include <cstdint>
#include <string>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/round_clock.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/engine/workers/failure_streaks.h"
#include "coordinator/engine/workers/hang_watch.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

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

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_DESK_H_
