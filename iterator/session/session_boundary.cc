// The slow path of a boundary: of an Iterator, and outside of one (in
// evaluation, warm-up, and loops of the program's own).
//
// Outside of an Iterator the process can always pause, as everything stays in
// memory. A checkpoint needs the state of a step's end (TrainingState): that of
// now, when StepDone() was called just before; else that of the mark, which is
// set where a loop or a step is left.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "core/status.h"
#include "iterator/clock.h"
#include "iterator/session/session_state.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// A checkpoint that is due where none can be taken is tried again after this.
constexpr int64_t kCheckpointRetry_ns = 100'000'000;

// Sleeps as long as the step would take more on a slower accelerator. For
// demonstrations only; the log of each such lease says so.
void SlowDown(double factor, StepStats& stats) {
  if (factor <= 1) return;
  const int64_t begin_ns = Now_ns();
  std::this_thread::sleep_for(std::chrono::nanoseconds(
      std::llround((factor - 1) * static_cast<double>(stats.last_step_ns()))));
  stats.AddRunning(Now_ns() - begin_ns);
}

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
    step_counted_ = true;  // so that the Iterator does not count it again
    if (saver_.enabled()) state_.SetMark();
  } else {
    position_.BeginOwnLoop();
    step_done_ = true;
  }
}

bool SessionState::Attend(bool after_step) {
  if (stopped()) return false;
  state_.SetAtStepEnd(true);
  const bool continues = AttendGuarded(after_step);
  state_.SetAtStepEnd(false);
  context_.stats.MarkBoundary(Now_ns());
  context_.profile.EndBoundary();
  return continues;
}

bool SessionState::AttendOutside(bool after_step) {
  const bool is_first = !started_;
  if (is_first) {
    absl::Status status = CatchAsStatus(
        "beginning at a boundary", [&]() -> absl::Status { return Start(); });
    if (!status.ok()) Fail(std::move(status));
  }
  if (!MayContinue()) return false;
  // All steps were done before this process began: it needs no lease.
  if (context_.managed() && !asks_for_lease_) return true;
  const int64_t begin_ns = Now_ns();
  if (is_first) context_.profile.BeginBoundary(begin_ns);
  state_.SetAtStepEnd(after_step);
  const bool continues = AttendGuarded(after_step);
  state_.SetAtStepEnd(false);
  if (is_first && continues) {
    context_.Warn(position_.RestoreRandom(state_.accelerator().last_device()));
  }
  if (after_step || is_first) {
    context_.stats.MarkBoundary(Now_ns());
    context_.profile.EndBoundary();
  } else {
    context_.stats.Skip(Now_ns() - begin_ns);  // no part of the step's time
    attention_ns_ = std::max(attention_ns_, begin_ns + kCheckpointRetry_ns);
  }
  return continues && MayContinue();
}

bool SessionState::MayContinue() const {
  if (context_.board.has_fatal() || control_.evicted() || finish_done_) {
    return false;
  }
  return !control_.used_up() || iterator_used_;
}

// Nothing of ours throws into the host's loop.
bool SessionState::AttendGuarded(bool after_step) {
  bool continues = false;
  examination_.SetQuiet(true);
  absl::Status status = CatchAsStatus("at a boundary", [&] {
    continues = AttendAll(after_step);
    return absl::OkStatus();
  });
  examination_.SetQuiet(false);
  if (status.ok()) return continues;
  return Fail(std::move(status)), false;
}

// In order of severity.
bool SessionState::AttendAll(bool after_step) {
  if (after_step && !control_.EndGangStep()) return false;
  if (after_step && !AttendStep()) return false;
  const int64_t begin_ns = Now_ns();
  if (!control_.Attend(step_counted_ || !position_.inside())) return false;
  examination_.Paused(context_.stats.steps_done(), lease_.left_bytes());
  const bool is_due =
      std::exchange(lacks_gradients_, false) || saver_.IsDue(Now_ns());
  if (is_due && !gang_.joined() && state_.CanCollect()) {
    saver_.Commit().IgnoreError();
  }
  if (context_.board.has_fatal()) return false;
  if (after_step && accumulation_.decided()) saver_.PrepareOnce();
  context_.profile.Exclude(Now_ns() - begin_ns);
  context_.Warn(context_.profile.Tick(Now_ns(), device(), context_.stats));
  if (Now_ns() >= lease_.memory_due_ns()) lease_.TellMemory();
  SetAttention();
  return true;
}

bool SessionState::AttendStep() {
  SlowDown(state_.accelerator().slow_down_factor(), context_.stats);
  examination_.StepDone(context_.stats.steps_done());
  if (!std::exchange(state_checked_, true) && saver_.enabled()) {
    const int64_t begin_ns = Now_ns();
    absl::Status status = state_.CheckRestorable();
    if (!status.ok()) return Fail(std::move(status)), false;
    LogNotes();
    context_.profile.Exclude(Now_ns() - begin_ns);
  }
  for (const AccumulationWatch::News& news : accumulation_.TakeNews()) {
    if (news.left_out) {
      context_.log.Warning(news.text);
      saver_.RequestAt(Now_ns());  // a gang agrees on it
      lacks_gradients_ = true;
    } else {
      context_.log.Info(news.text);
    }
  }
  if (!optimizer_check_.done()) {
    absl::Status status = optimizer_check_.Check();
    if (!status.ok()) return Fail(std::move(status)), false;
  }
  if (!control_.BudgetIsUsedUp()) return true;
  control_.UseUpBudget();
  saver_.Commit().IgnoreError();
  return false;
}

void SessionState::SetAttention() {
  attention_step_ = saver_.NextLook_step();
  if (context_.options.steps_total > 0) {
    attention_step_ = std::min(
        attention_step_, static_cast<uint64_t>(context_.options.steps_total));
  }
  attention_ns_ =
      std::min({saver_.NextLook_ns(Now_ns()), context_.profile.next_tick_ns(),
                lease_.memory_due_ns()});
  if (!state_checked_ || !optimizer_check_.done() ||
      state_.accelerator().slow_down_factor() > 1 || gang_.joined() ||
      examination_.on()) {
    attention_step_ = 0;  // every step
  }
}

}  // namespace gavel::internal
