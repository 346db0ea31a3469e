// The generations of a job as its session needs them: the one to resume from,
// when the next is due, and saving it.
#ifndef GAVEL_ITERATOR_CHECKPOINT_SAVER_H_
#define GAVEL_ITERATOR_CHECKPOINT_SAVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/generation.h"
#include "gavel/session_options.h"
#include "iterator/clock.h"
#include "iterator/coordinator_link.h"
#include "iterator/gang.h"
#include "iterator/session_context.h"
#include "iterator/training_state.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/device/tensor_hash.h"
#include "runtime/files/files.h"

namespace gavel::internal {

inline constexpr uint64_t kNoStep = std::numeric_limits<uint64_t>::max();

// When the next periodic checkpoint is due, by time and by steps. Pure. Times
// are those of iterator/clock.h.
class CheckpointSchedule {
 public:
  // Borrows `options`, which must live longer.
  explicit CheckpointSchedule(const SessionOptions& options)
      : options_(options) {}

  // The last save held training up for `stall_s` > 0; the interval follows from
  // it when the options leave that open.
  void SetStall(double stall_s) { stall_s_ = stall_s; }
  // The next one is due an interval from `now`. Before the first call it is due
  // at once.
  void Restart(Time now, uint64_t steps_done, int world_size);
  // It is due at `now_ns`.
  void RequestAt(int64_t now_ns) { due_ns_ = now_ns; }

  int64_t due_ns() const { return due_ns_; }       // kNever_ns: not by time
  uint64_t due_step() const { return due_step_; }  // kNoStep: not by steps

 private:
  double Interval_s(int world_size) const;

  const SessionOptions& options_;
  int64_t due_ns_ = 0;
  uint64_t due_step_ = 0;
  double stall_s_ = 0;  // 0: there was no save yet
};

// For the log: when the first periodic checkpoint comes. Empty without a
// checkpoint directory.
std::string FirstCheckpointText(const SessionOptions& options);

// Commits the state of a step's end as a generation: when that is due, in the
// background, and together with the other ranks of a gang. Without a checkpoint
// directory nothing is saved, and nothing fails.
//
// Training thread only. The writer's thread reports to this object what came of
// each save; Wait() before anything that is borrowed goes.
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

  // Reads the latest generation that verifies, and logs it. A job without a
  // generation is no error, other errors are those of GenerationStore.
  // FAILED_PRECONDITION: without a coordinator, another process saves in this
  // directory. PERMISSION_DENIED and other errors of access(2): the directory
  // can't be written to.
  absl::Status Open();
  // The state to resume from, until Forget(); null: the job begins. Entries of
  // this rank have the names under which it collected them, and those of other
  // ranks are left out.
  const Snapshot* restored() const {
    return restored_ ? &restored_->snapshot : nullptr;
  }
  // Lets saves use the memory of the restored state.
  void Forget() { restored_.reset(); }
  // The best checkpoint by the session's options. FAILED_PRECONDITION: they
  // name no directory or no scalar; else an error of
  // GenerationStore::RestoreBest().
  absl::StatusOr<Restored> RestoreBest();
  // Nothing is saved any more: another program may save there.
  void LeaveDirectory() { in_use_.reset(); }
  bool enabled() const { return writer_ != nullptr; }
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
  bool IsBusy() const { return enabled() && writer_->IsBusy(); }
  // Waits until no save is under way. Returns the outcome of the last one.
  absl::Status Wait() { return enabled() ? writer_->Wait() : absl::OkStatus(); }
  // The same while training waits; reports the progress to the coordinator.
  absl::Status WaitAndTell();
  // Unless the save of the gang's stop is still under way, which does so later.
  void SettleGang();

  // ---- Memory and files.
  // Gets the memory for copies in the background, once.
  void PrepareOnce();
  // Later generations get this epoch, if it is higher.
  void RaiseEpoch(uint64_t epoch);
  // Without a lease the epoch is that of before a restart, so steps come again
  // under the same names: removes what an interrupted save has left.
  void RemoveLeftovers();

 private:
  absl::Status CheckOwner();
  // Opens the store of generations, and reads the one to resume from.
  absl::Status OpenStore();
  absl::Status TakeDirectory();
  Generation NextGeneration() const;
  CommitOptions OptionsOfSave();
  void SayCannotCommit();
  // The generation of the last commit or restore; nullopt: none. Any thread.
  std::optional<Generation> Latest() const;
  void SetLatest(Generation generation);
  // Whether another worker has committed a generation of a higher epoch. Any
  // thread.
  bool IsSuperseded(Generation generation) const;
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
  std::optional<Restored> restored_;
  mutable std::mutex mutex_;
  std::optional<Generation> latest_;  // guarded by mutex_
  TensorHasher hasher_;
  // Last: its thread calls SaveDone().
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_CHECKPOINT_SAVER_H_
