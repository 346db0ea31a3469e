// Whether the loop continues after a boundary: what the coordinator, a signal,
// the lease's end or the gang's agreement asks of it, and the step budget.
// Training thread only.
#ifndef GAVEL_ITERATOR_SESSION_LOOP_CONTROL_H_
#define GAVEL_ITERATOR_SESSION_LOOP_CONTROL_H_

#include <cstdint>
#include <string>

#include "iterator/session/checkpoint_saver.h"
#include "iterator/session/gang_membership.h"
#include "iterator/session/lease_holder.h"
#include "iterator/session/process_exit.h"
#include "iterator/session/session_context.h"
#include "iterator/session/training_state.h"

namespace gavel::internal {

class LoopControl {
 public:
  // Borrows all, which must live longer.
  LoopControl(SessionContext& context, TrainingState& state,
              GangMembership& gang, CheckpointSaver& saver, LeaseHolder& lease,
              ProcessExit& exit)
      : context_(context),
        state_(state),
        gang_(gang),
        saver_(saver),
        lease_(lease),
        exit_(exit) {}

  // These two: false when the loop ends. Under an agent an evicted process ends
  // here.
  //
  // After a step of a gang: whether it counts on all ranks.
  bool EndGangStep();
  // Takes the accelerator or waits for a lease where none is held, and pauses
  // or stops when told to. `between_steps`: no step is under way.
  bool Attend(bool between_steps);

  // All steps are done.
  void UseUpBudget() { stopped_ = used_up_ = true; }
  bool BudgetIsUsedUp() const;
  // The session has ended before the job has, and another process resumes it.
  void SetEvicted() { evicted_ = true; }

  bool stopped() const { return stopped_; }  // no more batches
  bool used_up() const { return used_up_; }  // the step budget
  bool evicted() const { return evicted_; }  // stopped from outside

 private:
  bool AnswerCallsAlone();
  bool StopAlone();
  bool AttendGang(bool between_steps);
  void TakeGangCalls();
  bool StopGang(bool between_steps);
  bool LeaveBrokenGang(const std::string& why);

  SessionContext& context_;
  TrainingState& state_;
  GangMembership& gang_;
  CheckpointSaver& saver_;
  LeaseHolder& lease_;
  ProcessExit& exit_;
  bool stopped_ = false;
  bool used_up_ = false;
  bool evicted_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_LOOP_CONTROL_H_
