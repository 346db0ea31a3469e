// Deadlines: agents, workers and leases that are overdue. Each look says when
// the next one is due (agenda.h). Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
#define GAVEL_COORDINATOR_ENGINE_SWEEPER_H_

#include "coordinator/engine/agents.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class Sweeper {
 public:
  // Borrowed, and outlive this.
  Sweeper(Outbox& outbox, Agenda& agenda, const JobTable& jobs,
          const Cluster& cluster, const LeaseBook& leases, const Agents& agents,
          const EngineOptions& options, Recorder& recorder,
          const HangWatch& hang, Processes& processes, Operators& operators)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        cluster_(cluster),
        leases_(leases),
        agents_(agents),
        options_(options),
        recorder_(recorder),
        hang_(hang),
        processes_(processes),
        operators_(operators) {}

  // Looks at all deadlines.
  void Sweep(Time now);

 private:
  void SweepHung(Time now, const Job& job, int rank, Worker& worker);
  void SweepAgents(Time now);
  void SweepQuarantine(Time now);
  void SweepStrangers(Time now);
  void SweepWorker(Time now, Job& job, int rank);
  void SweepOpaque(Time now, Job& job, int rank, Worker& worker);
  bool SweepUnswept(Time now, Worker& worker, const WorkerKey& key);
  void SweepGang(Time now, const Job& job, Worker& worker);
  void RepeatLaunch(Time now, Job& job, int rank);
  void SweepLease(Time now, const Job& job, int rank, Worker& worker);
  void Stop(Time now, Worker& worker, const WorkerKey& key, double grace_s);

  Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const LeaseBook& leases_;
  const Agents& agents_;
  const EngineOptions& options_;
  Recorder& recorder_;
  const HangWatch& hang_;
  Processes& processes_;
  Operators& operators_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SWEEPER_H_
