// The parts of the engine, each with the parts that it uses: a part knows those
// above it only. Each owns its state and tells its fields of a snapshot
// (State); engine_core.cc says which part takes which event.
#ifndef GAVEL_COORDINATOR_ENGINE_PARTS_H_
#define GAVEL_COORDINATOR_ENGINE_PARTS_H_

#include <utility>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/candidates.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/rounds/isolated_time.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/measurements.h"
#include "coordinator/engine/rounds/memory_plan.h"
#include "coordinator/engine/rounds/planner.h"
#include "coordinator/engine/rounds/problems.h"
#include "coordinator/engine/rounds/resizing.h"
#include "coordinator/engine/rounds/round_clock.h"
#include "coordinator/engine/rounds/round_rows.h"
#include "coordinator/engine/rounds/rounds.h"
#include "coordinator/engine/rounds/solver.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/engine/workers/accusations.h"
#include "coordinator/engine/workers/assignments.h"
#include "coordinator/engine/workers/avoidance.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "coordinator/engine/workers/endings.h"
#include "coordinator/engine/workers/explanations.h"
#include "coordinator/engine/workers/hang_watch.h"
#include "coordinator/engine/workers/lease_desk.h"
#include "coordinator/engine/workers/lease_events.h"
#include "coordinator/engine/workers/operators.h"
#include "coordinator/engine/workers/processes.h"
#include "coordinator/engine/workers/server_desk.h"
#include "coordinator/engine/workers/submissions.h"
#include "coordinator/engine/workers/sweeper.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/accelerator_speeds.h"
#include "coordinator/throughput/throughput_matrix.h"

namespace gavel::engine {

struct Parts {
  // The recorder is borrowed, and outlives this.
  Parts(EngineOptions made_with, Recorder& with)
      : terms(std::move(made_with)), recorder(with) {}
  Parts(const Parts&) = delete;  // they refer to each other
  Parts& operator=(const Parts&) = delete;

  // ---- state that many parts use
  Terms terms;
  const EngineOptions& options = terms.options();
  Recorder& recorder;
  Outbox outbox{options.journal};
  Agenda agenda;
  JobTable jobs;
  Changes changes;
  Cluster cluster;
  ThroughputMatrix throughputs;
  AcceleratorSpeeds speeds;
  AssignedAccelerators assigned{cluster, changes};
  LeaseBook leases{jobs, cluster};
  Agents agents;
  Avoidance avoidance{cluster};

  // ---- what is known, and what is done with it
  AllocationTable allocation{jobs, cluster, options};
  Checkpoints checkpoints{outbox, agenda, jobs, cluster, agents};
  Candidates candidates{jobs, checkpoints};
  Figures figures{jobs, cluster, throughputs, speeds, avoidance, options};
  Measurements measurements{agenda, jobs,    cluster, throughputs,
                            speeds, options, figures};
  HangWatch hang{cluster, throughputs, options};
  Ledger ledger{terms, jobs, cluster, allocation, candidates};
  IsolatedTime isolated{jobs, changes, cluster, throughputs, options, figures};
  TrialBook trials{terms,   jobs,       cluster,    throughputs,
                   options, allocation, candidates, figures};
  RoundRows rows{terms,      jobs,       cluster, throughputs, options,
                 allocation, candidates, figures, ledger,      trials};
  RoundClock round{terms, jobs, options};
  Processes processes{outbox, agenda,  jobs,        changes, cluster, assigned,
                      leases, options, checkpoints, ledger,  round};
  Assignments assignments{agenda,   jobs,       changes, cluster,
                          assigned, allocation, ledger,  processes};
  Accusations accusations{agenda, cluster, assigned, agents, jobs, avoidance};
  Endings endings{agenda,       jobs,        changes,   cluster,    throughputs,
                  speeds,       assigned,    leases,    options,    checkpoints,
                  measurements, ledger,      isolated,  trials,     round,
                  processes,    assignments, avoidance, accusations};
  LeaseDesk desk{terms,  outbox,  agenda,   jobs, cluster, throughputs, leases,
                 agents, options, recorder, hang, round,   processes};
  LeaseEvents lease_events{outbox,       agenda,      jobs,        changes,
                           cluster,      leases,      options,     checkpoints,
                           measurements, hang,        ledger,      trials,
                           processes,    assignments, accusations, endings};
  ServerDesk servers{terms,        outbox,      agenda,      jobs,
                     cluster,      throughputs, speeds,      assigned,
                     leases,       agents,      options,     recorder,
                     measurements, processes,   accusations, endings};
  Problems problems{terms,       jobs,     changes,    cluster,
                    throughputs, options,  allocation, figures,
                    ledger,      isolated, trials};
  Solver solver{outbox,     agenda, jobs,     changes, options, recorder,
                allocation, ledger, isolated, round,   problems};
  Planner planner{terms,  jobs,    changes,    cluster,     assigned,
                  agents, options, allocation, checkpoints, candidates,
                  trials, rows,    figures,    speeds,      avoidance};
  Resizing resizing{terms,      agenda,      jobs,    changes,
                    cluster,    throughputs, options, recorder,
                    candidates, figures,     solver,  planner};
  Rounds rounds{agenda,      jobs,     changes,    throughputs, assigned,
                options,     recorder, allocation, checkpoints, candidates,
                figures,     ledger,   trials,     round,       processes,
                assignments, planner,  resizing};
  MemoryPlan memory{terms,  agenda,  jobs,     cluster, assigned, leases,
                    agents, options, recorder, rows,    round,    processes};
  Submissions submissions{outbox,       agenda,      jobs,    changes,
                          cluster,      throughputs, options, recorder,
                          measurements, isolated,    ledger};
  Operators operators{terms,       outbox,      agenda,       jobs,
                      changes,     cluster,     throughputs,  assigned,
                      leases,      agents,      options,      recorder,
                      allocation,  checkpoints, measurements, processes,
                      assignments, accusations, endings,      isolated,
                      problems,    solver};
  Sweeper sweeper{outbox,  agenda,   jobs, cluster,   leases,   agents,
                  options, recorder, hang, processes, operators};
  Explanations explanations{
      terms,       jobs,    cluster, throughputs, leases, options,  allocation,
      checkpoints, figures, hang,    ledger,      rows,   avoidance};
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_PARTS_H_
