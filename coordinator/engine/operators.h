// What operators do to the cluster, and owners to their jobs: whether it can be
// done, and doing it. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_OPERATORS_H_
#define GAVEL_COORDINATOR_ENGINE_OPERATORS_H_

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/allocation.h"
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
#include "coordinator/engine/reason.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel {

// Whether what an operator or an owner wants can be done, and what of it a job
// waits for. Parts of the engine are only read; pure, stateless.

namespace engine {
class Agents;
class JobTable;
class LeaseBook;
}  // namespace engine

// Names are of their owners: two users may each have a "train".
std::string NameOf(const JobSpec& spec);
// Until its end; a held job keeps it.
bool HasName(const Job& job);

// Why it can't be done, with the remedy; empty: it can.
// `job`: the one of the event; null: there is none. `kept_out`: it is excluded
// from some type, or stranded, which a release undoes for an active job too.
std::string WhyNot(const event::JobCommanded& e, const Job* job, bool kept_out);
std::string WhyNot(const event::JobUpdated& e, const Job* job,
                   const Cluster& cluster);
std::string WhyNot(const event::ServerForgotten& e,
                   const engine::Agents& agents,
                   const engine::LeaseBook& leases,
                   const engine::JobTable& jobs, const Cluster& cluster,
                   double agent_timeout_s);
// Also finds out what was meant, and names it in full.
std::string WhyNot(event::AcceleratorsDrained& e, const Cluster& cluster);

// The accelerators that the event means: one, or all of its server. When a
// server is resumed, those that were drained by themselves are left out.
std::vector<AcceleratorId> AcceleratorsOf(const event::AcceleratorsDrained& e,
                                          const Cluster& cluster);

// Where the job could run but for what is drained, and why that is.
std::optional<reason::Drained> WhyDrained(const Job& job,
                                          const Cluster& cluster,
                                          const ThroughputMatrix& throughputs);

}  // namespace gavel

namespace gavel::engine {

// What operators do to the cluster while it runs, and owners to their jobs:
// each is one event, undone by another.
//
// Not thread-safe. Snapshot fields: the policy that was set, and drains.

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

#endif  // GAVEL_COORDINATOR_ENGINE_OPERATORS_H_
