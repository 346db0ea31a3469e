// A flag that SIGINT and SIGTERM set, for work that looks at it. Made before
// other threads. Thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_STOP_FLAG_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_STOP_FLAG_H_

#include <atomic>

#include "coordinator/cli/daemon/stop_signals.h"

namespace gavel {

class StopFlag {
 public:
  StopFlag() {
    signals_.Attach([this] { stop_ = true; });
  }
  const std::atomic<bool>* get() const { return &stop_; }

 private:
  std::atomic<bool> stop_ = false;
  StopSignals signals_;  // its thread ends before the flag goes
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_STOP_FLAG_H_
