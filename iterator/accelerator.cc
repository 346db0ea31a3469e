#include "iterator/accelerator.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/size_text.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/device/device_move.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// Who had it before may still be letting it go; more than this is a fault.
constexpr double kLockWaitMax_s = 2;

absl::Status SetThreads(int threads) {
  if (threads == at::get_num_threads()) return absl::OkStatus();
  return CatchAsStatus("setting the number of threads", [threads] {
    at::set_num_threads(threads);
    return absl::OkStatus();
  });
}

// Nothing limits what a process takes of host memory; what is tracked is known.
absl::Status FitsSlot(const lease_action::Resume& lease,
                      const TrackedState& tracked) {
  if (lease.memory_limit_bytes == 0 ||
      tracked.SizeBytes() <= lease.memory_limit_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      StrCat("the tracked state is ", SizeText(tracked.SizeBytes()),
             ", of this slot it has ", SizeText(lease.memory_limit_bytes),
             " beside another job"));
}

}  // namespace

absl::Status Accelerator::Take(const lease_action::Resume& lease,
                               TrackedState& tracked) {
  const AcceleratorInfo& info = lease.accelerator;
  const std::string what = StrCat("accelerator ", info.uuid);
  absl::StatusOr<at::Device> device = ParseDevice(info.device);
  device_failed_ = !device.ok();
  if (!device.ok()) return Annotate(device.status(), what);
  GAVEL_RETURN_IF_ERROR(Annotate(Lock(lease), what));
  absl::Status status = absl::OkStatus();
  if (device->is_cpu()) {
    status = FitsSlot(lease, tracked);
    if (status.ok()) status = SetThreads(std::max(1, info.threads));
  }
  if (status.ok()) status = LimitMemory(*device, lease.memory_limit_bytes);
  if (status.ok()) status = tracked.MoveTo(*device);
  if (!status.ok()) {
    device_failed_ = !CheckDevice(*device).ok();
    tracked.MoveToHost().IgnoreError();
    ReleaseMemory(*device).IgnoreError();
  }
  const bool left = kept_ && (!status.ok() || device_ != *device);
  if (left) ReleaseMemory(device_).IgnoreError();
  kept_ = false;
  if (!status.ok()) {
    lock_.reset();
    return Annotate(status, what);
  }
  held_ = true;
  device_ = *device;
  uuid_ = info.uuid;
  slow_down_factor_ = std::max(1.0, info.slow_down_factor);
  return absl::OkStatus();
}

absl::Status Accelerator::Lock(const lease_action::Resume& lease) {
  if (run_directory_.empty()) return absl::OkStatus();
  const LockSlots slots = lease.slots == 1 ? LockSlots::kOne : LockSlots::kBoth;
  GAVEL_ASSIGN_OR_RETURN(AcceleratorLock lock,
                         AcceleratorLock::Acquire(
                             run_directory_, lease.accelerator.uuid, slots,
                             std::min(kLockWaitMax_s, lease.deadline - Now())));
  lock_.emplace(std::move(lock));
  return absl::OkStatus();
}

absl::Status Accelerator::Use(const std::string& device, int local_rank,
                              TrackedState& tracked) {
  absl::StatusOr<at::Device> parsed =
      ParseDevice(device.empty() ? StrCat("cuda:", local_rank) : device);
  if (device.empty() && !ParseDevice("cuda:0").ok()) {
    parsed = at::Device(at::kCPU);
  }
  if (!parsed.ok()) return parsed.status();
  GAVEL_RETURN_IF_ERROR(tracked.MoveTo(*parsed));
  held_ = true;
  device_ = *parsed;
  return absl::OkStatus();
}

absl::Status Accelerator::Release(TrackedState& tracked, bool keep) {
  if (!held_) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(Synchronize(device_));
  if (!keep) {
    GAVEL_RETURN_IF_ERROR(tracked.MoveToHost());
  }
  // Of a kept state, too, the next job gets what only the allocator holds.
  GAVEL_RETURN_IF_ERROR(ReleaseMemory(device_));
  lock_.reset();
  held_ = false;
  kept_ = keep;
  return absl::OkStatus();
}

absl::StatusOr<bool> Accelerator::UseThreads(int threads) {
  threads = std::max(1, threads);
  if (!held_ || !device_.is_cpu() || threads == at::get_num_threads()) {
    return false;
  }
  GAVEL_RETURN_IF_ERROR(SetThreads(threads));
  return true;
}

void Accelerator::Unlock() {
  if (held_) Synchronize(device_).IgnoreError();
  lock_.reset();
  held_ = false;
}

}  // namespace gavel::internal
