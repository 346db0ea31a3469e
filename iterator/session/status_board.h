// The errors of a session, one entry per cause. The first fatal error stays;
// each of the others is replaced by the next of its cause. Thread-safe.
#ifndef GAVEL_ITERATOR_SESSION_STATUS_BOARD_H_
#define GAVEL_ITERATOR_SESSION_STATUS_BOARD_H_

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/status/status.h"

namespace gavel::internal {

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

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_STATUS_BOARD_H_
