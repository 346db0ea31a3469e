#include "iterator/lease_holder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "iterator/clock.h"

namespace gavel::internal {
namespace {

constexpr int64_t kTellMemory_ns = 1'000'000'000;

std::string ThreadsText(int threads) {
  return StrCat(threads, threads == 1 ? " thread" : " threads");
}

}  // namespace

bool LeaseHolder::AnswerCalls() {
  if (!state_.accelerator().held()) return WaitForLease();
  const BoundaryGate::Calls calls = context_.gate.Take(/*wait=*/false);
  if (calls.stop) return Park({PauseTier::kEvict, "ended by a signal"});
  if (calls.pause) return Park(*calls.pause);
  if (calls.threads) UseThreads(*calls.threads);
  if (calls.checkpoint) saver_.RequestAt(Now_ns());
  // The lease thread will say so, too, but a lease binds without it.
  if (context_.gate.IsDeadlineOver(Now_ns())) {
    return Park({PauseTier::kPark, "lease ended"});
  }
  return true;
}

// The other job of a shared CPU slot has come or gone.
void LeaseHolder::UseThreads(int threads) {
  const absl::StatusOr<bool> changed = state_.UseThreads(threads);
  context_.Warn(changed.status());
  if (!changed.value_or(false)) return;
  context_.log.Info(StrCat(ThreadsText(threads), " from step ",
                           context_.stats.steps_done(), " on"));
}

bool LeaseHolder::Park(const lease_action::Pause& pause) {
  const int64_t begin_ns = Now_ns();
  context_.log.Info(StrCat("paused after step ", context_.stats.steps_done(),
                           " on ", state_.accelerator().uuid(), ": ",
                           pause.why));
  context_.stats.CountPause();
  const RuntimeSpan span(context_.profile.ring(), "pause");
  context_.profile.MarkMemory(begin_ns, state_.device());
  TellMemory();
  link_.Post(lease_event::Progressed{context_.stats.Read()});
  const bool keep = pause.tier == PauseTier::kKeep;
  const bool saves = pause.tier != PauseTier::kStop && !link_.rejected();
  state_.BeforeMove();
  // State that stays on the accelerator is copied while the accelerator is
  // still held.
  const bool divides = state_.OnGpu() && gang_.KeepsSize();
  if (saves && keep) Commit(divides);  // counts its own time
  // State that leaves the accelerator does not wait for a save that is under
  // way.
  const bool parks = saves && !keep && !saver_.IsBusy();
  if (parks) context_.Warn(state_.Park(Commit(divides)));
  const int64_t release_ns = Now_ns();
  if (!Release(keep)) return false;
  context_.stats.AddPausing(Now_ns() - release_ns);
  TellMemory();
  // The accelerator is free for the next job from here on. The save continues
  // in the background.
  link_.Post(lease_event::Parked{epoch_, context_.stats.Read()});
  if (saves && !keep) {
    if (!parks) Commit(divides);
    TellMemory();
    link_.Post(lease_event::Progressed{context_.stats.Read()});
  }
  saver_.SettleGang();
  PinWhatIsParked();
  if (StrongerThan(pause.tier, PauseTier::kPark)) exit_.Evict(pause.why);
  context_.WriteProfile(state_.device());
  return WaitForLease();
}

// Memory that was not pinned in time is pinned for the way back and the next
// pause.
void LeaseHolder::PinWhatIsParked() {
  context_.arena.Pin();
  const uint64_t refused_bytes = context_.arena.refused_bytes();
  if (refused_bytes > refused_bytes_) {
    context_.log.Info(StrCat(
        SizeText(refused_bytes),
        " of host memory are not kept pinned: the limit is ",
        SizeText(context_.arena.pinned_bytes_max()),
        " (GAVEL_PINNED_MEMORY_BYTES), half of the machine's free memory is "
        "less, or the driver refuses it; pauses beside the write of a "
        "checkpoint take longer"));
  }
  refused_bytes_ = std::max(refused_bytes_, refused_bytes);
}

// One copy for both: the checkpoint is written from it, and the state comes
// back from it. Where nothing can be committed, the state moves as it does
// without checkpoints.
std::vector<HostCopy> LeaseHolder::Commit(bool divides) {
  std::vector<HostCopy> copies;
  if (!saver_.Commit(&copies).ok()) return {};  // reported there
  if (divides) context_.Warn(state_.Divide(copies, gang_.Gradients()));
  return copies;
}

bool LeaseHolder::Release(bool keep) {
  const RuntimeSpan span(context_.profile.ring(), "leave accelerator");
  const absl::Status status = state_.Release(keep);
  context_.gate.ForgetLease();
  if (status.ok() && !keep) SayLeft();
  if (status.ok()) return true;
  context_.Fail(Annotate(
      status, StrCat("leaving accelerator ", state_.accelerator().uuid())));
  return false;
}

void LeaseHolder::SayLeft() {
  const uint64_t left_bytes = state_.LeftBytes();
  if (left_bytes > left_bytes_) {
    context_.log.Warning(StrCat(
        SizeText(left_bytes), " stay on ",
        state_.accelerator().last_device().str(),
        " in the way of the next job: tensors that are not tracked (a batch "
        "or a graph that is kept, a captured CUDA graph); track them, or free "
        "them in Session::OnRelease()"));
  }
  left_bytes_ = left_bytes;
}

bool LeaseHolder::WaitForLease() {
  while (true) {
    const BoundaryGate::Calls calls = context_.gate.Take(/*wait=*/true);
    const bool ends =
        calls.stop ||
        (calls.pause && StrongerThan(calls.pause->tier, PauseTier::kPark));
    if (!ends && !calls.pause && calls.resume && Resume(*calls.resume)) {
      return true;
    }
    if (context_.board.has_fatal()) return false;
    if (calls.resume && (ends || calls.pause)) {
      // Granted and taken back before it was used.
      link_.Post(
          lease_event::Parked{calls.resume->epoch, context_.stats.Read()});
    }
    if (!ends) continue;
    const bool wants_state =
        calls.stop || calls.pause->tier == PauseTier::kEvict;
    if (wants_state && !link_.rejected()) saver_.Commit().IgnoreError();
    exit_.Evict(calls.stop ? "ended by a signal" : calls.pause->why);
  }
}

bool LeaseHolder::Resume(const lease_action::Resume& lease) {
  const int64_t begin_ns = Now_ns();
  const std::string last_uuid = state_.accelerator().uuid();
  const RuntimeSpan span(context_.profile.ring(), "take accelerator");
  absl::Status status = state_.Take(lease);
  if (status.ok()) status = JoinLeased(lease);
  context_.board.SetAccelerator(status);
  if (!status.ok()) return ResumeFailed(lease, status), false;
  epoch_ = lease.epoch;
  saver_.RaiseEpoch(lease.epoch);
  gang_.SetWorldSize(lease.world_size);
  if (!last_uuid.empty()) {
    context_.stats.AddPausing(Now_ns() - begin_ns);
    if (last_uuid != state_.accelerator().uuid()) context_.stats.CountMove();
  }
  if (status = state_.TellAcquired(); !status.ok()) {
    context_.Fail(std::move(status));
    return false;
  }
  context_.gate.HoldLease();
  TellMemory();
  link_.Post(lease_event::Resumed{lease.epoch});
  SayRunning(lease);
  return true;
}

void LeaseHolder::ResumeFailed(const lease_action::Resume& lease,
                               const absl::Status& status) {
  const std::string why(status.message());
  context_.log.Warning(StrCat("can't take the leased accelerator: ", why));
  state_.Abandon();
  link_.Post(lease_event::ResumeFailed{lease.epoch, why, CauseOf(status)});
}

// Only what would not fit an empty device keeps the job from its type.
ReleaseCause LeaseHolder::CauseOf(const absl::Status& status) const {
  if (state_.accelerator().device_failed()) return ReleaseCause::kDeviceFailed;
  if (state_.accelerator().lacked_room()) return ReleaseCause::kNoRoom;
  return absl::IsResourceExhausted(status) ? ReleaseCause::kOutOfMemory
                                           : ReleaseCause::kResumeFailed;
}

void LeaseHolder::SayRunning(const lease_action::Resume& lease) {
  context_.log.Info(
      StrCat("running from step ", context_.stats.steps_done(), " on ",
             lease.accelerator.uuid, " (", lease.accelerator.type, ", ",
             state_.device().is_cpu() ? ThreadsText(lease.accelerator.threads)
                                      : lease.accelerator.device,
             ")"));
  const double factor = state_.accelerator().slow_down_factor();
  if (factor > 1) {
    context_.log.Warning(
        StrCat("DEMONSTRATION: ", lease.accelerator.uuid,
               " is slowed down artificially, each step takes ", factor,
               " times as long"));
  }
}

void LeaseHolder::TellMemory() {
  const TrainingState::Sizes sizes = state_.ReadSizes();
  // On a GPU steps take more than the state does.
  memory_due_ns_ = state_.OnGpu() && context_.managed()
                       ? Now_ns() + kTellMemory_ns
                       : kNever_ns;
  context_.stats.SetMemory(sizes.state, sizes.on_device,
                           context_.arena.size_bytes() + sizes.in_host);
}

bool LeaseHolder::TakeAlone() {
  absl::Status status = state_.UseAlone();
  if (status.ok()) status = JoinAlone();
  if (status.ok()) status = state_.TellAcquired();
  if (!status.ok()) return context_.Fail(std::move(status)), false;
  context_.gate.NeedNoLease();
  context_.log.Info(
      StrCat(gang_.world_size() > 1 ? "running without a coordinator from step "
                                    : "running alone from step ",
             context_.stats.steps_done(), " on ", state_.device().str(),
             FirstCheckpointText(context_.options)));
  return true;
}

absl::Status LeaseHolder::JoinLeased(const lease_action::Resume& lease) {
  if (state_.has_parts() && lease.world_size != context_.options.world_size) {
    exit_.Evict(StrCat("the state is cut for ", context_.options.world_size,
                       " workers, and the job has ", lease.world_size));
  }
  if (state_.divided().is_missing() &&
      lease.world_size != context_.options.world_size) {
    exit_.Evict(StrCat("the state is divided among ",
                       context_.options.world_size,
                       " workers, and the job has ", lease.world_size));
  }
  if (lease.world_size < 2) return absl::OkStatus();
  absl::Status status = JoinGang(gang_.PlanLeased(lease));
  // The gang is at another step: the state in memory is of no use.
  if (absl::IsAborted(status)) exit_.Evict(std::string(status.message()));
  // Not possible in this build, whatever the lease.
  if (absl::IsFailedPrecondition(status)) context_.Fail(status);
  return status;
}

absl::Status LeaseHolder::JoinAlone() {
  if (gang_.world_size() < 2) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(GangPlan plan, gang_.PlanAlone());
  if (context_.options.rank == 0) saver_.RemoveLeftovers();
  return JoinGang(std::move(plan));
}

absl::Status LeaseHolder::JoinGang(GangPlan plan) {
  const RuntimeSpan span(context_.profile.ring(), "join gang");
  // A gang begins once the save of the one before is written or has failed.
  saver_.Wait().IgnoreError();
  GAVEL_RETURN_IF_ERROR(
      gang_.Join(std::move(plan), state_.device(), state_.divided()));
  state_.FillDivided();
  return absl::OkStatus();
}

}  // namespace gavel::internal
