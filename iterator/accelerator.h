// The worker's hold on an accelerator: its lock, its threads, and the tracked
// state on it. Alone there is a device without a lock. Training thread only.
#ifndef GAVEL_ITERATOR_ACCELERATOR_H_
#define GAVEL_ITERATOR_ACCELERATOR_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "iterator/tracked_state.h"
#include "runtime/device/accelerator_lock.h"
#include "runtime/lease/lease_machine.h"

namespace gavel::internal {

class Accelerator {
 public:
  // `run_directory` empty: no locks are taken.
  explicit Accelerator(std::string run_directory)
      : run_directory_(std::move(run_directory)) {}

  // Locks the granted accelerator, makes it the current device of this thread,
  // sets LibTorch's threads when it is a CPU slot, and moves `tracked` there.
  // Waits up to two seconds, never past the lease, for the lock, and for an
  // exclusive device or memory that somebody else is about to give back. On an
  // error nothing is held. UNAVAILABLE: locked by another process, whose pid is
  // in the message, or used by one exclusively. FAILED_PRECONDITION: no such
  // device. RESOURCE_EXHAUSTED: the state does not fit. Other codes: see
  // device_failed().
  absl::Status Take(const lease_action::Resume& lease, TrackedState& tracked);
  // Alone: no lock. `device` empty: the accelerator of that number, or the CPU
  // where there is none.
  absl::Status Use(const std::string& device, int local_rank,
                   TrackedState& tracked);
  // Waits for the device, calls `leave`, moves `tracked` to host memory, gives
  // memory and lock back. On an error, also of `leave`, the accelerator is
  // still held. `tracked` null: the state stays where it is, what else the
  // allocator holds is given back.
  absl::Status Release(TrackedState* tracked,
                       const std::function<absl::Status()>& leave);
  // The lock only: at the process's end, when the state is needed no more.
  void Unlock();
  // While a CPU slot is held: its lease is of so many threads now. True: of
  // another number than before.
  absl::StatusOr<bool> UseThreads(int threads);

  bool held() const { return held_; }
  // The last Take failed, and would for any state: the device is not there,
  // does not work, or only another process may use it.
  bool device_failed() const { return device_failed_; }
  // The last Take failed for want of memory that other processes hold: the
  // state would fit the device without them.
  bool lacked_room() const { return lacked_room_; }
  // Where the tracked state is: in host memory when none is held, unless it
  // was kept.
  at::Device device() const {
    return held_ || kept_ ? device_ : at::Device(at::kCPU);
  }
  bool kept() const { return kept_; }
  // The one held, or held last: its random generator is the job's.
  at::Device last_device() const { return device_; }
  // The accelerator of the present lease, or of the last one: the factor by
  // which steps are slowed down for a demonstration (at least 1), and its UUID.
  double slow_down_factor() const { return slow_down_factor_; }
  const std::string& uuid() const { return uuid_; }

 private:
  absl::Status Lock(const lease_action::Resume& lease);
  absl::Status Begin(const lease_action::Resume& lease, at::Device device,
                     TrackedState& tracked);

  std::string run_directory_;
  std::optional<AcceleratorLock> lock_;
  bool held_ = false;
  bool kept_ = false;  // not held, but the state is still there
  bool device_failed_ = false;
  bool lacked_room_ = false;
  at::Device device_{at::kCPU};
  std::string uuid_;
  double slow_down_factor_ = 1;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_ACCELERATOR_H_
