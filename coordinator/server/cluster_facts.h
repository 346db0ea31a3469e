// Lines of the coordinator's log about servers, workers and jobs: one line for
// each fact, from the same durable events that make the history
// (history_projector.h). The event loop writes them; a replay of the journal
// does not write them again.
//
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_CLUSTER_FACTS_H_
#define GAVEL_COORDINATOR_SERVER_CLUSTER_FACTS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "core/messages.h"
#include "core/units.h"
#include "spdlog/common.h"

namespace gavel {

struct Fact {
  spdlog::level::level_enum level = spdlog::level::info;
  std::string text;
};

class ClusterFacts {
 public:
  // The facts of a durable event, which `engine` has already taken.
  std::vector<Fact> Observe(const Event& event, const Engine& engine);

  // A launch that its agent reports, however often.
  std::optional<Fact> Of(const WorkerLaunched& launched, const Engine& engine);
  // The fact of a message to an agent: the reason why a worker is ended that
  // did not end itself, told once, or the refusal of an agent.
  std::optional<Fact> Of(Time now, const StopWorker& stop,
                         const Engine& engine);
  static Fact Of(const AgentRejected& rejected);

 private:
  struct Observation;  // of one event
  void Forget(const WorkerKey& worker);

  std::map<JobId, JobState> jobs_;  // active or held
  std::set<AcceleratorId> lost_;    // told of
  std::set<WorkerKey> launched_;    // that their agents told of
  std::set<WorkerKey> starting_;    // of those, that have not said hello
  std::set<WorkerKey> stopping_;    // told of
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_CLUSTER_FACTS_H_
