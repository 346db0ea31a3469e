// How a command deals with processes: signals that stop it, and programs that
// it runs and watches.
#ifndef GAVEL_COORDINATOR_CLI_PROCESSES_H_
#define GAVEL_COORDINATOR_CLI_PROCESSES_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/files/files.h"

namespace gavel {

// Turns SIGINT, SIGTERM and, where asked for, SIGHUP into calls on a thread of
// its own, where anything may be done. Made at the beginning of a command,
// before other threads: they inherit the mask.
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

// A flag that SIGINT and SIGTERM set, for work that looks at it. Made before
// other threads. Thread-safe.
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

// A program that a command runs and watches. The destructor kills it with all
// processes it started. Not thread-safe; it dies with the thread that made it.
class ChildProcess {
 public:
  // `pid`: of SpawnProcess, which leads a group of its own.
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  bool Ended() const;
  void Kill() const;
  // Waits for the end and kills what the program left behind. The exit code, or
  // minus the signal that ended it.
  int Collect();

 private:
  const pid_t pid_;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PROCESSES_H_
