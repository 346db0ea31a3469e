// What operators do to the cluster while it runs, and owners to their jobs:
// each is one event, undone by another.
//
// Not thread-safe. Snapshot fields: the policy that was set, and drains.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_OPERATORS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_OPERATORS_H_

#include <tuple>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/operator_events.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/isolated_time.h"
#include "coordinator/engine/rounds/measurements.h"
#include "coordinator/engine/rounds/problems.h"
#include "coordinator/engine/rounds/solver.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/engine/workers/accusations.h"
#include "coordinator/engine/workers/assignments.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "coordinator/engine/workers/endings.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

class Operators {
 public:
  // Borrowed, and outlive this.
  Operators(Terms& terms, Outbox& outbox, Agenda& agenda, JobTable& jobs,
            Changes& changes, Cluster& cluster, ThroughputMatrix& throughputs,
            AssignedAccelerators& assigned, const LeaseBook& leases,
            Agents& agents, const EngineOptions& options, Recorder& recorder,
            AllocationTable& allocation, Checkpoints& checkpoints,
            Measurements& measurements, Processes& processes,
            Assignments& assignments, Accusations& accusations,
            Endings& endings, IsolatedTime& isolated, Problems& problems,
            Solver& solver)
      : terms_(terms),
        outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        assigned_(assigned),
        leases_(leases),
        agents_(agents),
        options_(options),
        recorder_(recorder),
        allocation_(allocation),
        checkpoints_(checkpoints),
        measurements_(measurements),
        processes_(processes),
        assignments_(assignments),
        accusations_(accusations),
        endings_(endings),
        isolated_(isolated),
        problems_(problems),
        solver_(solver) {}

  void On(Time now, const event::PricesChanged& e);
  void Admit(Time now, const event::JobCommanded& e);
  void Admit(Time now, const event::JobUpdated& e);
  void Admit(Time now, const event::ServerForgotten& e);
  void Admit(Time now, event::AcceleratorsDrained e);
  void On(Time now, const event::JobCommanded& e);
  void On(Time now, const event::JobUpdated& e);
  void On(Time now, const event::AcceleratorsDrained& e);
  // Whoever is still on drained accelerators has to leave, when that is due.
  void SweepDrains(Time now);
  void On(Time now, const event::ServerForgotten& e);
  void On(Time now, const event::PolicyChanged& e);
  // One that was set stays set where the coordinator says that it decides.
  void TakePolicyOf(const event::CoordinatorStarted& e);

  const Operated& operated() const { return operated_; }

  static auto State(auto& part) {
    return std::tie(part.operated_.policy, part.operated_.drains);
  }

 private:
  void Release(Time now, Job& job);
  void Leave(Time now, const event::AcceleratorsDrained& e);

  Terms& terms_;
  Outbox& outbox_;
  Agenda& agenda_;
  JobTable& jobs_;
  Changes& changes_;
  Cluster& cluster_;
  ThroughputMatrix& throughputs_;
  AssignedAccelerators& assigned_;
  const LeaseBook& leases_;
  Agents& agents_;
  const EngineOptions& options_;
  Recorder& recorder_;
  AllocationTable& allocation_;
  Checkpoints& checkpoints_;
  Measurements& measurements_;
  Processes& processes_;
  Assignments& assignments_;
  Accusations& accusations_;
  Endings& endings_;
  IsolatedTime& isolated_;
  Problems& problems_;
  Solver& solver_;
  Operated operated_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_OPERATORS_H_
