#include "iterator/session_state.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/environment.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr int64_t kBatchesPerStepMax = 1'000'000;
// Beyond so many steps without a collective, the program is warned.
constexpr int kSilentStepsMax = 10;

// With a fixed batch size per worker, a step would become another one whenever
// the number of workers changes.
absl::Status CheckElastic(const SessionOptions& options,
                          const RangePosition& range) {
  if (options.world_size_max <= options.world_size_min ||
      range.FitsAnyWorldSize()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      // Short enough for kErrorLineCharactersMax behind a program's own words.
      StrCat("its steps depend on the number of workers: set "
             "DataLoaderOptions::global_batch_size, or `gavel update ",
             options.job, " --scale-factor-min 0 --scale-factor-max 0`"));
}

std::string FinishedBeforeText(const SessionOptions& options,
                               uint64_t steps_done) {
  return StrCat(
      "this job was finished before: ", options.checkpoint_directory,
      " has its end at step ", steps_done,
      ", and nothing was trained now; raise its steps or epochs to train on, "
      "or give an empty GAVEL_CHECKPOINT_DIRECTORY to begin again");
}

// A checkpoint that is due where none can be taken is tried again after this.
constexpr int64_t kCheckpointRetry_ns = 100'000'000;

// Sleeps as long as the step would take more on a slower accelerator. For
// demonstrations only; the log of each such lease says so.
void SlowDown(double factor, StepStats& stats) {
  if (factor <= 1) return;
  const int64_t begin_ns = Now_ns();
  std::this_thread::sleep_for(std::chrono::nanoseconds(
      std::llround((factor - 1) * static_cast<double>(stats.last_step_ns()))));
  stats.AddRunning(Now_ns() - begin_ns);
}

constexpr int64_t kTensorReadInterval_ns = 500'000'000;

}  // namespace

SessionState::SessionState(SessionOptions options, absl::Status problem)
    : context_(std::move(options)) {
  tracked_.SetGang(context_.options.rank, context_.options.world_size);
  tracked_.SetArena(&context_.arena);
  tracked_.SetRules({context_.options.partial_restore,
                     context_.options.keep_program_options});
  if (problem.ok()) problem = Open();
  if (!problem.ok()) Fail(std::move(problem));
}

SessionState::~SessionState() {
  if (started_ && !finish_done_) {
    context_.log.Error(
        StrCat(left_loop_ ? StrCat("the training loop was left after step ",
                                   context_.stats.steps_done(),
                                   " by return, break or an exception, and the "
                                   "session ends")
                          : "the session ends",
               " without Finish(): no last checkpoint is written, and the job "
               "is not done; end the program by return session->Finish()"));
  }
  signals_.Restore();
  exit_.Restore();
  saver_.Wait().IgnoreError();  // it reports to what is destroyed now
  link_.Close();
}

absl::Status SessionState::Open() {
  GAVEL_RETURN_IF_ERROR(CheckOptions(context_.options));
  GAVEL_RETURN_IF_ERROR(reports_.Open());
  GAVEL_RETURN_IF_ERROR(link_.Start());
  return saver_.Open();
}

absl::Status SessionState::CheckBeforeLoop(const std::string& name) const {
  if (!started_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("'", name,
             "' is tracked after the loop was begun; call Track "
             "before the first gavel::Iterator"));
}

absl::Status SessionState::Track(std::unique_ptr<TrackedItem> item,
                                 std::optional<Sharded> sharded) {
  if (context_.board.has_fatal()) return this->status();
  absl::Status status = CheckBeforeLoop(item->name());
  if (status.ok()) {
    status = tracked_.Add(std::move(item), saver_.restored(), sharded);
  }
  LogNotes();
  if (!status.ok()) Fail(status);
  return status;
}

absl::Status SessionState::Shard(TrackedItem& item, const Sharded& sharded) {
  if (context_.board.has_fatal()) return this->status();
  absl::Status status = CheckBeforeLoop(item.name());
  if (status.ok()) status = tracked_.Shard(item, sharded);
  if (!status.ok()) Fail(status);
  return status;
}

void SessionState::AddToGang(std::shared_ptr<torch::nn::Module> module,
                             bool broadcast_buffers) {
  if (module == nullptr) {
    return Fail(absl::InvalidArgumentError(
        "DataParallel: the module is null; make it before"));
  }
  if (started_) {
    return Fail(absl::FailedPreconditionError(
        "DataParallel was made after the loop was begun; make it before the "
        "first gavel::Iterator"));
  }
  gang_.Add(std::move(module), broadcast_buffers);
}

LoopPlan SessionState::EnterLoop(RangePosition* range, BatchOwner* batch) {
  LoopPlan plan;
  iterator_used_ = true;
  if (stopped()) return plan;
  absl::Status status = CatchAsStatus("beginning the loop",
                                      [&] { return StartLoop(range, &plan); });
  if (!status.ok()) {
    Fail(std::move(status));
    return LoopPlan();
  }
  if (plan.run) state_.SetBatch(batch);
  return plan;
}

absl::Status SessionState::StartLoop(RangePosition* range, LoopPlan* plan) {
  if (finish_done_) {
    return absl::FailedPreconditionError(
        "a gavel::Iterator was made after Finish(); make it before");
  }
  if (position_.inside()) {
    return absl::FailedPreconditionError(
        "a gavel::Iterator was begun inside another one; wrap the training "
        "loop only");
  }
  GAVEL_RETURN_IF_ERROR(CheckElastic(context_.options, *range));
  if (!range->SetAccumulation(batches_per_step_)) {
    return absl::FailedPreconditionError(StrCat(
        "Accumulate(", batches_per_step_,
        ") needs a gavel::DataLoader without global_batch_size, which tells "
        "the last batch of an epoch; give it one, or leave Accumulate out"));
  }
  if (!started_) {
    GAVEL_RETURN_IF_ERROR(Start());
  }
  if (control_.stopped()) return absl::OkStatus();
  if (saver_.enabled()) {
    GAVEL_RETURN_IF_ERROR(position_.CheckRange(*range));
  }
  GAVEL_ASSIGN_OR_RETURN(plan->skip,
                         position_.Enter(range, context_.stats.steps_done()));
  plan->ended = position_.at_end();
  plan->run = true;
  examination_.LoopBegan(context_.stats.steps_done());
  return absl::OkStatus();
}

absl::Status SessionState::Start() {
  const SessionOptions& options = context_.options;
  started_ = true;
  // Behind an error not all is tracked.
  if (saver_.restored() != nullptr && !context_.board.has_fatal()) {
    for (const std::string& name : tracked_.Untracked(*saver_.restored())) {
      context_.log.Warning(StrCat("the checkpoint has '", name,
                                  "', which this program does not track"));
    }
  }
  absl::Status whole;
  if (!context_.board.has_fatal()) {
    whole = tracked_.CheckWhole(saver_.restored(),
                                options.require_tracked_parameters);
  }
  accumulation_.Begin(tracked_, options.gradients);
  rates_.Begin(tracked_);
  saver_.Forget();
  GAVEL_RETURN_IF_ERROR(
      context_.profile.Open(options, context_.stats.steps_done()));
  saver_.Schedule();
  if (!options.examination_file.empty()) {
    GAVEL_RETURN_IF_ERROR(
        examination_.Begin(options.examination_file, tracked_));
  }
  GAVEL_RETURN_IF_ERROR(whole);  // the examination has named what is missing
  if (control_.BudgetIsUsedUp()) {
    context_.log.Info(StrCat("all ", options.steps_total, " steps are done"));
    control_.UseUpBudget();
    return absl::OkStatus();
  }
  if (options.require_tracked_optimizer) {
    GAVEL_RETURN_IF_ERROR(optimizer_check_.Begin(tracked_));
  }
  if (options.handle_signals) {
    signals_.Install(&context_.gate, link_.waker(), options.pause_grace_s);
  }
  if (context_.managed()) AskForLease();
  return absl::OkStatus();
}

// After the signal handlers are there: a process that has a lease may be sent
// a signal.
void SessionState::AskForLease() {
  const SessionOptions& options = context_.options;
  exit_.WatchForOutOfMemory();
  asks_for_lease_ = true;
  link_.Post(lease_event::Started{context_.stats.Read(), getpid()});
  context_.log.Info(StrCat("job ", options.job, ", rank ", options.rank,
                           ": asking ", options.coordinator, " for a lease"));
}

bool SessionState::LoopForwarded() {
  absl::Status status = CatchAsStatus("beginning the loop", [&] {
    return position_.Forwarded(state_.accelerator().last_device(), rank(),
                               world_size());
  });
  if (!status.ok()) Fail(std::move(status));
  progress_.BeginLoop(*position_.range(), context_.stats.steps_done());
  if (!stopped() && position_.evaluation_due()) EvaluateRestored();
  return !stopped();
}

void SessionState::FirstBatch(uint64_t fingerprint) {
  absl::Status status = position_.FirstBatch(fingerprint);
  if (!status.ok()) Fail(std::move(status));
}

void SessionState::LeaveLoop(bool at_step_end) {
  state_.SetBatch(nullptr);
  step_counted_ = false;
  left_loop_ = !at_step_end && !stopped();
  if (!stopped()) {
    examination_.LoopEnded(context_.stats.steps_done(), at_step_end);
  }
  if (at_step_end) {
    position_.ReachEnd();
    if (saver_.enabled()) state_.SetMark();
  }
  absl::Status status = CatchAsStatus("leaving the loop", [&] {
    return position_.Leave(/*keeps_place=*/control_.used_up(),
                           state_.accelerator().last_device(),
                           context_.stats.steps_done());
  });
  if (!status.ok()) Fail(std::move(status));
  if (at_step_end && !stopped()) EndEpoch();
}

bool SessionState::finished() const {
  if (context_.board.has_fatal() || control_.evicted()) return false;
  return control_.used_up() || !position_.inside();
}

int SessionState::Finish() {
  if (finish_done_) return exit_code_;
  if (progress_.next_ns() != kNever_ns && started_) DrawProgress(Now_ns());
  progress_.End();
  examination_.Finish(context_.stats.steps_done());
  if (started_ && !control_.evicted() && !context_.board.has_fatal()) {
    CommitEnd();
  }
  finish_done_ = true;
  saver_.WaitAndTell().IgnoreError();
  saver_.LeaveDirectory();
  if (started_) context_.FinishProfile(device());
  signals_.Restore();
  exit_.Restore();
  exit_code_ = context_.board.has_fatal() ? kExitFailed
               : control_.evicted()       ? kExitEvicted
                                          : kExitDone;
  const bool done = exit_code_ == kExitDone;
  if (done && saver_.IsAtRestoredStep()) {
    context_.log.Warning(
        FinishedBeforeText(context_.options, context_.stats.steps_done()));
  }
  state_.Unlock();
  gang_.Leave(done ? Leaving::kDone : Leaving::kBroken);
  gang_.WaitForOthers();
  link_.Finish(
      {exit_code_, std::string(status().message()), context_.stats.Read()});
  link_.Close();
  return exit_code_;
}

// The job is done only when its result is on disk. A checkpoint of this step
// lacks what the program has done behind its last loop, so there is another
// one, unless the process began at the job's end.
void SessionState::CommitEnd() {
  state_.SetAtStepEnd(true);
  gang_.End();
  absl::Status status;
  if (!saver_.IsAtRestoredStep() || !position_.restored_end()) {
    position_.SetEnd();
    status = saver_.Commit(nullptr, /*again=*/true);
  }
  if (status.ok()) status = saver_.WaitAndTell();
  if (!status.ok() && gang_.broken()) {
    control_.SetEvicted();
    context_.log.Warning(
        StrCat("the gang is broken at its end: ", gang_.why_broken(),
               "; it starts again from the last generation"));
    context_.board.SetEnded(std::move(status));
  } else if (!status.ok()) {
    Fail(std::move(status));
  }
}

// ---- The slow path of a boundary: of an Iterator, and outside of one (in
// evaluation, warm-up, and loops of the program's own).
//
// Outside of an Iterator the process can always pause, as everything stays in
// memory. A checkpoint needs the state of a step's end (TrainingState): that of
// now, when StepDone() was called just before; else that of the mark, which is
// set where a loop or a step is left.

void SessionState::StepDone() {
  if (stopped()) return;
  if (!started_) {
    return Fail(absl::FailedPreconditionError(
        "StepDone() was called before the first step; call Boundary() before "
        "each step, or use gavel::Iterator"));
  }
  if (!last_micro_batch()) {
    return Fail(absl::FailedPreconditionError(
        "StepDone() was called inside a global batch; call it after its last "
        "micro-batch, as Session::last_micro_batch() tells"));
  }
  CountStep(Now_ns());
  rates_.Report();
  if (position_.inside()) {
    step_counted_ = true;  // so that the Iterator does not count it again
    if (saver_.enabled()) state_.SetMark();
  } else {
    position_.BeginOwnLoop();
    step_done_ = true;
  }
}

bool SessionState::Attend(bool after_step) {
  if (stopped()) return false;
  state_.SetAtStepEnd(true);
  const bool continues = AttendGuarded(after_step);
  state_.SetAtStepEnd(false);
  context_.stats.MarkBoundary(Now_ns());
  context_.profile.EndBoundary();
  return continues;
}

bool SessionState::AttendOutside(bool after_step) {
  const bool is_first = !started_;
  if (is_first) {
    absl::Status status = CatchAsStatus(
        "beginning at a boundary", [&]() -> absl::Status { return Start(); });
    if (!status.ok()) Fail(std::move(status));
  }
  if (!MayContinue()) return false;
  // All steps were done before this process began: it needs no lease.
  if (context_.managed() && !asks_for_lease_) return true;
  const int64_t begin_ns = Now_ns();
  if (is_first) context_.profile.BeginBoundary(begin_ns);
  state_.SetAtStepEnd(after_step);
  const bool continues = AttendGuarded(after_step);
  state_.SetAtStepEnd(false);
  if (is_first && continues) {
    context_.Warn(position_.RestoreRandom(state_.accelerator().last_device()));
  }
  if (after_step || is_first) {
    context_.stats.MarkBoundary(Now_ns());
    context_.profile.EndBoundary();
  } else {
    context_.stats.Skip(Now_ns() - begin_ns);  // no part of the step's time
    attention_ns_ = std::max(attention_ns_, begin_ns + kCheckpointRetry_ns);
  }
  return continues && MayContinue();
}

bool SessionState::MayContinue() const {
  if (context_.board.has_fatal() || control_.evicted() || finish_done_) {
    return false;
  }
  return !control_.used_up() || iterator_used_;
}

// Nothing of ours throws into the host's loop.
bool SessionState::AttendGuarded(bool after_step) {
  bool continues = false;
  examination_.SetQuiet(true);
  absl::Status status = CatchAsStatus("at a boundary", [&] {
    continues = AttendAll(after_step);
    return absl::OkStatus();
  });
  examination_.SetQuiet(false);
  if (status.ok()) return continues;
  return Fail(std::move(status)), false;
}

// In order of severity.
bool SessionState::AttendAll(bool after_step) {
  if (after_step && !control_.EndGangStep()) return false;
  if (after_step && !AttendStep()) return false;
  const int64_t begin_ns = Now_ns();
  if (!control_.Attend(step_counted_ || !position_.inside())) return false;
  examination_.Paused(context_.stats.steps_done(), lease_.left_bytes());
  const bool is_due =
      std::exchange(lacks_gradients_, false) || saver_.IsDue(Now_ns());
  if (std::exchange(evaluated_, false)) {
    // One of this step may be there, without what the evaluation has reported.
    saver_.Commit(nullptr, /*again=*/true).IgnoreError();
  } else if (is_due && !gang_.joined() && state_.CanCollect()) {
    saver_.Commit().IgnoreError();
  }
  if (context_.board.has_fatal()) return false;
  if (after_step && accumulation_.decided()) saver_.PrepareOnce();
  context_.profile.Exclude(Now_ns() - begin_ns);
  context_.Warn(context_.profile.Tick(Now_ns(), device(), context_.stats));
  if (Now_ns() >= lease_.memory_due_ns()) lease_.TellMemory();
  if (Now_ns() >= progress_.next_ns()) DrawProgress(Now_ns());
  SetAttention();
  return true;
}

bool SessionState::AttendStep() {
  SlowDown(state_.accelerator().slow_down_factor(), context_.stats);
  examination_.StepDone(context_.stats.steps_done());
  if (!std::exchange(state_checked_, true) && saver_.enabled()) {
    const int64_t begin_ns = Now_ns();
    absl::Status status = state_.CheckRestorable();
    if (!status.ok()) return Fail(std::move(status)), false;
    LogNotes();
    context_.profile.Exclude(Now_ns() - begin_ns);
  }
  for (const AccumulationWatch::News& news : accumulation_.TakeNews()) {
    if (news.left_out) {
      context_.log.Warning(news.text);
      saver_.RequestAt(Now_ns());  // a gang agrees on it
      lacks_gradients_ = true;
    } else {
      context_.log.Info(news.text);
    }
  }
  if (!optimizer_check_.done()) {
    absl::Status status = optimizer_check_.Check();
    if (!status.ok()) return Fail(std::move(status)), false;
  }
  if (!control_.BudgetIsUsedUp()) return true;
  control_.UseUpBudget();
  saver_.Commit(nullptr, std::exchange(evaluated_, false)).IgnoreError();
  return false;
}

void SessionState::SetAttention() {
  attention_step_ = saver_.NextLook_step();
  if (context_.options.steps_total > 0) {
    attention_step_ = std::min(
        attention_step_, static_cast<uint64_t>(context_.options.steps_total));
  }
  attention_ns_ =
      std::min({saver_.NextLook_ns(Now_ns()), context_.profile.next_tick_ns(),
                lease_.memory_due_ns(), progress_.next_ns()});
  if (!state_checked_ || !optimizer_check_.done() ||
      state_.accelerator().slow_down_factor() > 1 || gang_.joined() ||
      examination_.on()) {
    attention_step_ = 0;  // every step
  }
}

// ---- Evaluations and epochs.

absl::Status SessionState::Accumulate(int64_t batches) {
  absl::Status status;
  if (batches < 1) {
    status = absl::InvalidArgumentError(
        StrCat("Accumulate(", batches,
               "): a step has at least one batch; give 1 or more"));
  } else if (batches > kBatchesPerStepMax) {
    status = absl::InvalidArgumentError(
        StrCat("Accumulate(", batches, "): give at most ", kBatchesPerStepMax));
  } else if (position_.inside()) {
    status = absl::FailedPreconditionError(
        "Accumulate() was called inside a loop; call it before");
  }
  if (!status.ok()) return Fail(status), status;
  batches_per_step_ = batches;
  return absl::OkStatus();
}

absl::Status SessionState::OnEvaluate(int64_t every_steps,
                                      std::function<void()> call) {
  if (every_steps < 0) {
    absl::Status status = absl::InvalidArgumentError(
        StrCat("OnEvaluate(", every_steps,
               "): give the steps from one evaluation to the next, or 0 for "
               "one at each epoch's end"));
    return Fail(status), status;
  }
  evaluations_.push_back({static_cast<uint64_t>(every_steps), std::move(call)});
  ScheduleEvaluation();
  return absl::OkStatus();
}

void SessionState::ScheduleEvaluation() {
  const uint64_t steps_done = context_.stats.steps_done();
  evaluation_step_ = kNoStep;
  for (const Evaluation& one : evaluations_) {
    if (one.every_steps == 0) continue;
    evaluation_step_ = std::min(
        evaluation_step_, (steps_done / one.every_steps + 1) * one.every_steps);
  }
}

void SessionState::EvaluateStep() {
  ScheduleEvaluation();
  if (stopped()) return;
  position_.SetEvaluationDue(true);
  if (saver_.enabled()) state_.SetMark();
  RunEvaluations(context_.stats.steps_done());
  position_.SetEvaluationDue(false);
  evaluated_ = SavesEvaluations();
  attention_step_ = 0;
}

// The state is that of the step's end, before the first batch is read.
void SessionState::EvaluateRestored() {
  if (saver_.enabled()) state_.SetMark();
  RunEvaluations(context_.stats.steps_done());
  position_.SetEvaluationDue(false);
  if (stopped() || !saver_.enabled()) return;
  state_.SetMark();
  if (SavesEvaluations()) saver_.Commit(nullptr, /*again=*/true).IgnoreError();
}

// As what a program writes behind its loop: a restart at the epoch's last step
// comes here again.
void SessionState::EndEpoch() {
  const bool evaluates = std::ranges::any_of(
      evaluations_, [](const auto& one) { return one.every_steps == 0; });
  if (evaluates) {
    RunEvaluations(0);
    if (!stopped() && SavesEvaluations()) {
      saver_.Commit(nullptr, /*again=*/true).IgnoreError();
    }
  }
  absl::Status status =
      CatchAsStatus("in a function given to Session::OnEpoch()", [this] {
        // A function may give more of them, for the next epoch.
        const auto calls = on_epoch_;
        for (const auto& call : calls) {
          if (!stopped()) call();
        }
        return absl::OkStatus();
      });
  if (!status.ok()) Fail(std::move(status));
}

void SessionState::RunEvaluations(uint64_t step) {
  std::vector<std::function<void()>> undo;
  // The process may pause, as between two steps.
  const bool counted = std::exchange(step_counted_, true);
  absl::Status status =
      CatchAsStatus("in a function given to Session::OnEvaluate()", [&] {
        for (const auto& item : tracked_.items()) {
          if (auto back = item->Evaluate()) undo.push_back(std::move(back));
        }
        const at::NoGradGuard no_grad;
        const std::vector<Evaluation> evaluations = evaluations_;
        for (const Evaluation& one : evaluations) {
          const bool is_due =
              step == 0 ? one.every_steps == 0
                        : one.every_steps > 0 && step % one.every_steps == 0;
          if (is_due && !stopped()) one.call();
        }
        return absl::OkStatus();
      });
  status.Update(CatchAsStatus("after an evaluation", [&] {
    for (const auto& back : undo) back();
    return absl::OkStatus();
  }));
  step_counted_ = counted;
  if (!status.ok()) Fail(std::move(status));
}

absl::Status SessionState::RestoreBest() {
  if (context_.board.has_fatal()) return status();
  if (position_.inside() || finish_done_) {
    return absl::FailedPreconditionError(
        "RestoreBest() is for outside of loops; call it behind the loop, and "
        "before Finish()");
  }
  GAVEL_ASSIGN_OR_RETURN(const Restored best, saver_.RestoreBest());
  for (const auto& item : tracked_.items()) {
    if (!item->training()) continue;  // no module
    absl::Status restored = item->Restore(best.snapshot);
    LogNotes();
    if (restored.ok()) continue;
    return Fail(restored), restored;  // some may be of the best, others not
  }
  // The last checkpoint will have these modules, so it has their score.
  const BestBy by =
      ParseBestBy(context_.options.checkpoints_kept_best).value_or(BestBy());
  const double score = best.scalars.at(by.scalar);
  context_.stats.scalars().Set(by.scalar, score);
  context_.log.Info(StrCat("modules are those of ",
                           GenerationName(best.generation), ", the best by ",
                           by.scalar, " (", score, ")"));
  return absl::OkStatus();
}

void SessionState::DrawProgress(int64_t now_ns) {
  const StepStats& stats = context_.stats;
  progress_.Draw(now_ns, stats.steps_done(), stats.running_ns(),
                 context_.stats.scalars().Read());
}

// ---- Whether the loop continues.

bool LoopControl::BudgetIsUsedUp() const {
  const int64_t steps_total = context_.options.steps_total;
  return steps_total > 0 &&
         static_cast<int64_t>(context_.stats.steps_done()) >= steps_total;
}

bool LoopControl::Attend(bool between_steps) {
  const bool needs_device = !context_.managed() && !state_.accelerator().held();
  if (needs_device && !lease_.TakeAlone()) return false;
  if (!gang_.joined() && context_.gate.IsCalled(Now_ns())) {
    const bool continues =
        context_.managed() ? lease_.AnswerCalls() : AnswerCallsAlone();
    if (!continues) return false;
  }
  return !gang_.joined() || AttendGang(between_steps);
}

bool LoopControl::AnswerCallsAlone() {
  if (context_.gate.stop_requested()) return StopAlone();
  if (context_.gate.Take(/*wait=*/false).checkpoint) {
    saver_.RequestAt(Now_ns());
  }
  return true;
}

bool LoopControl::StopAlone() {
  stopped_ = evicted_ = true;
  const std::string line =
      StrCat("ended by a signal after step ", context_.stats.steps_done());
  context_.log.Info(line);
  saver_.Commit().IgnoreError();
  saver_.SettleGang();
  context_.board.SetEnded(absl::CancelledError(line));
  return false;
}

bool LoopControl::EndGangStep() {
  if (!gang_.joined()) return true;
  absl::Status status = gang_.EndStep();
  if (status.ok()) {
    WarnOfSilence();
    return true;
  }
  if (absl::IsUnavailable(status)) {
    return LeaveBrokenGang(std::string(status.message()));
  }
  context_.Fail(std::move(status));
  gang_.LeaveBroken();
  return false;
}

// A program that is not made for several workers would train one model on each
// of them, on a part of the data, without a word.
void LoopControl::WarnOfSilence() {
  if (gang_.has_group() || ++silent_steps_ != kSilentStepsMax) return;
  if (context_.options.rank != 0) return;
  context_.log.Warning(
      StrCat("in ", kSilentStepsMax, " steps the ", gang_.world_size(),
             " workers of this job have exchanged nothing: each trains a model "
             "of its own on a part of the data, and checkpoints are of rank 0 "
             "alone; make a gavel::DataParallel of the model, or submit the "
             "job with one worker"));
}

bool LoopControl::AttendGang(bool between_steps) {
  if (context_.gate.IsDeadlineOver(Now_ns())) {
    return LeaveBrokenGang("the lease ended before all ranks agreed on a step");
  }
  // Resting: nothing runs, and the state of the last step's end can be saved.
  const bool rests =
      !state_.at_step_end() && between_steps && state_.CanCollect();
  // Nothing is agreed inside a step.
  if (!state_.at_step_end() && !rests) return true;
  TakeGangCalls();
  while (true) {
    switch (gang_.Pass(/*begins=*/!rests)) {
      case StopMember::Passage::kGoOn:
        if (!rests && saver_.IsDueBySteps()) saver_.Commit().IgnoreError();
        return true;
      case StopMember::Passage::kCheckpoint:
        saver_.Commit().IgnoreError();
        break;
      case StopMember::Passage::kStop:
        return StopGang(between_steps);
      case StopMember::Passage::kWait:
      case StopMember::Passage::kMissed:
        return LeaveBrokenGang(gang_.why_broken());
    }
  }
}

// Passes the calls to this rank on to the other ranks.
void LoopControl::TakeGangCalls() {
  const int64_t now_ns = Now_ns();
  if (context_.gate.has_calls()) {
    const BoundaryGate::Calls calls = context_.gate.Take(/*wait=*/false);
    gang_.TakeCalls(calls);
    if (calls.threads) lease_.UseThreads(*calls.threads);
    if (calls.checkpoint) saver_.RequestAt(now_ns);
  }
  gang_.WantStopIfDue(now_ns);
  // The clock of one rank counts.
  if (context_.options.rank == 0 && saver_.IsDueByTime(now_ns)) {
    gang_.WantCheckpoint();
  }
}

bool LoopControl::StopGang(bool between_steps) {
  if (const absl::Status status = gang_.Stop(); !status.ok()) {
    return LeaveBrokenGang(std::string(status.message()));
  }
  if (!context_.managed()) return StopAlone();
  return lease_.Park(gang_.TakePause()) &&
         (!gang_.joined() || AttendGang(between_steps));
}

bool LoopControl::LeaveBrokenGang(const std::string& why) {
  gang_.LeaveBroken();
  const std::string line =
      StrCat("the gang is broken in step ", context_.stats.steps_done(), ": ",
             why, "; it starts again from the last generation");
  context_.log.Warning(line);
  if (context_.managed()) exit_.Evict("the gang is broken");
  stopped_ = evicted_ = true;
  context_.board.SetEnded(absl::UnavailableError(line));
  return false;
}

// ---- Scalars.

void LearningRates::Begin(const TrackedState& tracked) {
  for (const auto& item : tracked.items()) {
    torch::optim::Optimizer* const optimizer = OptimizerOf(*item);
    if (optimizer == nullptr || optimizer->param_groups().empty()) continue;
    // The options of a class of the program's own need have none.
    const absl::Status has_rate = CatchAsStatus("", [&] {
      optimizer->param_groups()[0].options().get_lr();
      return absl::OkStatus();
    });
    if (!has_rate.ok()) continue;
    rates_.push_back({StrCat(item->name(), ".lr"), optimizer, std::nullopt});
  }
  if (rates_.size() == 1) rates_[0].name = "lr";
  begun_ = true;
  for (const std::string& name : yielded_) Yield(name);
}

void LearningRates::Report() {
  for (Rate& rate : rates_) {
    const double now = rate.optimizer->param_groups()[0].options().get_lr();
    if (rate.last == now) continue;
    rate.last = now;
    // Where all names are taken it is left out.
    if (context_.stats.scalars().Set(rate.name, now)) {
      reports_.Report(rate.name, now);
    }
  }
}

void LearningRates::Yield(std::string_view name) {
  if (!begun_) yielded_.insert(std::string(name));
  std::erase_if(rates_, [name](const Rate& rate) { return rate.name == name; });
}

ScalarReports::~ScalarReports() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status ScalarReports::Open() {
  const std::string& path = context_.options.report_file;
  if (path.empty()) return absl::OkStatus();
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("GAVEL_REPORT_FILE: ", path,
             " can't be opened for writing; give a path that can"));
}

void ScalarReports::Report(std::string_view name, double value) {
  if (!context_.stats.scalars().Set(name, value) && !refused_) {
    refused_ = true;
    context_.log.Warning(
        StrCat("'", name, "' is not sent to the coordinator: at most ",
               ScalarSlots::kCountMax, " names of 1 to ",
               ScalarSlots::kNameLengthMax, " characters are"));
  }
  const uint64_t steps_done = context_.stats.steps_done();
  context_.Warn(context_.profile.Report(name, steps_done, value));
  if (file_ != nullptr) {
    // Hexadecimal, so that two runs can be compared bit by bit.
    std::fprintf(file_, "%llu %.*s %a\n",
                 static_cast<unsigned long long>(steps_done),
                 static_cast<int>(name.size()), name.data(), value);
    std::fflush(file_);
  }
}

void ScalarReports::ReportTensor(std::string_view name,
                                 const at::Tensor& scalar) {
  if (!scalar.defined() || scalar.numel() != 1 || scalar.is_complex()) {
    if (std::exchange(not_scalar_, true)) return;
    return context_.log.Warning(StrCat(
        "'", name, "' is not reported: the tensor has ",
        scalar.defined() ? StrCat(scalar.numel(), " elements") : "no value",
        ", and a scalar has one real number; report its mean(), or each "
        "element under a name of its own"));
  }
  absl::Status status = CatchAsStatus("reporting a tensor", [&] {
    if (!scalar.device().is_cpu()) {
      const int64_t now_ns = Now_ns();
      if (file_ == nullptr &&
          now_ns < last_tensor_read_ns_ + kTensorReadInterval_ns) {
        return absl::OkStatus();
      }
      last_tensor_read_ns_ = now_ns;
    }
    Report(name, scalar.detach().item().toDouble());
    return absl::OkStatus();
  });
  if (!status.ok()) context_.Fail(Annotate(status, name));
}

}  // namespace gavel::internal
