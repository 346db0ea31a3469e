// The objects that all parts of a session share: its options, those through
// which they report to the program, to the coordinator and to each other, and
// the gate at which other threads call the training thread.
#ifndef GAVEL_ITERATOR_SESSION_CONTEXT_H_
#define GAVEL_ITERATOR_SESSION_CONTEXT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gavel/session.h"
#include "iterator/clock.h"
#include "iterator/environment.h"
#include "iterator/step_profile.h"
#include "runtime/device/host_memory.h"
#include "runtime/lease/lease_machine.h"

namespace gavel::internal {

// The calls of the lease thread and the signal handlers to the training thread.
// At a boundary the training thread reads two atomics, and takes the lock only
// when one of them says that there is a call.
//
// The lease thread calls Grant, Extend, Pause, WantCheckpoint; signal handlers
// RequestStop and RequestCheckpoint; the training thread the rest.
class BoundaryGate {
 public:
  // Training thread, each boundary: one acquire load and one compare.
  bool IsCalled(int64_t now_ns) const {
    return called_.load(std::memory_order_acquire) ||
           now_ns >= deadline_ns_.load(std::memory_order_relaxed);
  }

  // A pause, a grant or a signal is there.
  bool has_calls() const { return called_.load(std::memory_order_acquire); }

  // The calls that are to be answered. A pause comes before a grant that is
  // older than it.
  struct Calls {
    bool stop = false;  // a signal came
    std::optional<lease_action::Pause> pause;
    std::optional<lease_action::Resume> resume;
    std::optional<int> threads;  // of the running lease, when they change
    bool checkpoint = false;     // one is wanted now
    bool any() const {
      return stop || pause || resume || threads || checkpoint;
    }
  };
  // Takes what there is, and waits for something else than threads when `wait`.
  // A stop stays.
  Calls Take(bool wait);
  // The lease is over, or there is none to hold: every boundary calls.
  void ForgetLease();
  // Alone: no lease is needed.
  void NeedNoLease() { deadline_ns_.store(kNever_ns); }
  // The lease that Take gave last: boundaries call from its deadline on.
  void HoldLease();
  bool IsDeadlineOver(int64_t now_ns) const {
    return now_ns >= deadline_ns_.load(std::memory_order_acquire);
  }

  // From the latest grant.
  double extension_lead_s() const {
    return extension_lead_s_.load(std::memory_order_relaxed);
  }

  void Grant(const lease_action::Resume& resume);
  void Extend(const lease_action::Extend& extend);
  void Pause(const lease_action::Pause& pause);
  void WantCheckpoint();

  // Async-signal-safe. A training thread that waits sees it at NotifyStop.
  void RequestStop() {
    stop_.store(true, std::memory_order_relaxed);
    called_.store(true, std::memory_order_release);
  }
  // Async-signal-safe: as WantCheckpoint.
  void RequestCheckpoint() {
    checkpoint_requested_.store(true, std::memory_order_relaxed);
    called_.store(true, std::memory_order_release);
  }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }
  void NotifyStop();

 private:
  alignas(64) std::atomic<bool> called_{false};
  std::atomic<int64_t> deadline_ns_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> checkpoint_requested_{false};  // by a signal
  std::atomic<double> extension_lead_s_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<lease_action::Pause> pause_;
  std::optional<lease_action::Resume> resume_;
  std::optional<int> threads_;
  bool checkpoint_ = false;
  // The epoch and the end of the latest lease are kept here, so that an Extend
  // before HoldLease is not lost.
  uint64_t epoch_ = 0;
  Time deadline_ = 0;
  int lease_threads_ = 1;
  bool held_ = false;
};

// The errors of a session, one entry per cause. The first fatal error stays;
// each of the others is replaced by the next of its cause. Thread-safe.
class StatusBoard {
 public:
  // True when this is the first one.
  bool SetFatal(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!fatal_.ok()) return false;
    fatal_ = std::move(status);
    has_fatal_.store(true, std::memory_order_release);
    return true;
  }
  void SetCheckpoint(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    checkpoint_ = std::move(status);
  }
  void SetCoordinator(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    coordinator_ = std::move(status);
  }

  bool has_fatal() const { return has_fatal_.load(std::memory_order_acquire); }
  void SetAccelerator(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    accelerator_ = std::move(status);
  }
  // Why the loop was ended from outside; not an error of the program.
  void SetEnded(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = std::move(status);
  }
  // The most severe one.
  absl::Status Get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const absl::Status* status :
         {&fatal_, &ended_, &checkpoint_, &accelerator_}) {
      if (!status->ok()) return *status;
    }
    return coordinator_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> has_fatal_{false};
  absl::Status fatal_;
  absl::Status ended_;
  absl::Status accelerator_;
  absl::Status checkpoint_;
  absl::Status coordinator_;
};

// Owned by SessionState and borrowed by its parts.
//
// Thread-safety: options, log, board, gate and Fail() may be used from any
// thread; stats and profile as their headers say.
struct SessionContext {
  explicit SessionContext(SessionOptions given);

  // The process runs under an agent and needs a lease to train.
  bool managed() const { return !options.coordinator.empty(); }
  // Ends the loop with this error, unless an earlier one has.
  void Fail(absl::Status status);
  // Logs the error. Does nothing when `status` is OK.
  void Warn(const absl::Status& status);
  // Brings the profile's files up to date; `device`: of the session.
  void WriteProfile(at::Device device);
  // The same at the end of the session, with a table in the log.
  void FinishProfile(at::Device device);

  const SessionOptions options;
  Log log;
  StatusBoard board;
  StepStats stats;
  BoundaryGate gate;
  StepProfile profile;
  // The memory of checkpoints, and of the state without an accelerator.
  Arena arena;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_CONTEXT_H_
