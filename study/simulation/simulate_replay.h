// `gavel simulate --replay`: a coordinator's past once more, under another
// policy, beside what really happened.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATE_REPLAY_H_
#define GAVEL_STUDY_SIMULATION_SIMULATE_REPLAY_H_

#include <string>

#include "absl/status/statusor.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_spec.h"

namespace gavel {

struct ReplaySpec {
  std::string journal;
  SimulationSpec spec;                // what schedules, and what it costs
  bool cluster_given = false;         // else the accelerators that joined
  bool round_duration_given = false;  // else the coordinator's
  bool record_rounds = false;
  std::string output;  // JSON; empty: none
};

// The comparison as a table. Simulates the journaled policy, too, where it is
// another one: what differs between it and reality is the simulation's error.
absl::StatusOr<std::string> SimulateReplay(const ReplaySpec& replay,
                                           const RunControl& control);

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_SIMULATE_REPLAY_H_
