#include "coordinator/engine/failure_rate.h"

#include <algorithm>

namespace gavel {

double FailureRate::Interval_s() const {
  const double mean_s =
      (kPrior_s + busy_s_) / (1 + static_cast<double>(losses_));
  return std::clamp(mean_s, kInterval_s_min, kInterval_s_max);
}

bool IsLoss(const Worker& worker, const WorkerExited& exit) {
  if (worker.held_epoch == 0 || worker.out_of_memory) return false;
  if (worker.hung_s > 0) return true;
  // The ranks of a broken gang are told to end: one may be what broke it.
  if (exit.stopped || (worker.leaving && !worker.restarting)) return false;
  return exit.signal != 0 ||
         (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
}

}  // namespace gavel
