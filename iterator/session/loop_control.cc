#include "iterator/session/loop_control.h"

#include <utility>

#include "core/text.h"
#include "iterator/clock.h"

namespace gavel::internal {

bool LoopControl::BudgetIsUsedUp() const {
  const int64_t steps_total = context_.options.steps_total;
  return steps_total > 0 &&
         static_cast<int64_t>(context_.stats.steps_done()) >= steps_total;
}

bool LoopControl::Attend(bool between_steps) {
  const bool needs_device = !context_.managed() && !state_.accelerator().held();
  if (needs_device && !lease_.TakeAlone()) return false;
  if (!gang_.joined() && context_.gate.IsCalled(Now_ns())) {
    const bool continues =
        context_.managed() ? lease_.AnswerCalls() : AnswerCallsAlone();
    if (!continues) return false;
  }
  return !gang_.joined() || AttendGang(between_steps);
}

bool LoopControl::AnswerCallsAlone() {
  if (context_.gate.stop_requested()) return StopAlone();
  if (context_.gate.Take(/*wait=*/false).checkpoint) {
    saver_.RequestAt(Now_ns());
  }
  return true;
}

bool LoopControl::StopAlone() {
  stopped_ = evicted_ = true;
  const std::string line =
      StrCat("ended by a signal after step ", context_.stats.steps_done());
  context_.log.Info(line);
  saver_.Commit().IgnoreError();
  saver_.SettleGang();
  context_.board.SetEnded(absl::CancelledError(line));
  return false;
}

bool LoopControl::EndGangStep() {
  if (!gang_.joined()) return true;
  absl::Status status = gang_.EndStep();
  if (status.ok()) return true;
  if (absl::IsUnavailable(status)) {
    return LeaveBrokenGang(std::string(status.message()));
  }
  context_.Fail(std::move(status));
  gang_.LeaveBroken();
  return false;
}

bool LoopControl::AttendGang(bool between_steps) {
  if (context_.gate.IsDeadlineOver(Now_ns())) {
    return LeaveBrokenGang("the lease ended before all ranks agreed on a step");
  }
  // Resting: nothing runs, and the state of the last step's end can be saved.
  const bool rests =
      !state_.at_step_end() && between_steps && state_.CanCollect();
  // Nothing is agreed inside a step.
  if (!state_.at_step_end() && !rests) return true;
  TakeGangCalls();
  while (true) {
    switch (gang_.Pass(/*begins=*/!rests)) {
      case StopMember::Passage::kGoOn:
        if (!rests && saver_.IsDueBySteps()) saver_.Commit().IgnoreError();
        return true;
      case StopMember::Passage::kCheckpoint:
        saver_.Commit().IgnoreError();
        break;
      case StopMember::Passage::kStop:
        return StopGang(between_steps);
      case StopMember::Passage::kWait:
      case StopMember::Passage::kMissed:
        return LeaveBrokenGang(gang_.why_broken());
    }
  }
}

// Passes on to the other ranks what this one is told.
void LoopControl::TakeGangCalls() {
  const int64_t now_ns = Now_ns();
  if (context_.gate.has_calls()) {
    const BoundaryGate::Calls calls = context_.gate.Take(/*wait=*/false);
    gang_.TakeCalls(calls);
    if (calls.threads) lease_.UseThreads(*calls.threads);
    if (calls.checkpoint) saver_.RequestAt(now_ns);
  }
  gang_.WantStopIfDue(now_ns);
  // The clock of one rank counts.
  if (context_.options.rank == 0 && saver_.IsDueByTime(now_ns)) {
    gang_.WantCheckpoint();
  }
}

bool LoopControl::StopGang(bool between_steps) {
  if (const absl::Status status = gang_.Stop(); !status.ok()) {
    return LeaveBrokenGang(std::string(status.message()));
  }
  if (!context_.managed()) return StopAlone();
  return lease_.Park(gang_.TakePause()) &&
         (!gang_.joined() || AttendGang(between_steps));
}

bool LoopControl::LeaveBrokenGang(const std::string& why) {
  gang_.LeaveBroken();
  const std::string line =
      StrCat("the gang is broken in step ", context_.stats.steps_done(), ": ",
             why, "; it starts again from the last generation");
  context_.log.Warning(line);
  if (context_.managed()) exit_.Evict("the gang is broken");
  stopped_ = evicted_ = true;
  context_.board.SetEnded(absl::UnavailableError(line));
  return false;
}

}  // namespace gavel::internal
