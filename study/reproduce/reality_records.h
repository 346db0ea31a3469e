// The small jobs that are run live and in the simulator: drawn by a seed, of
// programs whose throughputs are known; and what became of them in a live run,
// from its own records: the history of its coordinator, and the traces of its
// workers. Pure. Values, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_REALITY_RECORDS_H_
#define GAVEL_STUDY_REPRODUCE_REALITY_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "simulator/simulation_input.h"
#include "study/profile/profile_spec.h"
#include "study/reproduce/worker_trace.h"

namespace gavel::study {

// A stay on an accelerator. Times of one clock, seconds.
struct LiveLease {
  std::string accelerator;
  Time from_s = 0;
  Time to_s = 0;
  bool paused = false;  // else the job ended
};

struct LiveJob {
  std::string name;
  std::string type;
  Time submitted_s = 0;
  Time ended_s = 0;
  uint64_t pauses = 0;
  std::vector<LiveLease> leases;  // ascending
  std::vector<TracedStep> steps;  // ascending; of the same clock
};

// From rows of history ("jobs" and "leases", rank 0), in the order of the jobs.
// INVALID_ARGUMENT: a job did not end.
absl::StatusOr<std::vector<LiveJob>> ReadLiveJobs(const Json& jobs,
                                                  const Json& leases);

struct LiveFigures {
  double makespan_s = 0;  // from the first submission to the last end
  double avg_jct_s = 0;   // from a job's submission to its end
  uint64_t pauses = 0;
};
LiveFigures FiguresOf(const std::vector<LiveJob>& jobs);

// Means by job type of what the jobs lost, none of it from the figures above:
// - start: from when the accelerator was free and the job there to its first
//   step, and from its last step to its end;
// - pause: from its last step on an accelerator to when that was free;
// - resume, move: from when an accelerator was free to its first step there.
// A type without any pause has the means over all types.
Overheads MeasureOverheads(const std::vector<LiveJob>& jobs);

// The form that ParseOverheadsFile reads.
std::string FormatOverheads(const Overheads& overheads);

struct RealityTraceOptions {
  int jobs = 20;
  // Alone on the type on which the job is fastest, seconds.
  double duration_min_s = 10;
  double duration_max_s = 40;
  uint64_t seed = 0;
};

struct RealityJob {
  size_t workload = 0;
  uint64_t steps = 1;
  double arrival_s = 0;  // ascending, the first is 0
};

// What the accelerators do with the workloads: [workloads x types] steps/s, and
// how many of each type there are.
struct RealityThroughputs {
  std::vector<std::string> types;
  std::vector<int> counts;
  std::vector<std::vector<double>> steps_per_s;
};

// Each workload as often as any other; durations log-uniform; arrivals Poisson,
// a quarter faster than the accelerators do the jobs, so that they take turns.
std::vector<RealityJob> MakeRealityTrace(const RealityTraceOptions& options,
                                         const RealityThroughputs& throughputs);

// As TOML that ParseTrace reads.
std::string FormatRealityTrace(const std::vector<RealityJob>& jobs,
                               const std::vector<ProfileWorkload>& workloads);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_REALITY_RECORDS_H_
