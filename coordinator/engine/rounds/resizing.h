// Elastic jobs: what elastic.h decides, between the plan of a round and the
// processes. Job::scale_factor is what a job is planned with from then on, and
// what the policy counts with; its gang changes when it is assigned anew. Not
// thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_RESIZING_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_RESIZING_H_

#include <vector>

#include "coordinator/engine/elastic.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/candidates.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/rounds/planner.h"
#include "coordinator/engine/rounds/solver.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

class Resizing {
 public:
  // Borrowed, and outlive this.
  Resizing(const Terms& terms, Agenda& agenda, const JobTable& jobs,
           Changes& changes, const Cluster& cluster,
           const ThroughputMatrix& throughputs, const EngineOptions& options,
           Recorder& recorder, const Candidates& candidates,
           const Figures& figures, const Solver& solver, Planner& planner)
      : terms_(terms),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        recorder_(recorder),
        candidates_(candidates),
        figures_(figures),
        solver_(solver),
        planner_(planner) {}

  // The sizes for the round that begins at `at`, or of those who wait.
  void ResizeJobs(Time now, Time at, bool keep_running);
  void On(Time now, const event::JobsResized& e);

 private:
  std::vector<SizedJob> SizedJobs(Time now, const RoundAssignment& plan);
  bool IsLeftOut(Job& job, const std::vector<int>& free) const;
  void DropGrowth(const RoundAssignment& plan, Time at,
                  std::vector<Resize>& resizes);

  const Terms& terms_;
  Agenda& agenda_;
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  Recorder& recorder_;
  const Candidates& candidates_;
  const Figures& figures_;
  const Solver& solver_;
  Planner& planner_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_RESIZING_H_
