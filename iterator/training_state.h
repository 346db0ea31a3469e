// The state of the training in this process: where its loop is, on which
// accelerator it is, and whether a checkpoint can be taken of it. Training
// thread only.
#ifndef GAVEL_ITERATOR_TRAINING_STATE_H_
#define GAVEL_ITERATOR_TRAINING_STATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gavel/internal/range_position.h"
#include "iterator/accumulation_watch.h"
#include "iterator/environment.h"
#include "iterator/session_context.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/accelerator_lock.h"
#include "runtime/lease/lease_machine.h"

namespace gavel::internal {

// Where the loop is: the position in the range of batches, those of all data
// loaders, and the state of the random generators, into a Snapshot and back.
//
//   gavel/loop            positioned | forwarded | restarted | ended | none
//   gavel/loop/batches    batches of this loop that were trained on
//   gavel/loop/position   of a positioned range, as it gave it
//   gavel/loop/loaders/N  position of the gavel::DataLoader with number N
//   gavel/loop/first      hash of the first batch of a forwarded range
//   gavel/loop/random     the CPU's generator when the loop was begun
//   gavel/loop/end        there: Finish() was called, so the job is done
//   gavel/loop/evaluates  there: the evaluation after this step is not done
//   gavel/random/...      the generators now
class LoopPosition {
 public:
  explicit LoopPosition(Log& log) : log_(log) {}
  ~LoopPosition();
  LoopPosition(const LoopPosition&) = delete;
  LoopPosition& operator=(const LoopPosition&) = delete;

  // Keeps what the first loop needs. DATA_LOSS: entries are missing.
  absl::Status Restore(const Snapshot& snapshot);

  // FAILED_PRECONDITION: the loop over `range` could not be continued after a
  // restart.
  absl::Status CheckRange(const RangePosition& range);
  // A loop over `range` begins (borrowed until Leave). The first one after a
  // restore goes on where it was; the plan's `skip` batches are to be taken
  // before Forwarded(). FAILED_PRECONDITION: the position is of other data, or
  // the loops before had no batch.
  absl::StatusOr<int64_t> Enter(RangePosition* range, uint64_t steps_done);
  // The first batch of a loop over a forwarded range. FAILED_PRECONDITION: it
  // is not the one of before the restart.
  absl::Status FirstBatch(uint64_t fingerprint);
  // The device is there and batches were skipped: sets the range's shard and
  // the restored random states.
  absl::Status Forwarded(at::Device device, int rank, int world_size);
  // INVALID_ARGUMENT: the range can't be read by so many, or has no step.
  absl::Status SetShard(int rank, int world_size);
  // These two describe the batch that was handed out last.
  bool EndsStep() const { return range_ == nullptr || range_->EndsStep(); }
  double LossScale() const { return range_ ? range_->LossScale() : 1; }
  // `keeps_place`: the job's steps are used up in the middle of the loop, where
  // it continues if it gets more of them.
  absl::Status Leave(bool keeps_place, at::Device device, uint64_t steps_done);
  // Outside of a loop: the restored random states, which the first loop sets
  // once more.
  absl::Status RestoreRandom(at::Device device) const;
  // Call this if the program counts its steps itself: then no loop is resumed.
  void BeginOwnLoop();
  bool inside() const { return range_ != nullptr; }
  // The range is used up: of the loop that runs, or already before it began.
  void ReachEnd() { at_end_ = true; }
  bool at_end() const { return at_end_; }
  // State that is collected from now on is that of a job that is done.
  void SetEnd() { end_ = true; }
  // The restored state is that of a job that is done.
  bool restored_end() const { return restored_end_; }
  // While an evaluation is due, the state that is collected says so, and a
  // restart begins with it.
  void SetEvaluationDue(bool due) { evaluation_due_ = due; }
  bool evaluation_due() const { return evaluation_due_; }
  // The range of the loop that runs; null: none does.
  const RangePosition* range() const { return range_; }

  absl::Status Collect(at::Device device, uint64_t steps_done,
                       Snapshot* snapshot);

 private:
  absl::Status CollectRandom(at::Device device, Snapshot* snapshot);
  absl::StatusOr<int64_t> BatchesToSkip(const std::string& saved_kind,
                                        int64_t batches);
  std::string SavedPositionOf(const RangePosition& range) const;
  absl::Status LoadPosition();
  void SaveRangePosition();

  Log& log_;
  RangePosition* range_ = nullptr;
  int64_t batches_before_ = 0;  // of this loop, before this process
  uint64_t steps_at_begin_ = 0;
  std::string begin_random_;
  std::string last_position_;  // of the positioned range, also after its loop
  uint64_t first_batch_ = 0;   // see FingerprintOf()
  const void* positioned_ = nullptr;  // the range of the program's own
  int empty_loops_ = 0;               // in a row
  bool at_end_ = false;
  bool end_ = false;
  bool restored_end_ = false;
  bool evaluation_due_ = false;
  std::optional<Snapshot> kept_;  // the entries of a loop that was left

  // Restored, until the first loop has them.
  struct Pending {
    Snapshot entries;  // the bytes above only
    bool loop_taken = false;
  };
  std::optional<Pending> pending_;
};

// The worker's hold on an accelerator: its lock, its threads, and the tracked
// state on it. Alone there is a device without a lock.
class Accelerator {
 public:
  // `run_directory` empty: no locks are taken.
  explicit Accelerator(std::string run_directory)
      : run_directory_(std::move(run_directory)) {}

  // Locks the granted accelerator, makes it the current device of this thread,
  // sets LibTorch's threads when it is a CPU slot, and moves `tracked` there.
  // Waits up to two seconds, never past the lease, for the lock, and for an
  // exclusive device or memory that somebody else is about to give back. On an
  // error nothing is held. UNAVAILABLE: locked by another process, whose pid is
  // in the message, or used by one exclusively. FAILED_PRECONDITION: no such
  // device. RESOURCE_EXHAUSTED: the state does not fit. Other codes: see
  // device_failed().
  absl::Status Take(const lease_action::Resume& lease, TrackedState& tracked);
  // Alone: no lock. `device` empty: the accelerator of that number, or the CPU
  // where there is none.
  absl::Status Use(const std::string& device, int local_rank,
                   TrackedState& tracked);
  // Waits for the device, calls `leave`, moves `tracked` to host memory, gives
  // memory and lock back. On an error, also of `leave`, the accelerator is
  // still held. `tracked` null: the state stays where it is, what else the
  // allocator holds is given back.
  absl::Status Release(TrackedState* tracked,
                       const std::function<absl::Status()>& leave);
  // The lock only: at the process's end, when the state is needed no more.
  void Unlock();
  // While a CPU slot is held: its lease is of so many threads now. True: of
  // another number than before.
  absl::StatusOr<bool> UseThreads(int threads);

  bool held() const { return held_; }
  // The last Take failed, and would for any state: the device is not there,
  // does not work, or only another process may use it.
  bool device_failed() const { return device_failed_; }
  // The last Take failed for want of memory that other processes hold: the
  // state would fit the device without them.
  bool lacked_room() const { return lacked_room_; }
  // Where the tracked state is: in host memory when none is held, unless it
  // was kept.
  at::Device device() const {
    return held_ || kept_ ? device_ : at::Device(at::kCPU);
  }
  bool kept() const { return kept_; }
  // The one held, or held last: its random generator is the job's.
  at::Device last_device() const { return device_; }
  // The accelerator of the present lease, or of the last one: the factor by
  // which steps are slowed down for a demonstration (at least 1), and its UUID.
  double slow_down_factor() const { return slow_down_factor_; }
  const std::string& uuid() const { return uuid_; }

 private:
  absl::Status Lock(const lease_action::Resume& lease);
  absl::Status Begin(const lease_action::Resume& lease, at::Device device,
                     TrackedState& tracked);

  std::string run_directory_;
  std::optional<AcceleratorLock> lock_;
  bool held_ = false;
  bool kept_ = false;  // not held, but the state is still there
  bool device_failed_ = false;
  bool lacked_room_ = false;
  at::Device device_{at::kCPU};
  std::string uuid_;
  double slow_down_factor_ = 1;
};

// The state of the training in this process: on which accelerator it is, and
// whether a checkpoint can be taken of it.
//
// A generation holds the state of a step's end, since a restart begins there.
// At a boundary that ends a step this is the state in memory. Elsewhere (in an
// evaluation, say) the mark of the last step's end gives it, as long as nobody
// has written to the tensors since.
class TrainingState {
 public:
  struct Sizes {  // in bytes
    uint64_t state = 0;
    uint64_t on_device = 0;  // what the process has of the accelerator
    uint64_t in_host = 0;    // of the state, outside of the arena
  };

  // Borrows all, which must live longer.
  TrainingState(SessionContext& context, TrackedState& tracked,
                LoopPosition& position, AccumulationWatch& accumulation);

  // ---- Snapshots.
  // Before the first loop. Returns the errors of LoopPosition::Restore; tracked
  // items restore themselves when they are added.
  absl::Status Restore(const Snapshot& snapshot);
  // The training thread is at the end of a step.
  void SetAtStepEnd(bool at_step_end) { at_step_end_ = at_step_end; }
  bool at_step_end() const { return at_step_end_; }
  // Whether Collect() gives the state of a step's end.
  bool CanCollect() const;
  // With the gradients that belong to the state.
  absl::Status Collect(Snapshot* snapshot);
  // See TrackedState; call it at a step's end.
  absl::Status CheckRestorable() { return tracked_.CheckRestorable(); }
  // The snapshot of this step's end is being saved.
  void Saved() { accumulation_.Saved(context_.stats.steps_done()); }
  // Here is a step's end, to be collected later, too.
  void SetMark();

  // ---- The accelerator.
  // Moves the state there, with the job's random numbers, and gives the loop
  // its shard. Returns the errors of Accelerator::Take and
  // LoopPosition::SetShard; after an error, call Abandon().
  absl::Status Take(const lease_action::Resume& lease);
  // Without a lease. Returns the errors of Accelerator::Use.
  absl::Status UseAlone();
  // Calls the program's functions once the state and the gang are there. An
  // exception of theirs is INTERNAL.
  absl::Status TellAcquired();
  // Call before Park() and Release(): whether the mark holds is seen here.
  void BeforeMove();
  // A copy of the state in host memory serves as the state; see TrackedState.
  absl::Status Park(const std::vector<HostCopy>& copies);
  absl::Status Divide(const std::vector<HostCopy>& copies,
                      const std::vector<at::Tensor>& gradients) {
    return tracked_.Divide(copies, gradients);
  }
  const DividedTensors& divided() const { return tracked_.divided(); }
  // The gang has come together.
  void FillDivided() { tracked_.FillDivided(); }
  // These two are Accelerator's.
  absl::Status Release(bool keep);
  absl::StatusOr<bool> UseThreads(int threads);
  void Unlock() { accelerator_.Unlock(); }
  // Gives back what a failed Take() left held.
  void Abandon() { Release(/*keep=*/false).IgnoreError(); }
  // See Session.
  void OnRelease(std::function<void()> call) {
    on_release_.push_back(std::move(call));
  }
  void OnAcquire(std::function<void(at::Device)> call) {
    on_acquire_.push_back(std::move(call));
  }

  // Something is this rank's part for the gang that the process began in: with
  // another number of workers it must begin again.
  bool has_parts() const { return tracked_.has_parts(); }
  const Accelerator& accelerator() const { return accelerator_; }
  at::Device device() const { return accelerator_.device(); }
  // A GPU is held.
  bool OnGpu() const { return accelerator_.held() && !device().is_cpu(); }
  Sizes ReadSizes() const;
  // The arena makes room in time for all that would leave a GPU.
  void ExpectMove() {
    if (OnGpu()) context_.arena.ExpectMove(tracked_.MoveBytes());
  }
  // After Release: what tensors of this process still hold on the accelerator.
  uint64_t LeftBytes() const;

  // The batch of the loop that runs, which moves with the state. Null: none.
  void SetBatch(BatchOwner* batch) { batch_ = batch; }

 private:
  absl::Status LeaveDevice(bool keep);
  void AfterMove();
  absl::Status MoveRandom(at::Device from);

  SessionContext& context_;
  TrackedState& tracked_;
  LoopPosition& position_;
  AccumulationWatch& accumulation_;
  Accelerator accelerator_;
  StepMark mark_;
  std::vector<std::function<void()>> on_release_;
  std::vector<std::function<void(at::Device)>> on_acquire_;
  bool told_acquired_ = false;
  BatchOwner* batch_ = nullptr;
  bool at_step_end_ = false;
  bool mark_held_ = false;  // before the move under way
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRAINING_STATE_H_
