// Checkpoints of the session, and its ends.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/session_state.h"

namespace gavel::internal {

Generation SessionState::NextGeneration() const {
  return {generation_epoch_, stats_.steps_done()};
}

absl::Status SessionState::Commit() {
  ScheduleCheckpoint();
  const Generation generation = NextGeneration();
  if (!checkpoints_.enabled() || checkpoints_.IsCommitted(generation)) {
    return absl::OkStatus();
  }
  const int64_t begin_ns = Now_ns();
  Snapshot snapshot;
  absl::Status status = CollectSnapshot(&snapshot);
  if (status.ok()) {
    status = checkpoints_.Commit(generation, snapshot, world_size_, [this] {
      if (!IsRejected()) return absl::OkStatus();
      return absl::CancelledError(
          "the coordinator has given this job to another process");
    });
  }
  stats_.AddPausing(Now_ns() - begin_ns);
  board_.SetCheckpoint(status);
  if (status.ok()) {
    stats_.SetLastGeneration(generation);
    return status;
  }
  if (checkpoints_.IsSuperseded(generation)) {
    Fail(status);  // training on would be for nothing
  } else {
    log_.Warning(StrCat("no checkpoint this time: ", status.message()));
  }
  return status;
}

absl::Status SessionState::CollectSnapshot(Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(tracked_.Collect(snapshot));
  return position_.Collect(accelerator_.last_device(), stats_.steps_done(),
                           snapshot);
}

void SessionState::EndProcess(const std::string& why) {
  log_.Info(StrCat("leaving the process after step ", stats_.steps_done(), ": ",
                   why));
  accelerator_.Unlock();
  lease_thread_->Finish({kExitEvicted, why, stats_.Read()});
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  // Neither destructors nor atexit handlers of the host: they belong to a
  // program that has come to its end.
  std::_Exit(kExitEvicted);
}

int SessionState::Finish() {
  if (finish_done_) return exit_code_;
  if (started_ && !evicted_ && !board_.has_fatal()) {
    absl::Status status = Commit();
    // Done means that the result is on disk.
    if (!status.ok()) Fail(std::move(status));
  }
  finish_done_ = true;
  signals_.Restore();
  exit_code_ = board_.has_fatal() ? kExitFailed
               : evicted_         ? kExitEvicted
                                  : kExitDone;
  accelerator_.Unlock();
  if (lease_thread_) {
    lease_thread_->Finish(
        {exit_code_, std::string(board_.Get().message()), stats_.Read()});
    lease_thread_.reset();
  }
  return exit_code_;
}

}  // namespace gavel::internal
