// Checkpoints on servers that do not share a directory: which servers have the
// latest one of each job, from which server it is fetched, and which workers
// wait for it. Clusters with a shared directory need none of this.
//
// Not thread-safe. No snapshot fields, because agents report fetches again.
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

  // From here on, the job's process on `server` writes the latest generation.
  void NoteWriter(Job& job, const std::string& server, uint64_t epoch);
  // A process has restored on `server`, so that the latest generation is there
  // now, too.
  void NoteRestored(Job& job, const std::string& server);
  // No server that has its latest checkpoint can be reached.
  bool IsStranded(const Job& job) const;
  // The checkpoint that a process of `job` on `server` needs before it starts;
  // empty if it needs none.
  CheckpointSource SourceFor(const Job& job, const std::string& server) const;
  // Allows `reader` to read from the source. It is sent whenever the reader is
  // asked to read, because either message may be lost.
  void OfferCheckpoint(const Job& job, const CheckpointSource& source,
                       const std::string& reader);
  // The job continues on another server in the next round. Its last generation
  // is sent there while it still trains; after the pause only the changes are
  // sent.
  void Prefetch(const Job& job);
  // The ranks of a gang write into one directory.
  bool ShareCheckpoints(const std::vector<AcceleratorId>& places) const;
  // The job's owner or an operator gives up the checkpoints that can't be
  // reached.
  void ForgoCheckpoints(Job& job);
  void Admit(Time now, const event::CheckpointComing& e);
  // For people.
  Reason WhyMoving(const Job& job, int rank) const;
  Reason WhyStranded(const Job& job) const;
  // The job is a gang that could run if its servers shared a directory for its
  // checkpoints.
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
