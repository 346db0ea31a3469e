#include "iterator/session/session_state.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/environment.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

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
}

bool SessionState::finished() const {
  if (context_.board.has_fatal() || control_.evicted()) return false;
  return control_.used_up() || !position_.inside();
}

int SessionState::Finish() {
  if (finish_done_) return exit_code_;
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

}  // namespace gavel::internal
