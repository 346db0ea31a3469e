// Boundaries outside of an Iterator: in evaluation, warm-up, and loops of the
// program's own.
//
// A generation is only ever of a step's end, since a restart begins there. In
// such a place the process can pause (everything stays in memory), but a
// checkpoint needs the state of the last step's end: live, when StepDone() was
// called just before; else by the mark, which is set where a loop or a step was
// left, while nobody has written to the tensors since.
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/session/session_state.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// A checkpoint that is due where none can be taken is looked at again then.
constexpr int64_t kCheckpointRetry_ns = 100'000'000;

}  // namespace

void SessionState::StepDone() {
  if (stopped()) return;
  if (!started_) {
    return Fail(absl::FailedPreconditionError(
        "StepDone() was called before the first step; call Boundary() before "
        "each step, or use gavel::Iterator"));
  }
  if (!last_micro_batch()) {
    return Fail(absl::FailedPreconditionError(
        "StepDone() was called inside a global batch; call it after its last "
        "micro-batch, as Session::last_micro_batch() tells"));
  }
  CountStep(Now_ns());
  if (position_.inside()) {
    step_counted_ = true;  // so that the Iterator does not count it, too
    SetMark();
  } else {
    position_.BeginOwnLoop();
    step_done_ = true;
  }
}

bool SessionState::AttendOutside(bool after_step) {
  const bool is_first = !started_;
  if (is_first) {
    absl::Status status = CatchAsStatus(
        "beginning at a boundary", [&]() -> absl::Status { return Start(); });
    if (!status.ok()) Fail(std::move(status));
  }
  if (!MayGoOn()) return false;
  // All steps were done before this process began: there is no lease to ask
  // for.
  if (managed() && !asks_for_lease_) return true;
  const int64_t begin_ns = Now_ns();
  at_boundary_ = after_step;
  const bool goes_on = AttendPlace(after_step);
  at_boundary_ = false;
  if (is_first && goes_on) {
    Warn(position_.RestoreRandom(accelerator_.last_device()));
  }
  if (after_step || is_first) {
    stats_.MarkBoundary(Now_ns());
    profile_.EndBoundary();
  } else {
    stats_.Skip(Now_ns() - begin_ns);  // the step's time goes on behind it
    attention_ns_ = std::max(attention_ns_, begin_ns + kCheckpointRetry_ns);
  }
  return goes_on && MayGoOn();
}

bool SessionState::MayGoOn() const {
  if (board_.has_fatal() || evicted_ || finish_done_) return false;
  return !used_up_ || iterator_used_;
}

bool SessionState::CanCommit() const {
  return at_boundary_ || mark_.Holds(stats_.steps_done(), tracked_);
}

absl::Status SessionState::CannotCommit() {
  if (!checkpoints_.enabled()) return absl::OkStatus();
  checkpoints_.Wait().IgnoreError();  // one may be under way
  const Generation latest = checkpoints_.latest();
  log_.Info(
      StrCat("no checkpoint is taken inside a step; a restart goes on ",
             latest == Generation() ? "from the beginning"
                                    : StrCat("from ", GenerationName(latest)),
             " (call StepDone() before an evaluation to have one there)"));
  return absl::OkStatus();
}

void SessionState::SetMark() {
  if (!checkpoints_.enabled()) return;
  Snapshot snapshot;
  at_boundary_ = true;
  absl::Status status = CollectSnapshot(&snapshot);
  at_boundary_ = false;
  if (status.ok()) status = mark_.Set(stats_.steps_done(), snapshot, tracked_);
  if (!status.ok()) Fail(std::move(status));
}

void SessionState::WriteProfile() {
  profile_.MarkMemory(Now_ns(), device());
  Warn(profile_.Write(stats_));
}

void SessionState::FinishProfile() {
  if (!started_) return;
  WriteProfile();
  for (const std::string& line : profile_.Table(stats_)) log_.Info(line);
}

void SessionState::BeforeMove() {
  mark_held_ = mark_.Holds(stats_.steps_done(), tracked_);
}

void SessionState::AfterMove(at::Device device) {
  absl::Status status = CatchAsStatus("moving the batch", [&] {
    if (batch_owner_ != nullptr) batch_owner_->PlaceBatch(device);
    return mark_held_ ? mark_.Rebase(tracked_) : absl::OkStatus();
  });
  if (!status.ok()) Fail(std::move(status));
}

}  // namespace gavel::internal
