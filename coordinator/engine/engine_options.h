// What an engine is made with. Whoever drives one fills it in; a value.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>

#include "coordinator/engine/settings.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/units.h"

namespace gavel {

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
