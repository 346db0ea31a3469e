// The objects that all parts of a session share: its options, and those through
// which they report to the program, to the coordinator and to each other.
#ifndef GAVEL_ITERATOR_SESSION_CONTEXT_H_
#define GAVEL_ITERATOR_SESSION_CONTEXT_H_

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "gavel/session.h"
#include "iterator/boundary_gate.h"
#include "iterator/environment.h"
#include "iterator/step_profile.h"
#include "runtime/device/arena.h"

namespace gavel::internal {

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
