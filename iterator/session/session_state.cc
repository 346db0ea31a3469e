#include "iterator/session/session_state.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/environment.h"
#include "runtime/checkpoint/checkpoint_interval.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr uint64_t kNoStep = std::numeric_limits<uint64_t>::max();
// A tensor on a GPU is read this often at most, as reading waits for it.
constexpr int64_t kTensorReadInterval_ns = 500'000'000;

// While a save is under way, what came of it is looked at this often.
constexpr int64_t kSaveLookInterval_ns = 50'000'000;

}  // namespace

SessionState::SessionState(SessionOptions options, absl::Status problem)
    : options_(std::move(options)),
      log_(options_.log),
      position_(log_),
      accelerator_(options_.run_directory),
      world_size_(options_.world_size) {
  if (problem.ok()) problem = CheckOptions(options_);
  if (problem.ok()) problem = OpenReportFile();
  if (problem.ok()) problem = SayHello();
  if (problem.ok()) problem = OpenCheckpoints();
  if (!problem.ok()) Fail(std::move(problem));
}

SessionState::~SessionState() {
  if (started_ && !finish_done_) {
    log_.Warning(
        "the session ends without Finish(): no last checkpoint is written");
  }
  signals_.Restore();
  uncaught_exception_.Restore();
  checkpoints_.Wait().IgnoreError();  // it reports to what goes now
  lease_thread_.reset();
  if (report_file_ != nullptr) std::fclose(report_file_);
}

// What comes before the first loop may take long: the restore, the program's
// data.
absl::Status SessionState::SayHello() {
  if (!managed()) return absl::OkStatus();
  LeaseOptions lease;
  lease.worker = {JobId(options_.job), options_.rank, options_.incarnation};
  GAVEL_ASSIGN_OR_RETURN(lease_thread_,
                         LeaseThread::Start(options_.coordinator, lease,
                                            {gate_, stats_, board_, log_}));
  lease_thread_->Post(lease_event::Began{getpid()});
  return absl::OkStatus();
}

absl::Status SessionState::OpenReportFile() {
  if (options_.report_file.empty()) return absl::OkStatus();
  report_file_ = std::fopen(options_.report_file.c_str(), "ae");
  if (report_file_ != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("GAVEL_REPORT_FILE: ", options_.report_file,
             " can't be opened for writing; give a path that can"));
}

absl::Status SessionState::OpenCheckpoints() {
  if (options_.checkpoint_directory.empty()) {
    log_.Info(
        "no checkpoints are written: GAVEL_CHECKPOINT_DIRECTORY is not set");
    return absl::OkStatus();
  }
  GAVEL_RETURN_IF_ERROR(checkpoints_.Open(
      options_.checkpoint_directory, options_.checkpoints_kept, options_.rank,
      [this](Generation generation, const absl::Status& status) {
        CheckpointDone(generation, status);
      }));
  for (const std::string& note : checkpoints_.notes()) {
    log_.Warning(StrCat("fell back to an earlier checkpoint: ", note));
    board_.SetCheckpoint(absl::DataLossError(
        StrCat("fell back to an earlier checkpoint: ", note)));
  }
  if (checkpoints_.restored() == nullptr) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(position_.Restore(*checkpoints_.restored()));
  const Generation generation = checkpoints_.latest();
  log_.Info(StrCat("going on from ", GenerationName(generation), " in ",
                   options_.checkpoint_directory));
  generation_epoch_ = generation.epoch;
  restored_step_ = generation.step;
  stats_.SetStepsDone(generation.step);
  stats_.SetLastGeneration(generation);
  return absl::OkStatus();
}

absl::Status SessionState::Track(std::unique_ptr<TrackedItem> item) {
  const std::string name = item->name();
  if (board_.has_fatal()) return board_.Get();
  absl::Status status = absl::OkStatus();
  if (started_) {
    status = absl::FailedPreconditionError(
        StrCat("'", name,
               "' is tracked after the loop was begun; call Track "
               "before the first gavel::Iterator"));
  } else {
    status = tracked_.Add(std::move(item), checkpoints_.restored());
  }
  if (!status.ok()) Fail(status);
  return status;
}

void SessionState::Report(std::string_view name, double value) {
  if (!stats_.scalars().Set(name, value) && !report_refused_) {
    report_refused_ = true;
    log_.Warning(StrCat("'", name, "' is not sent to the coordinator: at most ",
                        ScalarSlots::kCountMax, " names of 1 to ",
                        ScalarSlots::kNameLengthMax, " characters are"));
  }
  Warn(profile_.Report(name, stats_.steps_done(), value));
  if (report_file_ != nullptr) {
    // In full, so that two runs can be compared to the bit.
    std::fprintf(report_file_, "%llu %.*s %a\n",
                 static_cast<unsigned long long>(stats_.steps_done()),
                 static_cast<int>(name.size()), name.data(), value);
    std::fflush(report_file_);
  }
}

void SessionState::ReportTensor(std::string_view name,
                                const at::Tensor& scalar) {
  absl::Status status = CatchAsStatus("reporting a tensor", [&] {
    if (!scalar.device().is_cpu()) {
      const int64_t now_ns = Now_ns();
      if (report_file_ == nullptr &&
          now_ns < last_tensor_read_ns_ + kTensorReadInterval_ns) {
        return absl::OkStatus();
      }
      last_tensor_read_ns_ = now_ns;
    }
    Report(name, scalar.detach().item().toDouble());
    return absl::OkStatus();
  });
  if (!status.ok()) Fail(Annotate(status, name));
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
  if (plan.run) batch_owner_ = batch;
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
  GAVEL_RETURN_IF_ERROR(CheckElastic(*range));
  if (!started_) {
    GAVEL_RETURN_IF_ERROR(Start());
  }
  if (stopped_) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(plan->skip,
                         position_.Enter(range, stats_.steps_done()));
  plan->ended = position_.at_end();
  plan->run = true;
  examination_.LoopBegan(stats_.steps_done());
  return absl::OkStatus();
}

absl::Status SessionState::Start() {
  started_ = true;
  if (checkpoints_.restored() != nullptr) {
    for (const std::string& name :
         tracked_.Untracked(*checkpoints_.restored())) {
      log_.Warning(StrCat("the checkpoint has '", name,
                          "', which this program does not track"));
    }
  }
  checkpoints_.Forget();
  GAVEL_RETURN_IF_ERROR(profile_.Open(options_, stats_.steps_done()));
  ScheduleCheckpoint();
  if (!options_.examination_file.empty()) {
    GAVEL_RETURN_IF_ERROR(
        examination_.Begin(options_.examination_file, tracked_));
  }
  if (BudgetIsUsedUp()) {
    log_.Info(StrCat("all ", options_.steps_total, " steps are done"));
    stopped_ = used_up_ = true;
    return absl::OkStatus();
  }
  if (options_.require_tracked_optimizer) {
    GAVEL_RETURN_IF_ERROR(optimizer_check_.Begin(tracked_));
  }
  if (options_.handle_signals) {
    signals_.Install(&gate_, managed() ? &lease_thread_->waker() : nullptr);
  }
  if (managed()) {
    training_thread_ = std::this_thread::get_id();
    uncaught_exception_.Install(
        [this](const std::string& what) { EndOutOfMemory(what); });
    // Only now: a process that has a lease may be sent a signal.
    asks_for_lease_ = true;
    lease_thread_->Post(lease_event::Started{stats_.Read(), getpid()});
    log_.Info(StrCat("job ", options_.job, ", rank ", options_.rank,
                     ": asking ", options_.coordinator, " for a lease"));
  }
  return absl::OkStatus();
}

void SessionState::LoopForwarded() {
  absl::Status status = CatchAsStatus("beginning the loop", [&] {
    return position_.Forwarded(accelerator_.last_device(), options_.rank,
                               world_size_);
  });
  if (!status.ok()) Fail(std::move(status));
}

void SessionState::LeaveLoop(bool at_step_end) {
  batch_owner_ = nullptr;
  step_counted_ = false;
  if (!stopped()) examination_.LoopEnded(stats_.steps_done(), at_step_end);
  if (at_step_end) {
    position_.ReachEnd();
    SetMark();
  }
  absl::Status status = CatchAsStatus("leaving the loop", [&] {
    position_.Leave();
    return absl::OkStatus();
  });
  if (!status.ok()) Fail(std::move(status));
}

void SessionState::Warn(const absl::Status& status) {
  if (!status.ok()) log_.Warning(std::string(status.message()));
}

void SessionState::Fail(absl::Status status) {
  if (board_.SetFatal(status)) log_.Error(std::string(status.message()));
}

bool SessionState::finished() const {
  if (board_.has_fatal() || evicted_) return false;
  return used_up_ || !position_.inside();
}

// The branches of a boundary that something called at, gravest first.
bool SessionState::Attend(bool after_step) {
  if (stopped()) return false;
  at_boundary_ = true;
  const bool goes_on = AttendPlace(after_step);
  at_boundary_ = false;
  stats_.MarkBoundary(Now_ns());
  profile_.EndBoundary();
  return goes_on;
}

// Nothing of ours throws into the host's loop.
bool SessionState::AttendPlace(bool after_step) {
  bool goes_on = false;
  examination_.SetQuiet(true);
  absl::Status status = CatchAsStatus("at a boundary", [&] {
    goes_on = AttendCalls(after_step);
    return absl::OkStatus();
  });
  examination_.SetQuiet(false);
  if (status.ok()) return goes_on;
  return Fail(std::move(status)), false;
}

bool SessionState::AttendCalls(bool after_step) {
  if (after_step && gang_.joined() && !EndGangStep()) return false;
  if (after_step && !AttendStep()) return false;
  const int64_t begin_ns = Now_ns();
  if (!AttendLease()) return false;
  const bool is_due = !gang_.joined() && CheckpointIsDue(Now_ns());
  if (is_due && CanCommit()) Commit().IgnoreError();
  if (after_step && !checkpoints_prepared_) PrepareCheckpoints();
  profile_.Exclude(Now_ns() - begin_ns);
  Warn(profile_.Tick(Now_ns(), device(), stats_));
  if (Now_ns() >= memory_due_ns_) TellMemory();
  SetAttention();
  return true;
}

bool SessionState::AttendStep() {
  SlowDown();
  examination_.StepDone(stats_.steps_done());
  if (!optimizer_check_.done()) {
    absl::Status status = optimizer_check_.Check();
    if (!status.ok()) return Fail(std::move(status)), false;
  }
  if (!BudgetIsUsedUp()) return true;
  stopped_ = used_up_ = true;
  Commit().IgnoreError();
  return false;
}

bool SessionState::AttendLease() {
  const bool needs_device = !managed() && !accelerator_.held();
  if (needs_device && !TakeDeviceAlone()) return false;
  const bool answers = !gang_.joined() && gate_.IsCalled(Now_ns());
  if (answers && !AnswerCalls()) return false;
  return !gang_.joined() || AttendGang();
}

// Sleeps as long as the step would take more on a slower accelerator: for
// demonstration only, and labelled so in the log of each lease.
void SessionState::SlowDown() {
  const double factor = accelerator_.slow_down_factor();
  if (factor <= 1) return;
  const int64_t begin_ns = Now_ns();
  std::this_thread::sleep_for(std::chrono::nanoseconds(
      std::llround((factor - 1) * static_cast<double>(stats_.last_step_ns()))));
  stats_.AddRunning(Now_ns() - begin_ns);
}

bool SessionState::BudgetIsUsedUp() const {
  return options_.steps_total > 0 && steps_done() >= options_.steps_total;
}

bool SessionState::CheckpointIsDue(int64_t now_ns) const {
  if (!checkpoints_.enabled()) return false;
  // By steps: at just these, waiting for the save before. By time: put off
  // until that one is done.
  return stats_.steps_done() >= checkpoint_due_step_ ||
         (now_ns >= checkpoint_due_ns_ && !checkpoints_.IsBusy());
}

void SessionState::ScheduleCheckpoint() {
  double interval_s = options_.checkpoint_interval_s;
  if (interval_s < 0) {
    // Until the first save has shown what one costs.
    interval_s = kCheckpointIntervalMin_s;
    if (checkpoint_stall_s_ > 0) {
      interval_s = CheckpointInterval_s(
          checkpoint_stall_s_, options_.failure_interval_s, world_size_);
    }
  }
  const int64_t interval_steps = options_.checkpoint_interval_steps;
  checkpoint_due_ns_ =
      interval_s > 0 ? ToNanoseconds(Now() + interval_s) : kNever_ns;
  checkpoint_due_step_ =
      interval_steps > 0
          ? stats_.steps_done() + static_cast<uint64_t>(interval_steps)
          : kNoStep;
}

void SessionState::SetAttention() {
  attention_step_ = kNoStep;
  attention_ns_ = kNever_ns;
  if (options_.steps_total > 0) {
    attention_step_ = static_cast<uint64_t>(options_.steps_total);
  }
  if (checkpoints_.enabled()) {
    attention_step_ = std::min(attention_step_, checkpoint_due_step_);
    attention_ns_ = checkpoint_due_ns_;
  }
  if (checkpoints_.IsBusy()) {
    attention_ns_ = Now_ns() + kSaveLookInterval_ns;
  }
  attention_ns_ =
      std::min({attention_ns_, profile_.next_tick_ns(), memory_due_ns_});
  if (!optimizer_check_.done() || accelerator_.slow_down_factor() > 1 ||
      gang_.joined() || examination_.on()) {
    attention_step_ = 0;  // every step
  }
}

}  // namespace gavel::internal
