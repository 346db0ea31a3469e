// Rounds: resizing elastic jobs, planning the next round, beginning it, and
// giving out accelerators that become free in the middle. Not thread-safe.
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
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/units.h"

namespace gavel::engine {

// Resizes elastic jobs: hands the plan of a round to elastic.h, and records the
// sizes that it chooses. From then on plans and the policy use the new size,
// Job::scale_factor; the gang itself changes when the job is assigned anew. Not
// thread-safe; stateless.

class Resizing {
 public:
  // The arguments are borrowed, and must outlive this object.
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

  // Chooses the sizes for the round that begins at `at`. With `keep_running`,
  // only waiting jobs get a new size, in the middle of a round.
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

// Plans rounds ahead of their start, announces them, carries them out, and
// fills free accelerators in between. Not thread-safe; stateless, as RoundClock
// keeps the time.

class Rounds {
 public:
  // The arguments are borrowed, and must outlive this object.
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

  // Decides the next round ahead of its start: a job that continues can have
  // its leases extended without a gap, and the processes of a new one are
  // started in time.
  void PlanRoundAhead(Time now);
  void On(Time now, const event::RoundPlanned& e);
  void On(Time now, const event::RoundStarted& e);
  // Gives free accelerators to the waiting jobs that are next in line, in the
  // middle of a round, so that none is idle while a job waits. No running job
  // is interrupted.
  void Fill(Time now);
  void On(Time now, const event::UnitsAssigned& e);

  // Plans the next round if that is due.
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
