// The session itself: the boundary between two steps, and what happens there.
// session.cc forwards to it. Training thread only, but for status() and
// steps_done().
//
// A boundary is cheap until something calls: the lease thread or a signal (the
// gate), the lease's deadline, a checkpoint that is due, the step budget. Then
// Attend() looks at each in turn. session_state.cc has the boundary and the
// loop, session_pause.cc pausing and resuming, session_gang.cc what differs
// when several processes train together, session_finish.cc the ends.
#ifndef GAVEL_ITERATOR_SESSION_SESSION_STATE_H_
#define GAVEL_ITERATOR_SESSION_SESSION_STATE_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "gavel/session.h"
#include "iterator/accelerator.h"
#include "iterator/boundary_gate.h"
#include "iterator/checkpoints.h"
#include "iterator/examination.h"
#include "iterator/gang.h"
#include "iterator/log.h"
#include "iterator/loop_position.h"
#include "iterator/optimizer_check.h"
#include "iterator/session/lease_thread.h"
#include "iterator/session/signals.h"
#include "iterator/session/status_board.h"
#include "iterator/session/uncaught_exception.h"
#include "iterator/step_mark.h"
#include "iterator/step_profile.h"
#include "iterator/step_stats.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;

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

  LoopPlan EnterLoop(RangePosition* range, BatchOwner* batch);
  void LoopForwarded();
  // Of an Iterator. False: the loop ends.
  bool StepBoundary(bool after_step) {
    const int64_t now_ns = Now_ns();
    if (after_step && !step_counted_) CountStep(now_ns);
    step_counted_ = false;
    profile_.BeginBoundary(now_ns);
    if (IsQuiet(now_ns)) {
      if (!after_step) stats_.MarkBoundary(now_ns);
      profile_.EndBoundary();
      return true;
    }
    return Attend(after_step);
  }
  // Anywhere else. False: the loop around it should be left.
  bool Boundary() {
    const int64_t now_ns = Now_ns();
    const bool after_step = step_done_;
    step_done_ = false;
    stats_.CountBoundary();
    if (after_step) profile_.BeginBoundary(now_ns);
    if (IsQuiet(now_ns)) {
      if (after_step) profile_.EndBoundary();
      return true;
    }
    return AttendOutside(after_step);
  }
  void StepDone();
  void BatchReady() { profile_.BatchReady(); }
  void EndSpan(const char* name, int64_t begin_ns, int64_t end_ns) {
    profile_.EndSpan(name, begin_ns, end_ns);
  }
  // `at_step_end`: its range was used up; else it was left in the midst.
  void LeaveLoop(bool at_step_end);
  // DataParallel's. Null, or too late: Fail().
  void AddToGang(std::shared_ptr<torch::nn::Module> module);
  void RemoveFromGang(const torch::nn::Module* module);
  bool last_micro_batch() const { return position_.EndsStep(); }
  double loss_scale() const { return position_.LossScale(); }
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
  Profile profile() const { return profile_.Read(stats_); }

 private:
  bool managed() const { return !options_.coordinator.empty(); }
  void CountStep(int64_t now_ns) {
    stats_.CountStep(now_ns);
    profile_.EndStep(now_ns, stats_.last_step_ns(), stats_.steps_done());
  }
  void Warn(const absl::Status& status);
  bool IsQuiet(int64_t now_ns) const {
    return stats_.steps_done() < attention_step_ && now_ns < attention_ns_ &&
           !gate_.IsCalled(now_ns);
  }

  // ---- session_state.cc
  absl::Status SayHello();
  absl::Status OpenReportFile();
  absl::Status OpenCheckpoints();
  absl::Status StartLoop(RangePosition* range, LoopPlan* plan);
  absl::Status Start();
  bool Attend(bool after_step);
  // Parts of it. False: the loop ends.
  bool AttendPlace(bool after_step);
  bool AttendCalls(bool after_step);
  bool AttendStep();
  bool AttendLease();
  void SlowDown();
  void ScheduleCheckpoint();
  void SetAttention();
  bool BudgetIsUsedUp() const;
  bool CheckpointIsDue(int64_t now_ns) const;

  // ---- session_boundary.cc
  bool AttendOutside(bool after_step);
  bool MayGoOn() const;
  // A generation can be committed from here; else what the log says of it.
  bool CanCommit() const;
  absl::Status CannotCommit();
  // This is a step's end, to be committed from later.
  void SetMark();
  // The files and the log get what the profile has.
  void WriteProfile();
  void FinishProfile();
  // Around every move of the tracked state.
  void BeforeMove();
  void AfterMove(at::Device device);

  // ---- session_pause.cc
  // True: the loop goes on.
  bool AnswerCalls();
  void UseThreads(int threads);
  bool StopAlone();
  // Gives the accelerator back, commits, and waits for the next lease. False:
  // the loop ends (and under an agent the process already has).
  bool Park(const lease_action::Pause& pause);
  void ParkInCheckpoint();
  bool ReleaseAccelerator(bool keep);
  void TellMemory();
  bool WaitForLease();
  bool Resume(const lease_action::Resume& lease);
  absl::Status MoveRandom(at::Device from);
  bool TakeDeviceAlone();

  // ---- session_gang.cc
  absl::Status JoinLeased(const lease_action::Resume& lease);
  absl::Status JoinAlone();
  absl::Status CheckElastic(const RangePosition& range) const;
  absl::Status JoinGang(GangPlan plan);
  // False: the loop ends (and under an agent the process already has).
  bool EndGangStep();
  bool AttendGang();
  // What runs lies between two steps, and the state of the last one's end can
  // be written.
  bool RestsBetweenSteps() const {
    return (step_counted_ || !position_.inside()) && CanCommit();
  }
  void HearCallsOfGang();
  bool StopGang();
  void SettleGang();
  bool LeaveBroken(const std::string& why);

  // ---- session_finish.cc
  // Begins to commit what is live, after what is being committed. A commit that
  // fails is reported and tried again when the next is due. `copies`, if not
  // null: of the tensors, empty when none were made.
  absl::Status Commit(std::vector<HostCopy>* copies = nullptr);
  CommitOptions OptionsOfSave();
  // Until no save is under way; the coordinator hears that it moves on.
  absl::Status WaitForSave();
  void CheckpointDone(Generation generation, const absl::Status& status);
  // Gets the memory for checkpoints, in the background.
  void PrepareCheckpoints();
  absl::Status CollectSnapshot(Snapshot* snapshot);
  Generation NextGeneration() const;
  // There was nothing left to train.
  void SayIfFinishedBefore();
  // Never returns: no code of the host runs for an unfinished job.
  [[noreturn]] void EndProcess(const std::string& why);
  // The same for a step that ran out of memory; by any thread.
  [[noreturn]] void EndOutOfMemory(const std::string& what);
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
  Examination examination_;
  StepProfile profile_;
  StepMark mark_;
  BatchOwner* batch_owner_ = nullptr;  // of the loop that runs
  Accelerator accelerator_;
  Gang gang_{[this] { return last_micro_batch(); }};
  std::unique_ptr<LeaseThread> lease_thread_;  // after what it borrows
  Signals signals_;
  UncaughtException uncaught_exception_;
  std::FILE* report_file_ = nullptr;

  // The next boundary that is looked at closely, by count and by time.
  uint64_t attention_step_ = 0;
  int64_t attention_ns_ = 0;
  int64_t checkpoint_due_ns_ = 0;
  uint64_t checkpoint_due_step_ = 0;
  double checkpoint_stall_s_ = 0;  // of the last one; 0: there was none
  bool checkpoints_prepared_ = false;

  bool started_ = false;         // the first loop was begun
  bool asks_for_lease_ = false;  // or has one
  bool iterator_used_ = false;   // by an Iterator
  bool step_counted_ = false;    // by StepDone() inside an Iterator's loop
  bool step_done_ = false;       // by StepDone() elsewhere, no Boundary() since
  bool at_boundary_ = false;     // what is live is a step's end
  bool mark_held_ = false;       // before a move
  bool stopped_ = false;         // no more batches
  bool evicted_ = false;         // stopped from outside
  bool used_up_ = false;         // the step budget
  bool finish_done_ = false;
  int exit_code_ = kExitDone;
  uint64_t lease_epoch_ = 0;
  uint64_t generation_epoch_ = 0;  // never below that of the restored one
  std::optional<uint64_t> restored_step_;
  int world_size_ = 1;
  // What this rank was told to do once the gang stops.
  std::optional<lease_action::Pause> gang_pause_;
  int64_t stop_ahead_ns_ = 0;  // of the lease's end
  int64_t memory_due_ns_ = 0;  // told next, of a GPU
  std::thread::id training_thread_;
  std::atomic<bool> gang_broken_{false};  // read by the checkpoints' writer
  Save save_;  // the last that was begun; left alone while it is under way
  Generation save_generation_;  // of save_
  int64_t last_tensor_read_ns_ = 0;
  bool report_refused_ = false;
  std::atomic<int64_t> checkpoint_begin_ns_{0};  // read by the writer's thread
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_SESSION_STATE_H_
