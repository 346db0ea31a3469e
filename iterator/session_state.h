// The session itself: the boundary between two steps, and what happens there.
// session.cc forwards to it. Training thread only, but for status() and
// steps_done().
//
// A boundary is cheap until something calls: the lease thread or a signal (the
// gate), the lease's deadline, a checkpoint that is due, the step budget. Then
// Attend() looks at each in turn. session_state.cc has the boundary and the
// loop, session_pause.cc pausing and resuming, session_finish.cc the ends.
#ifndef GAVEL_ITERATOR_SESSION_STATE_H_
#define GAVEL_ITERATOR_SESSION_STATE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "gavel/session.h"
#include "iterator/accelerator.h"
#include "iterator/boundary_gate.h"
#include "iterator/checkpoints.h"
#include "iterator/lease_thread.h"
#include "iterator/log.h"
#include "iterator/loop_position.h"
#include "iterator/optimizer_check.h"
#include "iterator/signals.h"
#include "iterator/status_board.h"
#include "iterator/step_stats.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitEvicted = 75;

class SessionState {
 public:
  // `problem`: what was wrong with the options already.
  SessionState(SessionOptions options, absl::Status problem);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  absl::Status Track(std::unique_ptr<TrackedItem> item);
  void Report(std::string_view name, double value);
  void ReportTensor(std::string_view name, const at::Tensor& scalar);

  LoopPlan EnterLoop(RangePosition* range);
  void LoopForwarded();
  // False: the loop ends.
  bool Boundary(bool after_step) {
    const int64_t now_ns = Now_ns();
    if (after_step) stats_.CountStep(now_ns);
    if (stats_.steps_done() < attention_step_ && now_ns < attention_ns_ &&
        !gate_.IsCalled(now_ns)) {
      if (!after_step) stats_.MarkBoundary(now_ns);
      return true;
    }
    return Attend(after_step);
  }
  void LeaveLoop();
  // The loop ends with this error, which stays.
  void Fail(absl::Status status);
  int Finish();

  at::Device device() const { return accelerator_.device(); }
  int rank() const { return options_.rank; }
  int world_size() const { return world_size_; }
  int64_t steps_done() const {
    return static_cast<int64_t>(stats_.steps_done());
  }
  bool stopped() const { return stopped_ || board_.has_fatal(); }
  bool finished() const;
  absl::Status status() const { return board_.Get(); }

 private:
  bool managed() const { return !options_.coordinator.empty(); }

  // ---- session_state.cc
  absl::Status OpenReportFile();
  absl::Status OpenCheckpoints();
  absl::Status StartLoop(RangePosition* range, LoopPlan* plan);
  absl::Status Start();
  bool Attend(bool after_step);
  void SlowDown();
  void ScheduleCheckpoint();
  void SetAttention();
  bool BudgetIsUsedUp() const;
  bool CheckpointIsDue(int64_t now_ns) const;

  // ---- session_pause.cc
  // True: the loop goes on.
  bool AnswerCalls();
  bool StopAlone();
  // Gives the accelerator back, commits, and waits for the next lease. False:
  // the loop ends (and under an agent the process already has).
  bool Park(const lease_action::Pause& pause);
  bool ReleaseAccelerator();
  bool WaitForLease();
  bool Resume(const lease_action::Resume& lease);
  absl::Status MoveRandom(at::Device from);
  bool TakeDeviceAlone();

  // ---- session_finish.cc
  // A failed commit is reported and tried again when the next is due.
  absl::Status Commit();
  absl::Status CollectSnapshot(Snapshot* snapshot);
  Generation NextGeneration() const;
  // Never returns: no code of the host runs for an unfinished job.
  [[noreturn]] void EndProcess(const std::string& why);
  bool IsRejected() const { return lease_thread_ && lease_thread_->rejected(); }

  SessionOptions options_;
  Log log_;
  StatusBoard board_;
  StepStats stats_;
  BoundaryGate gate_;
  TrackedState tracked_;
  Checkpoints checkpoints_;
  LoopPosition position_;
  OptimizerCheck optimizer_check_;
  Accelerator accelerator_;
  std::unique_ptr<LeaseThread> lease_thread_;  // after what it borrows
  Signals signals_;
  std::FILE* report_file_ = nullptr;

  // The next boundary that is looked at closely, by count and by time.
  uint64_t attention_step_ = 0;
  int64_t attention_ns_ = 0;
  int64_t checkpoint_due_ns_ = 0;
  uint64_t checkpoint_due_step_ = 0;

  bool started_ = false;  // the first loop was begun
  bool stopped_ = false;  // no more batches
  bool evicted_ = false;  // stopped from outside
  bool used_up_ = false;  // the step budget
  bool finish_done_ = false;
  int exit_code_ = kExitDone;
  uint64_t lease_epoch_ = 0;
  uint64_t generation_epoch_ = 0;  // never below that of the restored one
  int world_size_ = 1;
  int64_t last_tensor_read_ns_ = 0;
  bool report_refused_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_STATE_H_
