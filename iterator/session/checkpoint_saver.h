// Commits the state of a step's end as a generation: when that is due, in the
// background, and together with the other ranks of a gang. Without a checkpoint
// directory nothing is saved, and nothing fails.
//
// Training thread only. The writer's thread reports to this object what came of
// each save; Wait() before anything that is borrowed goes.
#ifndef GAVEL_ITERATOR_SESSION_CHECKPOINT_SAVER_H_
#define GAVEL_ITERATOR_SESSION_CHECKPOINT_SAVER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "iterator/checkpoints.h"
#include "iterator/session/checkpoint_schedule.h"
#include "iterator/session/coordinator_link.h"
#include "iterator/session/gang_membership.h"
#include "iterator/session/session_context.h"
#include "iterator/session/training_state.h"
#include "runtime/files/file_lock.h"

namespace gavel::internal {

class CheckpointSaver {
 public:
  // Borrows all, which must live longer.
  CheckpointSaver(SessionContext& context, CoordinatorLink& link,
                  TrainingState& state, GangMembership& gang)
      : context_(context),
        link_(link),
        state_(state),
        gang_(gang),
        schedule_(context.options) {}

  // Reads the generation to resume from, if there is one, and logs it. Errors
  // as of Checkpoints::Open. FAILED_PRECONDITION: without a coordinator,
  // another process saves in this directory. PERMISSION_DENIED and other
  // errors of access(2): it can't be written to.
  absl::Status Open();
  // See Checkpoints; null: the job begins.
  const Snapshot* restored() const { return checkpoints_.restored(); }
  void Forget() { checkpoints_.Forget(); }
  // Nothing is saved any more: another program may save there.
  void LeaveDirectory() { in_use_.reset(); }
  bool enabled() const { return checkpoints_.enabled(); }
  // The job had done all these steps before this process began.
  bool IsAtRestoredStep() const {
    return restored_step_ == context_.stats.steps_done();
  }

  // ---- When.
  // The next one is due an interval from now.
  void Schedule();
  // The coordinator wants one.
  void RequestAt(int64_t now_ns) { schedule_.RequestAt(now_ns); }
  bool IsDue(int64_t now_ns) const;
  // For a gang: by steps it is due on all ranks at once, by time rank 0 says.
  bool IsDueBySteps() const;
  bool IsDueByTime(int64_t now_ns) const;
  // The step and the time at which a boundary should look at IsDue() again.
  uint64_t NextLook_step() const;
  int64_t NextLook_ns(int64_t now_ns) const;

  // ---- Saving.
  // Begins to save what TrainingState collects, after the save under way. A
  // failure is reported, and the next save is tried when it is due; of a state
  // that can't be saved it ends the loop. Where
  // nothing can be collected, says so and returns OK. `copies`, if not null: of
  // the tensors, empty when none were made. `again`: also when there is a
  // checkpoint of this step, which the new one replaces.
  absl::Status Commit(std::vector<HostCopy>* copies = nullptr,
                      bool again = false);
  bool IsBusy() const { return checkpoints_.IsBusy(); }
  // Until no save is under way; what came of the last one.
  absl::Status Wait() { return checkpoints_.Wait(); }
  // The same while training waits; the coordinator is told of the progress.
  absl::Status WaitAndTell();
  // Unless the save of the gang's stop is still under way, which does so later.
  void SettleGang();

  // ---- Memory and files.
  // Gets the memory for copies in the background, once.
  void PrepareOnce();
  // Generations are of this epoch from now on, if it is higher.
  void RaiseEpoch(uint64_t epoch);
  // Without a lease the epoch is that of before a restart, so steps come again
  // under the same names: removes what an interrupted save has left.
  void RemoveLeftovers();

 private:
  absl::Status CheckOwner();
  absl::Status TakeDirectory();
  Generation NextGeneration() const;
  CommitOptions OptionsOfSave();
  void SayCannotCommit();
  // By the writer's thread, or by the training thread when no copy was made.
  void SaveDone(Generation generation, const absl::Status& status);

  SessionContext& context_;
  CoordinatorLink& link_;
  TrainingState& state_;
  GangMembership& gang_;
  CheckpointSchedule schedule_;
  std::optional<FileLock> in_use_;  // of the directory
  uint64_t epoch_ = 0;  // never below that of the restored generation
  std::optional<uint64_t> restored_step_;
  bool prepared_ = false;
  Save save_;  // the last one; not changed while it is under way
  Generation save_generation_;        // of save_
  std::atomic<int64_t> begin_ns_{0};  // of save_; read by the writer's thread
  Checkpoints checkpoints_;           // last: its thread calls SaveDone()
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_CHECKPOINT_SAVER_H_
