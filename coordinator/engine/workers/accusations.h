// Accelerators of which jobs say that they can't use them. A job does not get
// such a one again. For all others it is lost when a second job says the same,
// another user's where several have jobs, and none ran there in between: the
// first one's program may be at fault, or its owner.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_

#include <map>
#include <string>
#include <tuple>

#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/workers/avoidance.h"
#include "coordinator/jobs/cluster.h"
#include "core/ids.h"

namespace gavel::engine {

class Accusations {
 public:
  // Borrowed, and outlive this.
  Accusations(Agenda& agenda, Cluster& cluster, AssignedAccelerators& assigned,
              const Agents& agents, const JobTable& jobs, Avoidance& avoidance)
      : agenda_(agenda),
        cluster_(cluster),
        assigned_(assigned),
        agents_(agents),
        jobs_(jobs),
        avoidance_(avoidance) {}

  // True: it is lost for all.
  bool Accuse(AcceleratorId where, const Job& accuser);
  // The job ran there.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // What is lost on the word of that job is in use again.
  void WithdrawAccusations(JobId job);
  // By a new agent, which says anew what is there.
  void ForgetLost(const std::string& server);
  // It is gone.
  void Forget(AcceleratorId accelerator);
  // Who said first that it can't use it; invalid: nobody.
  JobId AccuserOf(AcceleratorId lost) const;

  // It may have again what it could not use, or failed on.
  void Forgive(JobId job);
  bool IsKeptOut(JobId job) const { return avoidance_.IsKeptOut(job); }

  static auto State(auto& part) {
    return std::tie(part.accused_, part.seconded_);
  }

 private:
  Agenda& agenda_;
  Cluster& cluster_;
  AssignedAccelerators& assigned_;
  const Agents& agents_;
  const JobTable& jobs_;
  Avoidance& avoidance_;
  std::map<AcceleratorId, JobId> accused_;   // by this job first
  std::map<AcceleratorId, JobId> seconded_;  // lost, as this one said the same
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_
