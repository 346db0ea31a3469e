// The implementation of gavel/session.h: the loops, the work at the boundary
// between two steps, and the end of the session. session.cc forwards to it.
// Training thread only, except status(), stopped() and steps_done().
//
// A boundary is cheap as long as there is nothing to do. Attend(), its slow
// path, runs when the lease thread or a signal calls (BoundaryGate), the lease
// ends, a checkpoint is due or the step budget is used up, and checks each of
// these in turn. The work itself is done by the parts below, each with its own
// state:
//
//   TrainingState     the tracked state on its accelerator, and its snapshots
//   GangMembership    this process as one rank of several
//   CheckpointSaver   generations: when one is due, and saving it
//   LeaseHolder       taking an accelerator, giving it back, waiting
//   LoopControl       whether the loop continues
//   ProcessExit       the end of the process of an unfinished job
//   ScalarReports     Report()
//   LearningRates     the scalars that are reported without it
//   ProgressBar       the last line of a terminal
//
// A part may use the members of SessionState that are declared before it, and
// no later one.
#ifndef GAVEL_ITERATOR_SESSION_STATE_H_
#define GAVEL_ITERATOR_SESSION_STATE_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gavel/internal/range_position.h"
#include "gavel/session.h"
#include "iterator/accumulation_watch.h"
#include "iterator/checkpoint_saver.h"
#include "iterator/coordinator_link.h"
#include "iterator/examination.h"
#include "iterator/gang.h"
#include "iterator/lease_holder.h"
#include "iterator/optimizers.h"
#include "iterator/process_exit.h"
#include "iterator/progress_bar.h"
#include "iterator/session_context.h"
#include "iterator/tracked_state.h"
#include "iterator/training_state.h"

namespace gavel::internal {

// Decides whether the loop continues after a boundary, from the requests of the
// coordinator and signals, the lease's end, the gang's agreement, and the step
// budget. Training thread only.
class LoopControl {
 public:
  // Borrows all of them; they must outlive it.
  LoopControl(SessionContext& context, TrainingState& state,
              GangMembership& gang, CheckpointSaver& saver, LeaseHolder& lease,
              ProcessExit& exit)
      : context_(context),
        state_(state),
        gang_(gang),
        saver_(saver),
        lease_(lease),
        exit_(exit) {}

  // EndGangStep() and Attend() return false when the loop ends. Under an agent,
  // an evicted process exits inside them.
  //
  // Called after each step. For a gang, returns true if the step counts on all
  // ranks.
  bool EndGangStep();
  // Takes the accelerator or waits for a lease if none is held, and pauses or
  // stops on request. `between_steps`: no step is under way.
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
  void WarnOfSilence();
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
  int silent_steps_ = 0;  // of gangs, without a collective
};

// Sends the scalars of Session::Report() to the coordinator, TensorBoard and
// the report file. Training thread only.
class ScalarReports {
 public:
  // Borrows `context`, which must live longer.
  explicit ScalarReports(SessionContext& context) : context_(context) {}
  ~ScalarReports();
  ScalarReports(const ScalarReports&) = delete;
  ScalarReports& operator=(const ScalarReports&) = delete;

  // Opens the report file, if there is one. INVALID_ARGUMENT: it can't be
  // written.
  absl::Status Open();
  void Report(std::string_view name, double value);
  // Reads a tensor on a GPU at most twice a second, as reading waits for the
  // device. With a report file, reads every one. Leaves out a tensor that is
  // not a scalar.
  void ReportTensor(std::string_view name, const at::Tensor& scalar);

 private:
  SessionContext& context_;
  std::FILE* file_ = nullptr;
  int64_t last_tensor_read_ns_ = 0;
  bool refused_ = false;
  bool not_scalar_ = false;
};

// Reports the learning rates of tracked optimizers when they change: that of
// the next step, for the first group. Training thread only.
class LearningRates {
 public:
  // Borrows both.
  LearningRates(SessionContext& context, ScalarReports& reports)
      : context_(context), reports_(reports) {}

  // Before the first step. Borrows the optimizers.
  void Begin(const TrackedState& tracked);
  // Between two steps.
  void Report();
  // The program reports this name itself.
  void Yield(std::string_view name);

 private:
  struct Rate {
    std::string name;
    torch::optim::Optimizer* optimizer = nullptr;
    std::optional<double> last;
  };

  SessionContext& context_;
  ScalarReports& reports_;
  std::vector<Rate> rates_;
  bool begun_ = false;
  std::set<std::string> yielded_;  // before the first step
};

class SessionState {
 public:
  // `problem` is an error already found in the options, or OK.
  SessionState(SessionOptions options, absl::Status problem);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  absl::Status Track(std::unique_ptr<TrackedItem> item,
                     std::optional<Sharded> sharded = std::nullopt);
  absl::Status Shard(TrackedItem& item, const Sharded& sharded);
  void Report(std::string_view name, double value) {
    rates_.Yield(name);
    reports_.Report(name, value);
  }
  void ReportTensor(std::string_view name, const at::Tensor& scalar) {
    rates_.Yield(name);
    reports_.ReportTensor(name, scalar);
  }
  // See Session.
  absl::Status Accumulate(int64_t batches);
  void OnEpoch(std::function<void()> call) {
    on_epoch_.push_back(std::move(call));
  }
  absl::Status OnEvaluate(int64_t every_steps, std::function<void()> call);
  absl::Status RestoreBest();

  void OnRelease(std::function<void()> call) {
    state_.OnRelease(std::move(call));
  }
  void OnAcquire(std::function<void(at::Device)> call) {
    state_.OnAcquire(std::move(call));
  }
  absl::Status AllReduce(const at::Tensor& tensor, ReduceOp op) {
    return gang_.AllReduce(tensor, op);
  }
  absl::Status Broadcast(const at::Tensor& tensor) {
    return gang_.Broadcast(tensor);
  }
  absl::Status Barrier() { return gang_.Barrier(); }

  LoopPlan EnterLoop(RangePosition* range, BatchOwner* batch);
  // False: the loop ends.
  bool LoopForwarded();
  // Takes the fingerprint of the first batch (FingerprintOf) of a loop whose
  // range was forwarded.
  void FirstBatch(uint64_t fingerprint);
  // The boundary of an Iterator. False: the loop ends.
  bool StepBoundary(bool after_step) {
    int64_t now_ns = Now_ns();
    if (after_step && !step_counted_) CountStep(now_ns);
    step_counted_ = false;
    if (after_step && context_.stats.steps_done() >= evaluation_step_) {
      EvaluateStep();
      now_ns = Now_ns();
      context_.stats.MarkBoundary(now_ns);
    }
    rates_.Report();
    context_.profile.BeginBoundary(now_ns);
    if (IsQuiet(now_ns)) {
      if (!after_step) context_.stats.MarkBoundary(now_ns);
      context_.profile.EndBoundary();
      return true;
    }
    return Attend(after_step);
  }
  // A boundary anywhere else. False: the loop around it should be left.
  bool Boundary() {
    const int64_t now_ns = Now_ns();
    const bool after_step = step_done_;
    step_done_ = false;
    context_.stats.CountBoundary();
    if (after_step) context_.profile.BeginBoundary(now_ns);
    if (IsQuiet(now_ns)) {
      if (after_step) context_.profile.EndBoundary();
      return true;
    }
    return AttendOutside(after_step);
  }
  void StepDone();
  void BatchReady() { context_.profile.BatchReady(); }
  void EndSpan(const char* name, int64_t begin_ns, int64_t end_ns) {
    context_.profile.EndSpan(name, begin_ns, end_ns);
  }
  // `at_step_end`: the loop used up its range; otherwise it was left in the
  // middle.
  void LeaveLoop(bool at_step_end);
  // For DataParallel. Fails the session if `module` is null or the loop has
  // begun.
  void AddToGang(std::shared_ptr<torch::nn::Module> module,
                 bool broadcast_buffers);
  void RemoveFromGang(const torch::nn::Module* module) { gang_.Remove(module); }
  bool last_micro_batch() const { return position_.EndsStep(); }
  double loss_scale() const { return position_.LossScale(); }
  void Fail(absl::Status status) { context_.Fail(std::move(status)); }
  int Finish();

  at::Device device() const { return state_.device(); }
  int rank() const { return context_.options.rank; }
  int world_size() const { return gang_.world_size(); }
  int64_t steps_done() const {
    return static_cast<int64_t>(context_.stats.steps_done());
  }
  bool stopped() const {
    return control_.stopped() || context_.board.has_fatal();
  }
  bool finished() const;
  absl::Status status() const { return context_.board.Get(); }
  Profile profile() const { return context_.profile.Read(context_.stats); }

 private:
  void CountStep(int64_t now_ns) {
    StepStats& stats = context_.stats;
    stats.CountStep(now_ns);
    if (accumulation_.StepDone()) attention_step_ = 0;
    context_.profile.EndStep(now_ns, stats.last_step_ns(), stats.steps_done());
  }
  bool IsQuiet(int64_t now_ns) const {
    return context_.stats.steps_done() < attention_step_ &&
           now_ns < attention_ns_ && !context_.gate.IsCalled(now_ns);
  }

  absl::Status Open();
  absl::Status CheckBeforeLoop(const std::string& name) const;
  // Logs the warnings about what the program tracks.
  void LogNotes() {
    for (const std::string& note : tracked_.TakeNotes()) {
      context_.log.Warning(note);
    }
  }
  absl::Status StartLoop(RangePosition* range, LoopPlan* plan);
  absl::Status Start();
  void AskForLease();
  void CommitEnd();

  // ---- The calls of OnEvaluate() and OnEpoch().
  // After a step, or again after a restart in the midst of its evaluation.
  void EvaluateStep();
  void EvaluateRestored();
  void EndEpoch();
  // Calls the evaluations that are due after this step; 0: at an epoch's end.
  void RunEvaluations(uint64_t step);
  void ScheduleEvaluation();
  bool SavesEvaluations() const {
    return saver_.enabled() && !context_.options.checkpoints_kept_best.empty();
  }
  void DrawProgress(int64_t now_ns);

  // ---- The slow path of a boundary. False: the loop ends.
  bool Attend(bool after_step);
  bool AttendOutside(bool after_step);
  bool AttendGuarded(bool after_step);
  bool AttendAll(bool after_step);
  bool AttendStep();
  void SetAttention();
  bool MayContinue() const;

  SessionContext context_;
  CoordinatorLink link_{context_};
  TrackedState tracked_;
  LoopPosition position_{context_.log};
  AccumulationWatch accumulation_;
  TrainingState state_{context_, tracked_, position_, accumulation_};
  GangMembership gang_{
      context_, link_, [this] { return last_micro_batch(); },
      [this](const at::Tensor& tensor) { return tracked_.IsPart(tensor); }};
  CheckpointSaver saver_{context_, link_, state_, gang_};
  ProcessExit exit_{context_, link_, state_, gang_, saver_};
  LeaseHolder lease_{context_, link_, state_, gang_, saver_, exit_};
  LoopControl control_{context_, state_, gang_, saver_, lease_, exit_};
  ScalarReports reports_{context_};
  LearningRates rates_{context_, reports_};
  ProgressBar progress_{context_.options, context_.log};
  OptimizerCheck optimizer_check_;
  Examination examination_;
  Signals signals_;

  // The next boundary that is not quiet, by steps and by time.
  uint64_t attention_step_ = 0;
  int64_t attention_ns_ = 0;

  struct Evaluation {
    uint64_t every_steps = 0;  // 0: each epoch
    std::function<void()> call;
  };
  std::vector<Evaluation> evaluations_;
  std::vector<std::function<void()>> on_epoch_;
  uint64_t evaluation_step_ = kNoStep;  // the next step that has one
  int64_t batches_per_step_ = 1;

  bool started_ = false;          // the first loop was begun
  bool state_checked_ = false;    // done after the first step
  bool lacks_gradients_ = false;  // in the last checkpoint
  bool asks_for_lease_ = false;   // it waits for one or has one
  bool iterator_used_ = false;    // the program has an Iterator
  bool evaluated_ = false;        // this step, and a checkpoint is to follow
  bool step_counted_ = false;     // by StepDone() inside an Iterator's loop
  bool step_done_ = false;  // by StepDone() elsewhere, no Boundary() since
  bool left_loop_ = false;  // the last loop ended before its range did
  bool finish_done_ = false;
  int exit_code_ = kExitDone;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_STATE_H_
