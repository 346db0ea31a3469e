// Accelerators that are lost on the word of one job: it says that it can't use
// them, and nobody else has. Its word holds until it ends, or turns out to be
// wrong.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/jobs/cluster.h"
#include "core/ids.h"

namespace gavel::engine {

class Accusations {
 public:
  // Borrowed, and outlive this.
  Accusations(Agenda& agenda, Cluster& cluster, AssignedAccelerators& assigned,
              const Agents& agents)
      : agenda_(agenda),
        cluster_(cluster),
        assigned_(assigned),
        agents_(agents) {}

  // It makes steps on such a type: its program was not what failed.
  void BelieveAccuser(JobId job, std::string_view type);
  // The job has ended: what it could not use is in use again.
  void WithdrawAccusations(JobId job);
  // By a new agent, which says anew what is there.
  void ForgetLost(const std::string& server);

  bool any() const { return !accused_.empty(); }
  // The accelerator is lost on the word of that job.
  void Accuse(AcceleratorId lost, JobId accuser) { accused_[lost] = accuser; }
  // It is gone.
  void Forget(AcceleratorId accelerator) { accused_.erase(accelerator); }
  // Those that are lost on the word of that job.
  std::vector<AcceleratorId> AccusedBy(JobId job) const;

  static auto State(auto& part) { return std::tie(part.accused_); }

 private:
  Agenda& agenda_;
  Cluster& cluster_;
  AssignedAccelerators& assigned_;
  const Agents& agents_;
  std::map<AcceleratorId, JobId> accused_;  // lost, on the word of this job
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_ACCUSATIONS_H_
