// Checkpoints on servers that share no directory: where each job's latest one
// lies, from where it is fetched, and what waits for it. Nothing here concerns
// clusters whose servers share one.
//
// Not thread-safe. No snapshot fields: fetches are told again.
#ifndef GAVEL_COORDINATOR_ENGINE_CHECKPOINTS_H_
#define GAVEL_COORDINATOR_ENGINE_CHECKPOINTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class Checkpoints {
 public:
  // Borrowed, and outlive this.
  Checkpoints(Outbox& outbox, Agenda& agenda, const JobTable& jobs,
              const Cluster& cluster, const Agents& agents)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        cluster_(cluster),
        agents_(agents) {}

  // Whoever runs on `server` writes the latest generation from here on.
  void NoteWriter(Job& job, const std::string& server, uint64_t epoch);
  // A process has restored on `server`: what is the latest elsewhere is there
  // now, too.
  void NoteRestored(Job& job, const std::string& server);
  // No server that has its latest checkpoint can be reached.
  bool IsStranded(const Job& job) const;
  // What a process of `job` on `server` needs before it starts; empty: nothing.
  CheckpointSource SourceFor(const Job& job, const std::string& server) const;
  // Tells the source that `reader` may read; every time that the reader is told
  // to, for either may be lost.
  void OfferCheckpoint(const Job& job, const CheckpointSource& source,
                       const std::string& reader);
  // A job is to go on elsewhere in the next round: its last generation goes
  // ahead while it still trains, and after the pause only what has changed
  // since.
  void Prefetch(const Job& job);
  // The ranks of a gang write into one directory.
  bool ShareCheckpoints(const std::vector<AcceleratorId>& places) const;
  // The word of the job's user, or of an operator: the checkpoints that can't
  // be reached are forgone.
  void ForgoCheckpoints(Job& job);
  void Admit(Time now, const event::CheckpointComing& e);
  // For people.
  Reason WhyMoving(const Job& job, int rank) const;
  Reason WhyStranded(const Job& job) const;
  // A gang that could run but for its checkpoints.
  bool IsTooWideForOneServer(const Job& job) const;

  // The process has started, or is gone.
  void EndFetch(const WorkerKey& worker) { fetching_.erase(worker); }

 private:
  std::vector<std::string> CheckpointServers(const Job& job) const;

  Outbox& outbox_;
  Agenda& agenda_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const Agents& agents_;
  // Forgotten by a restart.
  std::map<WorkerKey, FetchProgress> fetching_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_CHECKPOINTS_H_
