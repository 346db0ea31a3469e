#include "iterator/accelerator.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/size_text.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/device/device_move.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

// The job that held the accelerator before may still be releasing it. A longer
// wait than this is a fault.
constexpr double kLockWaitMax_s = 2;
constexpr double kRoomWaitMax_s = 2;
constexpr std::chrono::milliseconds kRoomInterval(50);

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

// A process that leaves may not have given back yet a device that only one may
// use.
absl::Status ChooseWhenFree(const lease_action::Resume& lease,
                            at::Device device) {
  const Time give_up = std::min(Now() + kRoomWaitMax_s, lease.deadline);
  while (true) {
    const absl::Status status = ChooseDevice(device);
    if (!absl::IsUnavailable(status) || Now() > give_up) return status;
    std::this_thread::sleep_for(kRoomInterval);
  }
}

// A process that leaves may not have given its memory back yet.
absl::Status MoveWhenThereIsRoom(const lease_action::Resume& lease,
                                 at::Device device, TrackedState& tracked) {
  const Time give_up = std::min(Now() + kRoomWaitMax_s, lease.deadline);
  while (true) {
    const absl::Status status = tracked.MoveTo(device);
    if (!absl::IsResourceExhausted(status) || device.is_cpu()) return status;
    tracked.MoveToHost().IgnoreError();
    ReleaseMemory(device).IgnoreError();
    const DeviceMemory memory = ReadDeviceMemory(device);
    const uint64_t need = tracked.SizeBytes();
    if (need > memory.total_bytes || Now() > give_up) return status;
    std::this_thread::sleep_for(kRoomInterval);
  }
}

}  // namespace

absl::Status Accelerator::Take(const lease_action::Resume& lease,
                               TrackedState& tracked) {
  const AcceleratorInfo& info = lease.accelerator;
  const std::string what = StrCat("accelerator ", info.uuid);
  absl::StatusOr<at::Device> device = ParseDevice(info.device);
  device_failed_ = !device.ok();
  lacked_room_ = false;
  if (!device.ok()) return Annotate(device.status(), what);
  GAVEL_RETURN_IF_ERROR(Annotate(Lock(lease), what));
  const absl::Status status = Begin(lease, *device, tracked);
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

absl::Status Accelerator::Begin(const lease_action::Resume& lease,
                                at::Device device, TrackedState& tracked) {
  absl::Status status = ChooseWhenFree(lease, device);
  // A process of nobody's lease has it, so no job can use it.
  device_failed_ = absl::IsUnavailable(status);
  if (status.ok() && device.is_cpu()) {
    status = FitsSlot(lease, tracked);
    if (status.ok()) {
      status = SetThreads(std::max(1, lease.accelerator.threads));
    }
  }
  if (status.ok()) status = LimitMemory(device, lease.memory_limit_bytes);
  if (status.ok()) status = MoveWhenThereIsRoom(lease, device, tracked);
  if (status.ok()) return status;
  device_failed_ = device_failed_ || !CheckDevice(device).ok();
  tracked.MoveToHost().IgnoreError();
  ReleaseMemory(device).IgnoreError();
  const DeviceMemory memory = ReadDeviceMemory(device);
  lacked_room_ = absl::IsResourceExhausted(status) &&
                 lease.memory_limit_bytes == 0 &&
                 tracked.SizeBytes() < memory.total_bytes;
  if (!lacked_room_) return status;
  return Annotate(
      status, StrCat("the state needs ", SizeText(tracked.SizeBytes()),
                     ", other processes leave ", SizeText(memory.free_bytes),
                     " of ", SizeText(memory.total_bytes), " free"));
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
  GAVEL_ASSIGN_OR_RETURN(
      const at::Device parsed,
      ParseDevice(device.empty() ? DefaultDevice(local_rank) : device));
  GAVEL_RETURN_IF_ERROR(ChooseDevice(parsed));
  GAVEL_RETURN_IF_ERROR(tracked.MoveTo(parsed));
  held_ = true;
  device_ = parsed;
  return absl::OkStatus();
}

absl::Status Accelerator::Release(TrackedState* tracked,
                                  const std::function<absl::Status()>& leave) {
  if (!held_) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(Synchronize(device_));
  GAVEL_RETURN_IF_ERROR(leave());
  if (tracked != nullptr) {
    GAVEL_RETURN_IF_ERROR(tracked->MoveToHost());
  }
  // The next job gets the memory that only the allocator holds, also where the
  // state stays on the accelerator.
  GAVEL_RETURN_IF_ERROR(ReleaseMemory(device_));
  lock_.reset();
  held_ = false;
  kept_ = tracked == nullptr;
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
