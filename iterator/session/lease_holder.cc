// Pausing and resuming, as the training thread does it inside a boundary
// (design: leases, pausing, one owner per accelerator).
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/session/session_state.h"
#include "iterator/step_profile_memory.h"
#include "runtime/checkpoint/checkpoint_interval.h"
#include "runtime/checkpoint/rng_state.h"

namespace gavel::internal {
namespace {

constexpr int64_t kTellMemory_ns = 1'000'000'000;

std::string ThreadsText(int threads) {
  return StrCat(threads, threads == 1 ? " thread" : " threads");
}

// Behind "running alone ...": when the first periodic checkpoint comes.
std::string FirstCheckpointText(const SessionOptions& options) {
  if (options.checkpoint_directory.empty()) return "";  // said before
  std::string when;
  if (options.checkpoint_interval_s != 0) {
    const double interval_s = options.checkpoint_interval_s < 0
                                  ? kCheckpointIntervalMin_s
                                  : options.checkpoint_interval_s;
    when = StrCat(interval_s, " s (GAVEL_CHECKPOINT_INTERVAL_S)");
  }
  if (options.checkpoint_interval_steps > 0) {
    StrAppend(&when, when.empty() ? "" : " or ",
              options.checkpoint_interval_steps,
              options.checkpoint_interval_steps == 1 ? " step" : " steps",
              " (GAVEL_CHECKPOINT_INTERVAL_STEPS)");
  }
  if (when.empty()) {
    return ", no checkpoint before the end (GAVEL_CHECKPOINT_INTERVAL_S=0)";
  }
  return StrCat(", first checkpoint after ", when);
}

}  // namespace

bool SessionState::AnswerCalls() {
  if (!managed()) return gate_.stop_requested() ? StopAlone() : true;
  if (!accelerator_.held()) return WaitForLease();
  const BoundaryGate::Calls calls = gate_.Take(/*wait=*/false);
  if (calls.stop) return Park({PauseTier::kEvict, "ended by a signal"});
  if (calls.pause) return Park(*calls.pause);
  if (calls.threads) UseThreads(*calls.threads);
  if (calls.checkpoint) checkpoint_due_ns_ = Now_ns();
  // The lease thread says the same soon, but a lease binds without it.
  if (gate_.IsDeadlineOver(Now_ns())) {
    return Park({PauseTier::kPark, "lease ended"});
  }
  return true;
}

// Its partner on a CPU slot came to its end.
void SessionState::UseThreads(int threads) {
  const absl::StatusOr<bool> changed = accelerator_.UseThreads(threads);
  Warn(changed.status());
  if (!changed.value_or(false)) return;
  log_.Info(
      StrCat(ThreadsText(threads), " from step ", stats_.steps_done(), " on"));
}

bool SessionState::StopAlone() {
  stopped_ = evicted_ = true;
  const std::string line =
      StrCat("ended by a signal after step ", stats_.steps_done());
  log_.Info(line);
  Commit().IgnoreError();
  SettleGang();
  board_.SetEnded(absl::CancelledError(line));
  return false;
}

bool SessionState::Park(const lease_action::Pause& pause) {
  const int64_t begin_ns = Now_ns();
  log_.Info(StrCat("paused after step ", stats_.steps_done(), " on ",
                   accelerator_.uuid(), ": ", pause.why));
  stats_.CountPause();
  const RuntimeSpan span(profile_.ring(), "pause");
  profile_.MarkMemory(begin_ns, device());
  TellMemory();
  lease_thread_->Post(lease_event::Progressed{stats_.Read()});
  const bool keep = pause.tier == PauseTier::kKeep;
  const bool saves = pause.tier != PauseTier::kStop && !IsRejected();
  BeforeMove();
  // What stays on the accelerator is read while it is still ours.
  if (saves && keep) Commit().IgnoreError();  // counts its own time
  // What leaves it does not wait for a save that is under way.
  const bool parks = saves && !keep && !checkpoints_.IsBusy();
  if (parks) ParkInCheckpoint();
  const int64_t release_ns = Now_ns();
  if (!ReleaseAccelerator(keep)) return false;
  stats_.AddPausing(Now_ns() - release_ns);
  TellMemory();
  // The accelerator is free for the next job from here on; the disk write goes
  // on beside it.
  lease_thread_->Post(lease_event::Parked{lease_epoch_, stats_.Read()});
  if (saves && !keep) {
    if (!parks) Commit().IgnoreError();
    TellMemory();
    lease_thread_->Post(lease_event::Progressed{stats_.Read()});
  }
  SettleGang();
  if (StrongerThan(pause.tier, PauseTier::kPark)) EndProcess(pause.why);
  WriteProfile();
  return WaitForLease();
}

// One copy for both: the checkpoint is written from it, and the state comes
// back from it. What can't be committed here moves as it does without
// checkpoints.
void SessionState::ParkInCheckpoint() {
  std::vector<HostCopy> copies;
  if (!Commit(&copies).ok()) return;  // said there
  Warn(tracked_.Park(copies));
}

bool SessionState::ReleaseAccelerator(bool keep) {
  const RuntimeSpan span(profile_.ring(), "leave accelerator");
  absl::Status status = accelerator_.Release(tracked_, keep);
  AfterMove(accelerator_.device());
  gate_.ForgetLease();
  if (status.ok()) return true;
  Fail(Annotate(status, StrCat("leaving accelerator ", accelerator_.uuid())));
  return false;
}

bool SessionState::WaitForLease() {
  while (true) {
    const BoundaryGate::Calls calls = gate_.Take(/*wait=*/true);
    const bool ends =
        calls.stop ||
        (calls.pause && StrongerThan(calls.pause->tier, PauseTier::kPark));
    if (!ends && !calls.pause && calls.resume && Resume(*calls.resume)) {
      return true;
    }
    if (board_.has_fatal()) return false;
    if (calls.resume && (ends || calls.pause)) {
      // Granted and taken back before it was used.
      lease_thread_->Post(
          lease_event::Parked{calls.resume->epoch, stats_.Read()});
    }
    if (!ends) continue;
    const bool wants_state =
        calls.stop || calls.pause->tier == PauseTier::kEvict;
    if (wants_state && !IsRejected()) Commit().IgnoreError();
    EndProcess(calls.stop ? "ended by a signal" : calls.pause->why);
  }
}

bool SessionState::Resume(const lease_action::Resume& lease) {
  const int64_t begin_ns = Now_ns();
  const std::string last_uuid = accelerator_.uuid();
  const at::Device last_device = accelerator_.last_device();
  const RuntimeSpan span(profile_.ring(), "take accelerator");
  BeforeMove();
  absl::Status status = accelerator_.Take(lease, tracked_);
  AfterMove(accelerator_.device());
  if (status.ok() && !device().is_cpu()) checkpoints_.AllowPinned();
  if (status.ok()) status = MoveRandom(last_device);
  if (status.ok()) {
    status = position_.SetShard(options_.rank, lease.world_size);
  }
  if (status.ok()) status = JoinLeased(lease);
  board_.SetAccelerator(status);
  if (!status.ok()) {
    const std::string why(status.message());
    log_.Warning(StrCat("can't take the leased accelerator: ", why));
    accelerator_.Release(tracked_).IgnoreError();
    lease_thread_->Post(lease_event::ResumeFailed{
        lease.epoch, why,
        accelerator_.device_failed()        ? ReleaseCause::kDeviceFailed
        : absl::IsResourceExhausted(status) ? ReleaseCause::kOutOfMemory
                                            : ReleaseCause::kResumeFailed});
    return false;
  }
  lease_epoch_ = lease.epoch;
  generation_epoch_ = std::max(generation_epoch_, lease.epoch);
  world_size_ = lease.world_size;
  if (!last_uuid.empty()) {
    stats_.AddPausing(Now_ns() - begin_ns);
    if (last_uuid != accelerator_.uuid()) stats_.CountMove();
  }
  gate_.HoldLease();
  TellMemory();
  lease_thread_->Post(lease_event::Resumed{lease.epoch});
  log_.Info(StrCat("running from step ", stats_.steps_done(), " on ",
                   lease.accelerator.uuid, " (", lease.accelerator.type, ", ",
                   device().is_cpu() ? ThreadsText(lease.accelerator.threads)
                                     : lease.accelerator.device,
                   ")"));
  if (accelerator_.slow_down_factor() > 1) {
    log_.Warning(StrCat("DEMONSTRATION: ", lease.accelerator.uuid,
                        " is slowed down artificially, each step takes ",
                        accelerator_.slow_down_factor(), " times as long"));
  }
  return true;
}

// For the coordinator's budgets.
void SessionState::TellMemory() {
  const uint64_t state = tracked_.SizeBytes();
  const at::Device device = accelerator_.device();
  const bool on_accelerator = accelerator_.held() || accelerator_.kept();
  uint64_t on_device = on_accelerator ? state : 0;
  if (on_accelerator && !device.is_cpu()) {
    const MemoryUse use = ReadMemory(device);
    on_device = static_cast<uint64_t>(
        accelerator_.held() ? use.reserved_high_bytes : use.reserved_bytes);
  }
  // Steps take more of a GPU than the state does.
  memory_due_ns_ = accelerator_.held() && managed() && !device.is_cpu()
                       ? Now_ns() + kTellMemory_ns
                       : kNever_ns;
  // A CPU slot's memory stays with the process; what left a GPU is in the copy.
  const uint64_t in_host = accelerator_.last_device().is_cpu()
                               ? state
                               : state - tracked_.parked_bytes();
  stats_.SetMemory(
      state, on_device,
      checkpoints_.arena_size_bytes() + (on_accelerator ? 0 : in_host));
}

// A job that moves to another GPU goes on with the same random numbers there.
absl::Status SessionState::MoveRandom(at::Device from) {
  const at::Device to = accelerator_.device();
  if (from == to || from.is_cpu() || to.is_cpu()) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const std::string state, GetRngState(from));
  return SetRngState(to, state);
}

bool SessionState::TakeDeviceAlone() {
  BeforeMove();
  absl::Status status =
      accelerator_.Use(options_.device, options_.gang.local_rank, tracked_);
  AfterMove(accelerator_.device());
  if (status.ok() && !device().is_cpu()) checkpoints_.AllowPinned();
  if (status.ok()) status = JoinAlone();
  if (!status.ok()) return Fail(std::move(status)), false;
  gate_.NeedNoLease();
  log_.Info(StrCat(world_size_ > 1 ? "running without a coordinator from step "
                                   : "running alone from step ",
                   stats_.steps_done(), " on ", accelerator_.device().str(),
                   FirstCheckpointText(options_)));
  return true;
}

}  // namespace gavel::internal
