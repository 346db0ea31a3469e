// All state of the engine, and how an event is recorded. The functions of the
// subjects (leases.h, rounds.h, operators.h, ...) work on it; classes in it own
// an invariant. engine.cc says which function takes which event.
//
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/allocation.h"
#include "coordinator/engine/apps.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/leases.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_estimator.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State {
  explicit State(EngineOptions made_with) : terms(std::move(made_with)) {}
  State(const State&) = delete;  // its members refer to each other
  State& operator=(const State&) = delete;

  // The settings in force, the work that is still to be done, and the messages
  // that leave.
  Terms terms;
  const EngineOptions& options = terms.options();
  Outbox outbox{options.journal};
  Agenda agenda;
  // Jobs, accelerators, and which job has which.
  JobTable jobs;
  AppTable apps;
  Changes changes;
  Cluster cluster;
  Agents agents;
  AssignedAccelerators assigned{cluster, changes};
  LeaseBook leases{jobs, cluster};
  Checkpoints checkpoints{outbox, agenda, jobs, cluster, agents};
  LaunchPace launches;
  // Speeds, as measured, given or estimated.
  ThroughputMatrix throughputs;
  AcceleratorSpeeds speeds;
  std::optional<ReferenceRows> references;  // of options.throughputs
  // Failures of jobs and accelerators.
  Avoidance avoidance{cluster};
  Accusations accusations{agenda, cluster, assigned, agents, jobs, avoidance};
  FailureStreaks streaks;  // a restart forgets them
  // The policy's answer, and what jobs have had of it.
  AllocationTable allocation{jobs, cluster, options};
  Candidates candidates{jobs, checkpoints};
  Figures figures{jobs, cluster, throughputs, speeds, avoidance, options};
  Ledger ledger{terms, jobs, cluster, allocation, candidates};
  IsolatedTime isolated{jobs, changes, cluster, throughputs, options, figures};
  TrialBook trials{terms,   jobs,       cluster,    throughputs,
                   options, allocation, candidates, figures};
  IntrospectionBook introspection;
  Solving solving;
  Bidding bidding;
  // Rounds.
  RoundClock round{terms, jobs, options};
  std::vector<JobId> unsettled;  // as of the last plan, if not all are
  // The effects of operators' commands.
  Operated operated;
  // When jobs that are not yet to start are due, the elements of an array by
  // its id. Follows from the jobs; may name some that were released since.
  std::set<std::pair<Time, JobId>> ahead;
  // Which jobs wait for which others. Follows from the jobs.
  Dependencies dependencies;
  ArrayBook arrays;
};

// Journals a durable event and applies it. The event is applied before this
// returns, so state of jobs and workers that the caller has read before may be
// out of date afterwards.
void Record(State& s, Time now, Event event);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_H_
