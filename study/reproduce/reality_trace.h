// The small jobs that are run live and in the simulator: drawn by a seed, of
// programs whose throughputs are known. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_REALITY_TRACE_H_
#define GAVEL_STUDY_REPRODUCE_REALITY_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "study/profile/profile_spec.h"

namespace gavel::study {

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

#endif  // GAVEL_STUDY_REPRODUCE_REALITY_TRACE_H_
