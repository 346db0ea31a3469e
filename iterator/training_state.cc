#include "iterator/training_state.h"

#include <string>
#include <utility>

#include "core/status.h"
#include "iterator/step_profile.h"
#include "runtime/checkpoint/rng_state.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {

TrainingState::TrainingState(SessionContext& context, TrackedState& tracked,
                             LoopPosition& position,
                             AccumulationWatch& accumulation)
    : context_(context),
      tracked_(tracked),
      position_(position),
      accumulation_(accumulation),
      accelerator_(context.options.run_directory) {}

absl::Status TrainingState::Restore(const Snapshot& snapshot) {
  return position_.Restore(snapshot);
}

bool TrainingState::CanCollect() const {
  return at_step_end_ || mark_.Holds(context_.stats.steps_done(), tracked_);
}

absl::Status TrainingState::Collect(Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(tracked_.Collect(snapshot));
  GAVEL_RETURN_IF_ERROR(tracked_.CollectGradients(
      [this](const at::Tensor& parameter) {
        return accumulation_.Saves(parameter);
      },
      snapshot));
  if (!at_step_end_) return mark_.Restore(snapshot), absl::OkStatus();
  return position_.Collect(accelerator_.last_device(),
                           context_.stats.steps_done(), snapshot);
}

void TrainingState::SetMark() {
  Snapshot snapshot;
  at_step_end_ = true;
  absl::Status status = Collect(&snapshot);
  at_step_end_ = false;
  if (status.ok()) {
    status = mark_.Set(context_.stats.steps_done(), snapshot, tracked_);
  }
  if (!status.ok()) context_.Fail(std::move(status));
}

absl::Status TrainingState::Take(const lease_action::Resume& lease) {
  const at::Device last_device = accelerator_.last_device();
  BeforeMove();
  absl::Status status = accelerator_.Take(lease, tracked_);
  AfterMove();
  GAVEL_RETURN_IF_ERROR(status);
  accumulation_.Arrive();
  GAVEL_RETURN_IF_ERROR(MoveRandom(last_device));
  return position_.SetShard(context_.options.rank, lease.world_size);
}

absl::Status TrainingState::UseAlone() {
  BeforeMove();
  absl::Status status = accelerator_.Use(
      context_.options.device, context_.options.gang.local_rank, tracked_);
  AfterMove();
  if (status.ok()) accumulation_.Arrive();
  return status;
}

absl::Status TrainingState::Park(const std::vector<HostCopy>& copies) {
  return tracked_.Park(copies);
}

absl::Status TrainingState::Release(bool keep) {
  absl::Status status = accelerator_.Release(
      keep ? nullptr : &tracked_, [this, keep] { return LeaveDevice(keep); });
  AfterMove();
  return status;
}

// Objects that are not tracked leave the device before its memory is given
// back.
absl::Status TrainingState::LeaveDevice(bool keep) {
  if (std::exchange(told_acquired_, false)) {
    GAVEL_RETURN_IF_ERROR(
        CatchAsStatus("in a function given to Session::OnRelease()", [this] {
          for (const auto& call : on_release_) call();
          return absl::OkStatus();
        }));
  }
  return CatchAsStatus("moving the batch", [this, keep] {
    if (!keep && batch_ != nullptr) batch_->PlaceBatch(at::Device(at::kCPU));
    return absl::OkStatus();
  });
}

absl::Status TrainingState::TellAcquired() {
  told_acquired_ = true;
  return CatchAsStatus("in a function given to Session::OnAcquire()", [this] {
    for (const auto& call : on_acquire_) call(device());
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> TrainingState::UseThreads(int threads) {
  return accelerator_.UseThreads(threads);
}

void TrainingState::BeforeMove() {
  accumulation_.Leave();
  mark_held_ = mark_.Holds(context_.stats.steps_done(), tracked_);
}

void TrainingState::AfterMove() {
  absl::Status status = CatchAsStatus("moving the batch", [&] {
    if (batch_ != nullptr) batch_->PlaceBatch(device());
    return mark_held_ ? mark_.Rebase(tracked_) : absl::OkStatus();
  });
  if (!status.ok()) context_.Fail(std::move(status));
}

// A job that moves to another GPU draws the same random numbers there.
absl::Status TrainingState::MoveRandom(at::Device from) {
  const at::Device to = device();
  if (from == to || from.is_cpu() || to.is_cpu()) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const std::string state, GetRngState(from));
  return SetRngState(to, state);
}

uint64_t TrainingState::LeftBytes() const {
  const at::Device last = accelerator_.last_device();
  if (last.is_cpu()) return 0;
  return static_cast<uint64_t>(ReadMemory(last).now_bytes);
}

TrainingState::Sizes TrainingState::ReadSizes() const {
  Sizes sizes;
  sizes.state = tracked_.SizeBytes();
  if (accelerator_.held() || accelerator_.kept()) {
    sizes.on_device = sizes.state;
    if (!device().is_cpu()) {
      const MemoryUse use = ReadMemory(device());
      sizes.on_device = static_cast<uint64_t>(
          accelerator_.held() ? use.reserved_high_bytes : use.reserved_bytes);
    }
    return sizes;
  }
  // A CPU slot's memory stays with the process. Tensors that left an
  // accelerator are in the arena; the process's other memory there stays in
  // the way of the next job.
  const at::Device last = accelerator_.last_device();
  sizes.in_host = last.is_cpu() ? sizes.state : 0;
  if (!last.is_cpu()) {
    sizes.on_device = static_cast<uint64_t>(ReadMemory(last).reserved_bytes);
  }
  return sizes;
}

}  // namespace gavel::internal
