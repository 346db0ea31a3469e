// What a session does as one rank of a gang: coming together at the begin of a
// lease, stopping where all ranks have agreed to, and leaving when one is lost.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/session/session_state.h"

namespace gavel::internal {
namespace {

// Coming together that hangs must end before the lease does.
constexpr double kMeetingTimeoutMin_s = 1;
constexpr double kMeetingTimeoutMax_s = 30;
constexpr char kLoopback[] = "127.0.0.1";

}  // namespace

void SessionState::AddToGang(std::shared_ptr<torch::nn::Module> module) {
  if (module == nullptr) {
    return Fail(absl::InvalidArgumentError(
        "DataParallel: the module is null; make it before"));
  }
  if (started_) {
    return Fail(absl::FailedPreconditionError(
        "DataParallel was made after the loop was begun; make it before the "
        "first gavel::Iterator"));
  }
  gang_.Add(std::move(module));
}

void SessionState::RemoveFromGang(const torch::nn::Module* module) {
  gang_.Remove(module);
}

// With a batch size per worker alone, a step would become another one with each
// change.
absl::Status SessionState::CheckElastic(const RangePosition& range) const {
  if (options_.world_size_max <= options_.world_size_min ||
      range.FitsAnyWorldSize()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("the job may get ", options_.world_size_min, " to ",
             options_.world_size_max,
             " workers, but its steps depend on their number: wrap a "
             "gavel::DataLoader with DataLoaderOptions::global_batch_size, or "
             "take scale_factor_min and scale_factor_max out of the job file"));
}

absl::Status SessionState::JoinLeased(const lease_action::Resume& lease) {
  if (lease.world_size < 2) return absl::OkStatus();
  GangPlan plan;
  plan.hosts = options_.rank == 0;
  plan.endpoint = lease.gang_address;
  plan.address = options_.address.empty() ? kLoopback : options_.address;
  plan.prefix = StrCat("gavel/", options_.job, "/", lease.epoch);
  plan.world_size = lease.world_size;
  const double left_s = lease.deadline - Now();
  plan.meeting_timeout_s =
      std::clamp(left_s / 2, kMeetingTimeoutMin_s, kMeetingTimeoutMax_s);
  plan.opened = [&](const std::string& endpoint) {
    lease_thread_->Post(lease_event::GangOpened{lease.epoch, endpoint});
  };
  plan.gives_up = [this] { return gate_.has_calls(); };
  plan.lease_is_over = [this] { return gate_.IsDeadlineOver(Now_ns()); };
  stop_ahead_ns_ = ToNanoseconds(GangStopAhead(left_s));
  absl::Status status = JoinGang(std::move(plan));
  // State in memory that the gang has left behind is of no use.
  if (absl::IsAborted(status)) EndProcess(std::string(status.message()));
  // What this build lacks, no other lease brings.
  if (absl::IsFailedPrecondition(status)) Fail(status);
  return status;
}

absl::Status SessionState::JoinAlone() {
  if (world_size_ < 2) return absl::OkStatus();
  const GangOptions& gang = options_.gang;
  const size_t colon = gang.store.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(gang.store.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(
        StrCat("rank ", options_.rank, " of ", world_size_,
               ", but where rank 0 is to be found is not said; start with "
               "torchrun, or set MASTER_ADDR and MASTER_PORT"));
  }
  GangPlan plan;
  plan.hosts = options_.rank == 0 && !gang.launcher_hosts;
  plan.endpoint = gang.store;
  plan.address = options_.address;
  const std::string host = gang.store.substr(0, colon);
  if (host == "localhost" || host == kLoopback) plan.address = kLoopback;
  if (plan.hosts && plan.address.empty()) plan.address = host;
  plan.port = port;
  plan.prefix = StrCat("gavel/", gang.name);
  plan.world_size = world_size_;
  plan.gives_up = [this] { return gate_.stop_requested(); };
  // The epoch is that of before a restart, so that steps come again under the
  // same names. (With a lease it is new.)
  if (options_.rank == 0) {
    Warn(checkpoints_.RemoveLeftovers(generation_epoch_));
  }
  return JoinGang(std::move(plan));
}

absl::Status SessionState::JoinGang(GangPlan plan) {
  const RuntimeSpan span(profile_.ring(), "join gang");
  plan.rank = options_.rank;
  plan.device = accelerator_.device();
  plan.steps_done = stats_.steps_done();
  gang_pause_.reset();
  // A gang begins where the one before has written down, or has failed to.
  checkpoints_.Wait().IgnoreError();
  GAVEL_RETURN_IF_ERROR(gang_.Join(plan));
  log_.Info(StrCat("rank ", plan.rank, " of a gang of ", plan.world_size,
                   " on ", plan.device.str()));
  return absl::OkStatus();
}

bool SessionState::EndGangStep() {
  absl::Status status = gang_.EndStep();
  if (status.ok()) return true;
  if (absl::IsUnavailable(status)) {
    return LeaveBroken(std::string(status.message()));
  }
  Fail(std::move(status));
  gang_broken_ = true;
  gang_.Leave(Leaving::kBroken);
  return false;
}

bool SessionState::AttendGang() {
  const auto lease_is_over = [this] { return gate_.IsDeadlineOver(Now_ns()); };
  if (lease_is_over()) {
    return LeaveBroken("the lease ended before all ranks agreed on a step");
  }
  const bool rests = !at_boundary_ && RestsBetweenSteps();
  if (!at_boundary_ && !rests) return true;  // inside a step nothing is agreed
  HearCallsOfGang();
  while (true) {
    switch (gang_.Pass(stats_.steps_done(), /*begins=*/!rests, lease_is_over)) {
      case StopMember::Passage::kGoOn:
        // By steps it is due on all ranks at once.
        if (!rests && checkpoints_.enabled() &&
            stats_.steps_done() >= checkpoint_due_step_) {
          Commit().IgnoreError();
        }
        return true;
      case StopMember::Passage::kCheckpoint:
        Commit().IgnoreError();
        break;
      case StopMember::Passage::kStop:
        return StopGang();
      case StopMember::Passage::kWait:
      case StopMember::Passage::kMissed:
        return LeaveBroken(gang_.why_broken());
    }
  }
}

// What this rank is told, the others are to know.
void SessionState::HearCallsOfGang() {
  const int64_t now_ns = Now_ns();
  if (gate_.has_calls()) {
    const BoundaryGate::Calls calls = gate_.Take(/*wait=*/false);
    if (calls.pause &&
        (!gang_pause_ || StrongerThan(calls.pause->tier, gang_pause_->tier))) {
      gang_pause_ = calls.pause;
    }
    if (calls.stop) gang_pause_ = {PauseTier::kEvict, "ended by a signal"};
    if (calls.threads) UseThreads(*calls.threads);
    if (calls.checkpoint) checkpoint_due_ns_ = now_ns;
  }
  if (gang_pause_ || gate_.IsDeadlineOver(now_ns + stop_ahead_ns_)) {
    gang_.Want(StopKind::kStop);
  }
  // One clock for all.
  if (options_.rank == 0 && checkpoints_.enabled() &&
      now_ns >= checkpoint_due_ns_ && !checkpoints_.IsBusy()) {
    gang_.Want(StopKind::kCheckpoint);
  }
}

bool SessionState::StopGang() {
  gang_.Stop(stats_.steps_done());
  if (!managed()) return StopAlone();
  lease_action::Pause pause{PauseTier::kPark,
                            "another rank of the gang was told to"};
  if (gang_pause_) pause = *std::exchange(gang_pause_, std::nullopt);
  return Park(pause) && (!gang_.joined() || AttendGang());
}

// Unless CheckpointDone() does so later.
void SessionState::SettleGang() {
  if (checkpoints_.IsWriting(NextGeneration())) return;
  gang_.Settle(stats_.steps_done(), /*written=*/true);
}

bool SessionState::LeaveBroken(const std::string& why) {
  gang_broken_ = true;
  gang_.Leave(Leaving::kBroken);
  const std::string line =
      StrCat("the gang is broken in step ", stats_.steps_done(), ": ", why,
             "; it starts again from the last generation");
  log_.Warning(line);
  if (managed()) EndProcess("the gang is broken");
  stopped_ = evicted_ = true;
  board_.SetEnded(absl::UnavailableError(line));
  return false;
}

}  // namespace gavel::internal
