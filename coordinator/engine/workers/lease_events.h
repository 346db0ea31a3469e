// Applies what workers said, as the journal has it: WorkerJoined, LeaseStarted,
// LeaseEnded, StepsReported. A function of the journal alone. Not thread-safe;
// stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_EVENTS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_EVENTS_H_

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/measurements.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/workers/accusations.h"
#include "coordinator/engine/workers/assignments.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "coordinator/engine/workers/endings.h"
#include "coordinator/engine/workers/hang_watch.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/jobs/cluster.h"
#include "core/units.h"

namespace gavel::engine {

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

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_LEASE_EVENTS_H_
