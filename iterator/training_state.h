// The state of the training in this process: on which accelerator it is, and
// whether a checkpoint can be taken of it.
//
// A generation holds the state of a step's end, since a restart begins there.
// At a boundary that ends a step this is the state in memory. Elsewhere (in an
// evaluation, say) the mark of the last step's end gives it, as long as nobody
// has written to the tensors since.
//
// Training thread only.
#ifndef GAVEL_ITERATOR_TRAINING_STATE_H_
#define GAVEL_ITERATOR_TRAINING_STATE_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "iterator/accelerator.h"
#include "iterator/accumulation_watch.h"
#include "iterator/loop_position.h"
#include "iterator/session_context.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

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
  // Before the first loop. Errors as of LoopPosition::Restore; tracked items
  // restore themselves when they are added.
  absl::Status Restore(const Snapshot& snapshot);
  // The training thread is at the end of a step.
  void SetAtStepEnd(bool at_step_end) { at_step_end_ = at_step_end; }
  bool at_step_end() const { return at_step_end_; }
  // Whether Collect() gives the state of a step's end.
  bool CanCollect() const;
  // With the gradients that belong to the state.
  absl::Status Collect(Snapshot* snapshot);
  // As of TrackedState, at a step's end.
  absl::Status CheckRestorable() { return tracked_.CheckRestorable(); }
  // The snapshot of this step's end is being saved.
  void Saved() { accumulation_.Saved(context_.stats.steps_done()); }
  // Here is a step's end, to be collected later, too.
  void SetMark();

  // ---- The accelerator.
  // Moves the state there, with the job's random numbers, and gives the loop
  // its shard. Errors as of Accelerator::Take and LoopPosition::SetShard;
  // after an error, call Abandon().
  absl::Status Take(const lease_action::Resume& lease);
  // Without a lease. Errors as of Accelerator::Use.
  absl::Status UseAlone();
  // Calls the program's functions once the state and the gang are there. An
  // exception of theirs is INTERNAL.
  absl::Status TellAcquired();
  // Call before Park() and Release(): whether the mark holds is seen here.
  void BeforeMove();
  // As of TrackedState: a copy of the state in host memory serves as the state.
  absl::Status Park(const std::vector<HostCopy>& copies);
  absl::Status Divide(const std::vector<HostCopy>& copies,
                      const std::vector<at::Tensor>& gradients) {
    return tracked_.Divide(copies, gradients);
  }
  const DividedTensors& divided() const { return tracked_.divided(); }
  // The gang has come together.
  void FillDivided() { tracked_.FillDivided(); }
  // As of Accelerator.
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
