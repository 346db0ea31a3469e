#include "coordinator/cli/doctor/doctor_lease.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "core/status.h"

namespace gavel {
namespace {

constexpr double kLeaseDuration_s = 60;
constexpr double kRetry_s = 0.05;
// A message may be lost before the worker's connection stands.
constexpr double kAskAgain_s = 0.5;

}  // namespace

absl::StatusOr<std::unique_ptr<DoctorLease>> DoctorLease::Open(
    AcceleratorInfo first, AcceleratorInfo second) {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
                         Router::Bind("tcp://127.0.0.1:0"));
  return std::unique_ptr<DoctorLease>(
      new DoctorLease(std::move(router), std::move(first), std::move(second)));
}

DoctorLease::DoctorLease(std::unique_ptr<Router> router, AcceleratorInfo first,
                         AcceleratorInfo second)
    : router_(std::move(router)),
      accelerators_{std::move(first), std::move(second)} {}

void DoctorLease::Turn(Time now) {
  while (auto incoming = router_->Receive(0)) {
    peer_ = incoming->peer;
    Take(now, incoming->message);
  }
  if (interrupted() && !released_ && now >= asked_again_at_) {
    asked_again_at_ = now + kAskAgain_s;
    Send(PauseRequest{worker_, {1, epoch_}, epoch_, PauseTier::kPark});
  }
}

void DoctorLease::Interrupt(Time now) {
  if (!granted_ || interrupted()) return;
  interrupted_at_ = asked_again_at_ = now;
  Turn(now);
}

void DoctorLease::Take(Time now, const Message& message) {
  std::visit(
      [this](const auto& one) {
        if constexpr (requires { one.worker.incarnation; }) {
          worker_ = one.worker;
        }
        if constexpr (requires { one.progress.pausing_s; }) {
          lost_s_ = one.progress.pausing_s;
        }
      },
      message);
  if (const auto* released = std::get_if<LeaseReleased>(&message)) {
    if (released->epoch == 1) TakeRelease(now, released->progress.steps_done);
  } else if (const auto* request = std::get_if<LeaseRequest>(&message)) {
    resumed_ = resumed_ || (request->holding && request->epoch == 2);
    Send(AnswerTo(*request));
  } else if (const auto* report = std::get_if<StepReport>(&message)) {
    resumed_ = resumed_ || (report->epoch == 2 &&
                            report->progress.steps_done > paused_after_step_);
  } else if (const auto* end = std::get_if<WorkerFinished>(&message)) {
    resumed_ = resumed_ || (end->epoch == 2 && released_);
  }
}

void DoctorLease::TakeRelease(Time now, uint64_t steps_done) {
  if (released_) return;
  released_ = true;
  paused_after_step_ = steps_done;
  pause_s_ = interrupted() ? now - interrupted_at_ : 0;
  epoch_ = 2;
  Send(LeaseNotice{worker_, {1, epoch_}, epoch_});
}

Message DoctorLease::AnswerTo(const LeaseRequest& request) {
  const bool wanted = request.holding ? request.epoch == epoch_
                                      : request.released_epoch < epoch_;
  if (!wanted || (interrupted() && !released_)) {
    return LeaseDenied{
        request.worker, {1, epoch_}, epoch_, request.nonce, kRetry_s};
  }
  granted_ = true;
  LeaseGrant grant;
  grant.worker = request.worker;
  grant.position = {1, epoch_};
  grant.epoch = epoch_;
  grant.nonce = request.nonce;
  grant.duration_s = kLeaseDuration_s;
  grant.accelerator = accelerators_[epoch_ - 1];
  return grant;
}

void DoctorLease::Send(const Message& message) {
  router_->Send(peer_, message).IgnoreError();  // asked for again if it matters
}

}  // namespace gavel
