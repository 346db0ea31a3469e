// `gavel simulate --replay`: the jobs of a coordinator's journal, simulated
// under another policy, beside what really happened.
#ifndef GAVEL_COORDINATOR_CLI_PAST_JOBS_H_
#define GAVEL_COORDINATOR_CLI_PAST_JOBS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/what_if.h"
#include "core/units.h"
#include "simulator/trace_simulation.h"
#include "study/simulation_run.h"
#include "study/simulation_spec.h"

namespace gavel {

struct PastJob {
  PredictedJob job;       // arrival since the first submission
  Time ended_s = kNever;  // really; since the first submission
  uint64_t pauses = 0;    // really
  uint64_t moves = 0;
  bool finished = false;  // by itself: these are compared
};

struct Past {
  std::vector<PastJob> jobs;
  std::vector<ClusterPart> cluster;  // all accelerators that joined
  std::string policy;                // last in force; empty: not known
  double round_duration_s = 0;       // likewise; 0: not known
  size_t left_out = 0;               // jobs that never ran a step
};

// Throughputs are those that were measured, else given by the user, else
// guessed as the coordinator does (ThroughputMatrix). A job that did not finish
// by itself is given the steps that it did. NOT_FOUND: no such file; DATA_LOSS:
// damaged.
absl::StatusOr<Past> ReadPast(const std::string& path);

// One column of a comparison: jobs that finished in reality.
struct Outcome {
  std::string title;
  size_t finished = 0;
  double avg_jct_s = 0;
  double p50_jct_s = 0;
  double p99_jct_s = 0;
  double makespan_s = 0;
  // JCT over the time alone on its fastest accelerators.
  double avg_slowdown = 0;
  double worst_slowdown = 0;
  // Jain's index of the slowdowns' inverses, in (0, 1]: 1 is equal treatment.
  double fairness = 0;
  uint64_t pauses = 0;
  uint64_t moves = 0;
};
Outcome RealOutcome(const Past& past);
// `result`: of a simulation of all of `past.jobs`, in the order of arrival.
Outcome SimulatedOutcome(const Past& past, const SimulationResult& result,
                         std::string title);
std::string RenderOutcomes(const std::vector<Outcome>& outcomes);

struct ReplaySpec {
  std::string journal;
  study::SimulationSpec spec;         // what schedules, and what it costs
  bool cluster_given = false;         // else the accelerators that joined
  bool round_duration_given = false;  // else the coordinator's
  bool record_rounds = false;
  std::string output;  // JSON; empty: none
};

// The comparison as a table. Simulates the journaled policy, too, where it is
// another one: what differs between it and reality is the simulation's error.
absl::StatusOr<std::string> SimulateReplay(const ReplaySpec& replay,
                                           const study::RunControl& control);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PAST_JOBS_H_
