// What an engine is made with. Whoever drives one fills it in; a value.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "coordinator/mechanism/mechanism.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/throughput_table.h"
#include "core/units.h"

namespace gavel {

// What shapes decisions beside the lengths of rounds and leases. It comes from
// flags and files, and is journaled with each term (event::Settings), so that a
// replay decides as was decided. A value.
struct DecisionSettings {
  // A new allocation is made at most this often. 0: whenever jobs or
  // accelerators come or go.
  double reset_interval_s = 0;
  // Pairs of jobs are offered to the policy (Policy::packs()), those whose
  // throughputs together were measured, or are in `throughputs`.
  bool packing = false;
  // While jobs wait, pairs whose throughputs together nobody knows run for a
  // round on trial: on at most half as many accelerators as single jobs
  // (profiling_percentage), each job in at most four pairs.
  bool pair_trials = false;
  // The policy is asked for consolidated and unconsolidated shares, where a
  // job's throughputs name "TYPE_unconsolidated" too.
  bool placement_sensitive = false;
  // How far a pause goes, by how long the job is expected to be away (see
  // memory_plan.h): it stays on the accelerator up to the first, where
  // the memory budgets allow; it is evicted beyond the second.
  double keep_absence_s_max = 0;
  double park_absence_s_max = kNever;
  // A round is planned this long before it begins, so that leases are extended
  // and processes launched in time. At most a quarter of a round.
  double plan_lead_s = 5;
  // An elastic job's number of workers changes at most once in so many rounds,
  // unless somebody waits; and a change pays off within as many.
  int resize_rounds = 3;               // >= 1
  std::vector<PolicyEntity> entities;  // JobSpec::entity names one
  // By job type (JobSpec::app): fills in what a job's own throughputs leave
  // open. May be null.
  std::shared_ptr<const ThroughputTable> throughputs;
  // A job whose type the table lacks gets the row of the one that it is most
  // like, out of so many of each scale factor (ThroughputEstimator). 0: none.
  int reference_models = 0;
  // Jobs run for a round on trial on types for which nobody knows their
  // throughputs: on at most this part of a type's accelerators at once, but on
  // one at least; 0: never. [0, 100]
  double profiling_percentage = 50;
  // Nor is a new allocation made sooner after the last one than this for each
  // job that is live: a solve and its row of the journal grow with the jobs,
  // and a burst of submissions shares them. 0: in a simulation.
  double solve_gap_s_per_job = 0;
  // Problems tell what jobs have done and received (Policy::reads_progress()).
  bool progress = true;
  // Fairness is between users first, and jobs second (user_shares.h); of jobs
  // that have owners.
  bool user_shares = false;
};

// The settings of decisions, and what else the engine goes by.
struct EngineOptions : DecisionSettings {
  // Seconds since 1970 at the engine's time 0, as the CoordinatorStarted of the
  // present term has it. For people: it decides nothing.
  double wall_offset_s = 0;
  double round_duration_s = 360;  // > 0
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  // At a new allocation, time received goes on counting, scaled down to at most
  // this many rounds. 0: it starts again, as in the paper.
  double memory_rounds = 8;
  size_t ended_jobs_kept = 10'000;  // for `gavel queue`
  double lease_duration_s = 60;     // > 0; at most a round's rest is granted
  // Clocks of two machines may differ in speed by this much.
  double drift = 0.02;
  // A worker asked to pause that has not released by then is ended by its
  // agent: SIGTERM, and SIGKILL `stop_grace_s` later.
  double pause_grace_s = 60;
  double stop_grace_s = 10;
  // An agent not heard of for this long is unreachable.
  double agent_timeout_s = 15;
  double heartbeat_interval_s = 2;
  // A server that was unreachable for so long is forgotten.
  double forget_after_s = kNever;
  // A process that has not said hello by then is ended and counted as failed.
  double launch_timeout_s = 120;
  // So many processes are started at most, where many are to: all of a round's
  // at once load the network, the file servers and this machine, which other
  // jobs' leases wait for. 0: without limit.
  double launches_per_s = 0;
  // So is rank 0 of a gang that has its lease and opens no store for the
  // others.
  double gang_timeout_s = 60;
  // Events are journaled, and what follows from them waits for the disk. False:
  // a simulation that keeps no journal. Solving waits for Persisted in both.
  bool journal = true;
  // Reports of a worker are journaled at most this often, and decisions go by
  // those: a replay decides by what was decided by. What is shown is the
  // latest.
  double report_interval_s = 10;
  // Workers are told when to ask for the next round's lease. False: a
  // simulation in which they go on until they are asked to pause.
  bool renewals = true;
  // A worker whose loop stands still, without a step or a boundary, for this
  // long and for kHangSteps of its steps is ended and counted as failed; a job
  // may say otherwise (JobSpec::hang_timeout_s). 0: never.
  double hang_timeout_s = 600;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_
