// The rounds: resizing elastic jobs, planning the next round, beginning it, and
// giving out what becomes free in the middle. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_H_

#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/assignments.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/elastic.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/planner.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/round_clock.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

// Elastic jobs: what elastic.h decides, between the plan of a round and the
// processes. Job::scale_factor is what a job is planned with from then on, and
// what the policy counts with; its gang changes when it is assigned anew. Not
// thread-safe; stateless.

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

// Rounds: planned ahead of their start, announced, carried out, and filled in
// between. Not thread-safe; stateless, the clock is round_clock.h's.

class Rounds {
 public:
  // Borrowed, and outlive this.
  Rounds(Agenda& agenda, const JobTable& jobs, Changes& changes,
         const ThroughputMatrix& throughputs,
         const AssignedAccelerators& assigned, const EngineOptions& options,
         Recorder& recorder, const AllocationTable& allocation,
         Checkpoints& checkpoints, const Candidates& candidates,
         const Figures& figures, Ledger& ledger, TrialBook& trials,
         RoundClock& round, Processes& processes, Assignments& assignments,
         Planner& planner, Resizing& resizing)
      : agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        throughputs_(throughputs),
        assigned_(assigned),
        options_(options),
        recorder_(recorder),
        allocation_(allocation),
        checkpoints_(checkpoints),
        candidates_(candidates),
        figures_(figures),
        ledger_(ledger),
        trials_(trials),
        round_(round),
        processes_(processes),
        assignments_(assignments),
        planner_(planner),
        resizing_(resizing) {}

  // Decides the next round ahead of its start: who continues may have the lease
  // extended without a gap, who is new has its process started in time.
  void PlanRoundAhead(Time now);
  void On(Time now, const event::RoundPlanned& e);
  void On(Time now, const event::RoundStarted& e);
  // No accelerator is left idle while a job waits: in the middle of a round the
  // ones that are free go to whoever is next; nobody is interrupted.
  void Fill(Time now);
  void On(Time now, const event::UnitsAssigned& e);

  // Plans the next round, when that is due.
  void Look(Time now);

 private:
  void Complete(RoundPlan& plan) const;
  std::vector<bool> FillableTypes();

  Agenda& agenda_;
  const JobTable& jobs_;
  Changes& changes_;
  const ThroughputMatrix& throughputs_;
  const AssignedAccelerators& assigned_;
  const EngineOptions& options_;
  Recorder& recorder_;
  const AllocationTable& allocation_;
  Checkpoints& checkpoints_;
  const Candidates& candidates_;
  const Figures& figures_;
  Ledger& ledger_;
  TrialBook& trials_;
  RoundClock& round_;
  Processes& processes_;
  Assignments& assignments_;
  Planner& planner_;
  Resizing& resizing_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_H_
