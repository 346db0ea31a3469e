// Checkpoints of the session, and its ends.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/session/session_state.h"

namespace gavel::internal {

Generation SessionState::NextGeneration() const {
  return {generation_epoch_, stats_.steps_done()};
}

absl::Status SessionState::Commit(std::vector<HostCopy>* copies) {
  ScheduleCheckpoint();
  if (!CanCommit()) return CannotCommit();
  const Generation generation = NextGeneration();
  if (!checkpoints_.enabled()) return absl::OkStatus();
  const int64_t begin_ns = Now_ns();
  // One save at a time; and what is under way may be this generation.
  WaitForSave().IgnoreError();
  if (checkpoints_.IsCommitted(generation)) return absl::OkStatus();
  const int64_t copy_begin_ns = Now_ns();
  const RuntimeSpan span(profile_.ring(), "checkpoint copy");
  profile_.CountCheckpoint();
  checkpoint_begin_ns_ = copy_begin_ns;
  save_ = {generation.step,
           generation == save_generation_ ? save_.attempt + 1 : 1};
  save_generation_ = generation;
  gang_.BeginSave(save_);
  Snapshot snapshot;
  absl::Status status = CollectSnapshot(&snapshot);
  if (status.ok()) {
    status = checkpoints_.Begin(generation, std::move(snapshot),
                                OptionsOfSave(), copies);
  }
  checkpoint_stall_s_ = ToSeconds(Now_ns() - copy_begin_ns);
  stats_.AddPausing(Now_ns() - begin_ns);
  ScheduleCheckpoint();
  if (!status.ok()) CheckpointDone(generation, status);
  return status;
}

absl::Status SessionState::WaitForSave() {
  if (lease_thread_) lease_thread_->SetSaving(true);
  absl::Status status = checkpoints_.Wait();
  if (lease_thread_) lease_thread_->SetSaving(false);
  return status;
}

// Asked by the writer's thread.
CommitOptions SessionState::OptionsOfSave() {
  CommitOptions options;
  options.world_size = world_size_;
  options.gang_wait_s = options_.gang_wait_s;
  options.before_commit = [this] {
    if (!IsRejected()) return absl::OkStatus();
    return absl::CancelledError(
        "the coordinator has given this job to another process");
  };
  options.gives_up = [this, save = save_] {
    if (!gang_broken_.load(std::memory_order_acquire)) {
      return gang_.SaveStatus(save);
    }
    return absl::CancelledError("the gang is broken");
  };
  options.all_have_begun = [this, save = save_] {
    return gang_.AllHaveBegun(save);
  };
  return options;
}

// The writer's thread calls this, or the training thread when there was no
// copy to write.
void SessionState::CheckpointDone(Generation generation,
                                  const absl::Status& status) {
  board_.SetCheckpoint(status);
  if (profile_.ring() != nullptr) {
    profile_.ring()->AddRuntime(RuntimeEvent{"checkpoint", checkpoint_begin_ns_,
                                             Now_ns(),
                                             RuntimeEvent::Row::kWriter});
  }
  if (status.ok()) {
    stats_.SetLastGeneration(generation);  // for the next report
  } else if (checkpoints_.IsSuperseded(generation)) {
    Fail(status);  // training on would be for nothing
  } else {
    log_.Warning(StrCat("no checkpoint this time: ", status.message()));
  }
  // The others wait for this rank's part.
  if (!status.ok()) gang_.FailSave(save_);
  const bool whole = gang_.Settle(generation.step, status.ok());
  if (status.ok() || whole || !managed()) return;
  // The lost rank starts again from the last generation, and can't meet others
  // that wait in memory with a later step.
  gate_.Pause({PauseTier::kStop,
               "the gang is broken: a rank was lost before the generation of "
               "its stop was written"});
}

void SessionState::PrepareCheckpoints() {
  checkpoints_prepared_ = true;
  Snapshot snapshot;
  // What is wrong with the state is said when it is saved.
  if (checkpoints_.enabled() && CanCommit() &&
      CollectSnapshot(&snapshot).ok()) {
    checkpoints_.Prepare(snapshot, world_size_);
  }
}

absl::Status SessionState::CollectSnapshot(Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(tracked_.Collect(snapshot));
  if (!at_boundary_) return mark_.Restore(snapshot), absl::OkStatus();
  return position_.Collect(accelerator_.last_device(), stats_.steps_done(),
                           snapshot);
}

void SessionState::EndProcess(const std::string& why) {
  log_.Info(StrCat("leaving the process after step ", stats_.steps_done(), ": ",
                   why));
  accelerator_.Unlock();
  checkpoints_.Wait().IgnoreError();  // what was begun is in the last report
  FinishProfile();
  gang_.WaitForOthers();
  lease_thread_->Finish({kExitEvicted, why, stats_.Read()});
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  // Neither destructors nor atexit handlers of the host: they belong to a
  // program that has come to its end.
  std::_Exit(kExitEvicted);
}

void SessionState::EndOutOfMemory(const std::string& what) {
  const std::string why =
      StrCat("out of memory after step ", stats_.steps_done(), ": ", what);
  log_.Error(
      StrCat(why, "; the job goes on elsewhere, from its last generation"));
  if (std::this_thread::get_id() == training_thread_) {
    checkpoints_.Wait().IgnoreError();  // what was begun is in the last report
  }
  lease_thread_->Finish({kExitFailed, why, stats_.Read()});
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::_Exit(kExitFailed);
}

void SessionState::SayIfFinishedBefore() {
  if (restored_step_ != stats_.steps_done()) return;
  log_.Warning(StrCat(
      "this job was finished before: ", options_.checkpoint_directory,
      " has its end at step ", *restored_step_,
      ", and nothing was trained now; raise its steps or epochs to train on, "
      "or give an empty GAVEL_CHECKPOINT_DIRECTORY to begin again"));
}

int SessionState::Finish() {
  if (finish_done_) return exit_code_;
  examination_.Finish(stats_.steps_done());
  if (started_ && !evicted_ && !board_.has_fatal()) {
    at_boundary_ = true;  // the program has come to its end
    gang_.End();
    absl::Status status = Commit();
    if (status.ok()) status = WaitForSave();
    // Done means that the result is on disk.
    if (!status.ok() && gang_.broken()) {
      evicted_ = true;
      log_.Warning(StrCat("the gang is broken at its end: ", gang_.why_broken(),
                          "; it starts again from the last generation"));
      board_.SetEnded(std::move(status));
    } else if (!status.ok()) {
      Fail(std::move(status));
    }
  }
  finish_done_ = true;
  WaitForSave().IgnoreError();
  FinishProfile();
  signals_.Restore();
  uncaught_exception_.Restore();
  exit_code_ = board_.has_fatal() ? kExitFailed
               : evicted_         ? kExitEvicted
                                  : kExitDone;
  if (exit_code_ == kExitDone) SayIfFinishedBefore();
  accelerator_.Unlock();
  gang_.Leave(exit_code_ == kExitDone ? Leaving::kDone : Leaving::kBroken);
  gang_.WaitForOthers();
  if (lease_thread_) {
    lease_thread_->Finish(
        {exit_code_, std::string(board_.Get().message()), stats_.Read()});
    lease_thread_.reset();
  }
  return exit_code_;
}

}  // namespace gavel::internal
