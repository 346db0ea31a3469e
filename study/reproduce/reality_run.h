// A trace of small jobs run live on this machine, and the same trace in the
// simulator, with the throughputs and overheads that were measured. One call at
// a time; the programs die with its thread.
#ifndef GAVEL_STUDY_REPRODUCE_REALITY_RUN_H_
#define GAVEL_STUDY_REPRODUCE_REALITY_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "study/profile/profile_spec.h"
#include "study/reproduce/reality_records.h"

namespace gavel::study {

struct RealityOptions {
  // With programs that are absolute paths (FindWorkloads).
  std::vector<ProfileWorkload> workloads;
  std::string cluster_path;  // empty: a fast and a slow slot of the CPU
  std::string throughputs;   // file; empty: measured first
  std::string folder;        // of all files
  std::string policy = "max_min_fairness_perf";
  double round_duration_s = 10;
  double measure_s = 8;  // of each workload on each type
  int runs = 3;
  RealityTraceOptions trace;
  bool quiet = false;  // live runs don't show their queue
  std::function<void(const std::string& what)> show;
};

struct RealityRun {
  LiveFigures live;
  LiveFigures simulated;
  Overheads overheads;
};

struct Reality {
  RealityThroughputs throughputs;  // rows as the workloads
  std::vector<RealityRun> runs;
};

// CANCELLED: a signal ended it. ABORTED: a job did not finish, or a workload
// could not be measured; the message says which and where its output is.
// INVALID_ARGUMENT: a cluster or policy that is none.
absl::StatusOr<Reality> RunReality(const RealityOptions& options);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_REALITY_RUN_H_
