// Rounds: planned ahead of their start, announced, carried out, and filled in
// between. Not thread-safe; stateless, the clock is round_clock.h's.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUNDS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUNDS_H_

#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/candidates.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/planner.h"
#include "coordinator/engine/rounds/resizing.h"
#include "coordinator/engine/rounds/round_clock.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/engine/workers/assignments.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

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

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUNDS_H_
