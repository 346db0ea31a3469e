// Servers that join, fall silent and leave. Admits hellos and heartbeats of
// agents, applies ServerJoined and ServerLost, and compares the processes that
// an agent lists with those that the engine knows. Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SERVERS_H_
#define GAVEL_COORDINATOR_ENGINE_SERVERS_H_

#include "coordinator/engine/agents.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class ServerDesk {
 public:
  // Borrowed, and outlive this.
  ServerDesk(const Terms& terms, Outbox& outbox, Agenda& agenda,
             const JobTable& jobs, Cluster& cluster,
             ThroughputMatrix& throughputs, AcceleratorSpeeds& speeds,
             AssignedAccelerators& assigned, LeaseBook& leases, Agents& agents,
             const EngineOptions& options, Recorder& recorder,
             Measurements& measurements, Processes& processes,
             Accusations& accusations, Endings& endings)
      : terms_(terms),
        outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        speeds_(speeds),
        assigned_(assigned),
        leases_(leases),
        agents_(agents),
        options_(options),
        recorder_(recorder),
        measurements_(measurements),
        processes_(processes),
        accusations_(accusations),
        endings_(endings) {}

  void Admit(Time now, const event::ServerJoined& e);
  void Admit(Time now, const event::AgentHeard& e);
  void On(Time now, const event::ServerJoined& e);
  void On(Time now, const event::ServerLost& e);
  // Records the event once, although the agent repeats its message.
  void Admit(Time now, const event::AgentLeaves& e);

 private:
  static std::string WhyUnfit(const AcceleratorHealth& told,
                              const Accelerator& accelerator);
  void NoteHealth(Time now, const std::string& server,
                  const AcceleratorHealth& told);
  void Reconcile(Time now, const AgentHello& hello, const Agent& before);

  const Terms& terms_;
  Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  Cluster& cluster_;
  ThroughputMatrix& throughputs_;
  AcceleratorSpeeds& speeds_;
  AssignedAccelerators& assigned_;
  LeaseBook& leases_;
  Agents& agents_;
  const EngineOptions& options_;
  Recorder& recorder_;
  Measurements& measurements_;
  Processes& processes_;
  Accusations& accusations_;
  Endings& endings_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SERVERS_H_
