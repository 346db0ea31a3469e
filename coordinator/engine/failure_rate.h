// How often workers are lost, from what the coordinator has seen: the mean time
// between failures that intervals of checkpoints are tuned by. Kept by the
// engine. Values; not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_FAILURE_RATE_H_
#define GAVEL_COORDINATOR_ENGINE_FAILURE_RATE_H_

#include <cstdint>
#include <tuple>

#include "coordinator/engine/job.h"
#include "core/messages.h"

namespace gavel {

class FailureRate {
 public:
  // What is believed before anything was seen, with the weight of one loss.
  static constexpr double kPrior_s = 6 * 3600;
  static constexpr double kInterval_s_min = 600;
  static constexpr double kInterval_s_max = 30 * 24 * 3600.0;

  // A worker held an accelerator for so long, >= 0.
  void AddBusy(double seconds) { busy_s_ += seconds; }
  void AddLoss() { ++losses_; }

  double busy_s() const { return busy_s_; }
  uint64_t losses() const { return losses_; }
  // Mean time between two losses of one worker: (6 h + busy time) / (1 +
  // losses), within the bounds above. In seconds.
  double Interval_s() const;

  static auto State(auto& r) { return std::tie(r.busy_s_, r.losses_); }

 private:
  double busy_s_ = 0;
  uint64_t losses_ = 0;
};

// `worker`, as it was before it ended so, was lost: it held an accelerator,
// and died or vanished with its agent, though nobody had told it to end. So is
// one that was killed because it stood still. Not so: a program that says that
// it has failed (Finish), one that ran out of memory, cancellations, evictions.
bool IsLoss(const Worker& worker, const WorkerExited& exit);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_FAILURE_RATE_H_
