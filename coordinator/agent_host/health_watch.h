// Reads every ten seconds, on a thread of its own, what NVIDIA's driver says of
// the agent's GPUs: a driver that hangs keeps only this thread, for which the
// end waits kEnd_s at most. Thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_
#define GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/accelerator_info.h"

namespace gavel {

class HealthWatch {
 public:
  static constexpr double kInterval_s = 10;
  static constexpr double kEnd_s = 2;

  // Of the GPUs among `accelerators`; none: nothing is read. `notify` is called
  // on the thread when Take has something, never after the end of this; it must
  // not block, or call this.
  HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
              std::function<void()> notify, double interval_s = kInterval_s);
  ~HealthWatch();

  // The last reading, once; empty: none since.
  std::vector<AcceleratorHealth> Take();

 private:
  struct Shared;
  static void Watch(Shared& shared);

  // The thread's too: it may outlive this.
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_
