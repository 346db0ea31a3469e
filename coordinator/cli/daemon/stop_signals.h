// Turns SIGINT, SIGTERM and, for who wants it, SIGHUP into calls on a thread of
// its own, where anything may be done. Made at the beginning of a command,
// before other threads: they inherit the mask.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_STOP_SIGNALS_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_STOP_SIGNALS_H_

#include <functional>
#include <mutex>
#include <thread>

#include "runtime/descriptor.h"
#include "runtime/transport/waker.h"

namespace gavel {

class StopSignals {
 public:
  // Blocks the signals in the calling thread. The third one to stop that comes
  // ends the process at once, and with it the workers of its agents. SIGHUP
  // ends it, too, but when `reloads`.
  explicit StopSignals(bool reloads = false);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on, each signal calls `stop`; at once when one has come already;
  // and SIGHUP `reload`. Null: nothing is called, also not any more when Attach
  // returns.
  void Attach(std::function<void()> stop,
              std::function<void()> reload = nullptr);

 private:
  void Wait();
  void Count();
  void Reload();

  const Descriptor signals_;  // signalfd
  Waker end_;
  std::mutex mutex_;  // guards the next three
  int count_ = 0;
  std::function<void()> stop_;
  std::function<void()> reload_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_STOP_SIGNALS_H_
