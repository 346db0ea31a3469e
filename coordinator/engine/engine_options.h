// The options of an engine, filled in by its creator. A value.
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

// The settings that shape decisions, apart from the lengths of rounds and
// leases. They come from flags and files, and are journaled with each term
// (event::Settings), so that a replay reaches the same decisions. A value.
struct DecisionSettings {
  // A new allocation is made at most this often. 0: whenever jobs or
  // accelerators come or go.
  double reset_interval_s = 0;
  // Offer pairs of jobs to the policy (Policy::packs()), if their throughputs
  // together were measured or are in `throughputs`.
  bool packing = false;
  // While jobs wait, pairs of jobs whose throughputs together are unknown run
  // for a round on trial, on at most half as many accelerators as trials of
  // single jobs (profiling_percentage). Each job is in at most four such pairs.
  bool pair_trials = false;
  // Ask the policy for consolidated and unconsolidated shares, if some job also
  // names a throughput on "TYPE_unconsolidated".
  bool placement_sensitive = false;
  // How far a pause goes depends on how long the job is expected to be away
  // (see memory_plan.h). Up to keep_absence_s_max it stays on the accelerator,
  // where the memory budgets allow that. Beyond park_absence_s_max it is
  // evicted.
  double keep_absence_s_max = 0;
  double park_absence_s_max = kNever;
  // A round is planned this long before it begins, so that leases are extended
  // and processes launched in time. At most a quarter of a round.
  double plan_lead_s = 5;
  // An elastic job that was resized is not resized again within this many
  // rounds, except to shrink for a job that waits. A resize has to pay off
  // within as many rounds.
  int resize_rounds = 3;               // >= 1
  std::vector<PolicyEntity> entities;  // JobSpec::entity names one
  // Throughputs by job type (JobSpec::Workload), for types on which a job has
  // none of its own. May be null.
  std::shared_ptr<const ThroughputTable> throughputs;
  // A job whose type the table lacks gets the row of the reference model that
  // it resembles most, out of this many for each scale factor
  // (ThroughputEstimator). 0: none.
  int reference_models = 0;
  // A job runs for a round on trial on types on which its throughput is
  // unknown. Trials take at most this percentage of a type's accelerators at
  // once, rounded up. 0: no trials. [0, 100]
  double profiling_percentage = 50;
  // The least time between two allocations, per live job. The cost of a solve
  // and of its journal row grows with the number of jobs, and this lets a burst
  // of submissions share one solve. 0: in a simulation.
  double solve_gap_s_per_job = 0;
  // Whether problems contain what jobs have done and received
  // (Policy::reads_progress()).
  bool progress = true;
  // Fairness is between users first and jobs second, for jobs that have owners
  // (GroupShares in solver.h).
  bool user_shares = false;
  // Fairness is between apps first and jobs second, for jobs that have an app.
  // Not both of the two.
  bool app_shares = false;
  // Jobs are tried beside others and elsewhere, and what does not help is
  // undone (introspection.h); each job at most once in trial_backoff_s.
  bool introspection = false;
  double trial_backoff_s = 600;  // > 0
  // The interactive jobs of one owner have at most so many accelerators at
  // once. Further ones wait. 0: no interactive job is accepted.
  int interactive_max = 2;  // >= 0
};

// All options: the settings of decisions and the rest.
struct EngineOptions : DecisionSettings {
  // Seconds since 1970 at the engine's time 0, according to the
  // CoordinatorStarted of the present term. It is shown to people and decides
  // nothing.
  double wall_offset_s = 0;
  double round_duration_s = 360;  // > 0
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  // At a new allocation, the time received is kept, scaled down to at most this
  // many rounds. 0: it restarts at zero, as in the paper.
  double memory_rounds = 8;
  size_t ended_jobs_kept = 10'000;  // for `gavel queue`; JobTable::Prune
  double lease_duration_s = 60;     // > 0; at most a round's rest is granted
  // The largest relative difference between the speeds of two machines' clocks.
  double drift = 0.02;
  // A worker asked to pause that has not released by then is ended by its
  // agent: SIGTERM, and SIGKILL `stop_grace_s` later.
  double pause_grace_s = 60;
  double stop_grace_s = 10;
  // An agent that was silent for this long is unreachable.
  double agent_timeout_s = 15;
  double heartbeat_interval_s = 2;
  // A server that was unreachable for this long is forgotten.
  double forget_after_s = kNever;
  // A process that has not said hello this long after its launch is ended and
  // counted as failed. JobSpec::start_timeout_s takes precedence.
  double launch_timeout_s = 120;
  // The largest rate of process launches. Launching all processes of a round at
  // once would load the network, the file servers and this machine, on which
  // the leases of other jobs depend. 0: no limit.
  double launches_per_s = 0;
  // Rank 0 of a gang that has held its lease for this long, and has opened no
  // store for the other ranks, is ended and counted as failed.
  double gang_timeout_s = 60;
  // Events are journaled, and their effects wait until they are on disk. False:
  // a simulation that keeps no journal. Solving waits for Persisted in both.
  bool journal = true;
  // The least time between two journaled reports of a worker. Decisions use
  // only journaled reports, so that a replay reaches the same decisions.
  // Displays use the latest report.
  double report_interval_s = 10;
  // Send lease holders a notice when they should ask for the next round's
  // lease. False: in a simulation, whose workers run until they are asked to
  // pause.
  bool renewals = true;
  // A worker whose loop makes no step and passes no boundary for this long, and
  // for the time of kHangSteps of its steps, is ended and counted as failed. A
  // job may set its own limit (JobSpec::hang_timeout_s). 0: never.
  double hang_timeout_s = 600;
  // An app that has no job, and stays because of its goal, ends when its
  // optimiser was silent for this long.
  double app_timeout_s = 600;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_
