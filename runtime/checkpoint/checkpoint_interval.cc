#include "runtime/checkpoint/checkpoint_interval.h"

#include <algorithm>
#include <cmath>

namespace gavel {

double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size) {
  if (!std::isfinite(stall_s) || stall_s < 0) stall_s = 0;
  if (!std::isfinite(failure_interval_s) || failure_interval_s < 0) {
    return kCheckpointIntervalMax_s;
  }
  const double of_the_job_s = failure_interval_s / std::max(1, world_size);
  return std::clamp(std::sqrt(2 * stall_s * of_the_job_s),
                    kCheckpointIntervalMin_s, kCheckpointIntervalMax_s);
}

}  // namespace gavel
