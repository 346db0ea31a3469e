#include "coordinator/cli/profile_leases.h"

#include <utility>
#include <variant>

#include "core/launch_errors.h"
#include "core/status.h"

namespace gavel {
namespace {

constexpr double kGrantDuration_s = 60;
constexpr double kAskAgain_s = 0.05;
constexpr uint64_t kOnlyEpoch = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileLeases>> ProfileLeases::Open() {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
                         Router::Bind("tcp://127.0.0.1:0"));
  return std::unique_ptr<ProfileLeases>(new ProfileLeases(std::move(router)));
}

uint64_t ProfileLeases::Begin(std::vector<ProfiledJob> jobs) {
  jobs_ = std::move(jobs);
  return ++incarnation_;
}

void ProfileLeases::Turn(Time now, double wait_s) {
  while (auto incoming = router_->Receive(wait_s)) {
    Take(now, incoming->peer, incoming->message);
    wait_s = 0;
  }
}

ProfiledJob* ProfileLeases::Find(const WorkerKey& worker) {
  const uint64_t number = worker.job.value();
  if (worker.incarnation != incarnation_ || number < 1 ||
      number > jobs_.size() || worker.rank < 0) {
    return nullptr;
  }
  ProfiledJob& job = jobs_[number - 1];
  return static_cast<size_t>(worker.rank) < job.places.size() ? &job : nullptr;
}

void ProfileLeases::Take(Time now, const std::string& peer,
                         const Message& message) {
  const auto of = [this](const WorkerKey& worker) { return Find(worker); };
  if (const auto* request = std::get_if<LeaseRequest>(&message)) {
    if (ProfiledJob* job = of(request->worker)) {
      // Asked for again if it does not arrive.
      router_->Send(peer, AnswerTo(*job, *request)).IgnoreError();
    }
  } else if (const auto* report = std::get_if<StepReport>(&message)) {
    ProfiledJob* const job = of(report->worker);
    if (job == nullptr || report->worker.rank != 0) return;
    const Progress& progress = report->progress;
    // One that stands still repeats what it did before.
    if (progress.steps_done <= job->steps_done) return;
    job->stepped_at = now;
    job->steps_done = progress.steps_done;
    if (progress.throughput_steps_per_s > 0 && progress.window_s > 0) {
      job->reports.push_back(
          {now, progress.throughput_steps_per_s, progress.window_s});
    }
  } else if (const auto* released = std::get_if<LeaseReleased>(&message)) {
    if (ProfiledJob* job = of(released->worker)) {
      job->out_of_memory |= released->cause == ReleaseCause::kOutOfMemory;
    }
  } else if (const auto* end = std::get_if<WorkerFinished>(&message)) {
    ProfiledJob* const job = of(end->worker);
    if (job == nullptr || end->exit_code == 0) return;
    job->error = end->detail;
    job->out_of_memory |= TellsOutOfMemory(end->detail);
  }
}

Message ProfileLeases::AnswerTo(ProfiledJob& job, const LeaseRequest& request) {
  const bool first = request.worker.rank == 0;
  if (first && request.holding) job.gang_address = request.gang_address;
  const bool waits = !first && job.gang_address.empty();
  if (waits || request.released_epoch >= kOnlyEpoch) {
    return LeaseDenied{request.worker,
                       {1, kOnlyEpoch},
                       kOnlyEpoch,
                       request.nonce,
                       kAskAgain_s};
  }
  LeaseGrant grant;
  grant.worker = request.worker;
  grant.position = {1, kOnlyEpoch};
  grant.epoch = kOnlyEpoch;
  grant.nonce = request.nonce;
  grant.duration_s = kGrantDuration_s;
  grant.accelerator = job.places[static_cast<size_t>(request.worker.rank)];
  grant.slots = job.slots;
  grant.world_size = static_cast<int>(job.places.size());
  if (!first) grant.gang_address = job.gang_address;
  return grant;
}

}  // namespace gavel
