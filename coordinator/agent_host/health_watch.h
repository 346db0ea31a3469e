// Reads every ten seconds, on a thread of its own, what NVIDIA's driver says of
// the agent's GPUs: a driver that hangs keeps only this thread. Thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_
#define GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/accelerator_info.h"

namespace gavel {

class HealthWatch {
 public:
  static constexpr double kInterval_s = 10;

  // Of the GPUs among `accelerators`; none: nothing is read. `notify` is called
  // on the thread when Take has something; it must not block.
  HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
              std::function<void()> notify, double interval_s = kInterval_s);

  // The last reading, once; empty: none since.
  std::vector<AcceleratorHealth> Take();

 private:
  void Watch(const std::stop_token& stop);

  std::vector<std::string> uuids_;
  const std::function<void()> notify_;
  const double interval_s_;
  std::mutex mutex_;  // guards the next two
  std::condition_variable_any stopped_;
  std::vector<AcceleratorHealth> read_;
  std::jthread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_HEALTH_WATCH_H_
