#include "study/profile/profile_leases.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "core/launch_errors.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kRetry_s = 0.05;
// A message may be lost before the worker's connection stands.
constexpr double kAskAgain_s = 0.5;

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileLeases>> ProfileLeases::Open() {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
                         Router::Bind("tcp://127.0.0.1:0"));
  return std::unique_ptr<ProfileLeases>(new ProfileLeases(std::move(router)));
}

uint64_t ProfileLeases::Begin(std::vector<ProfiledJob> jobs) {
  jobs_ = std::move(jobs);
  contacts_.assign(jobs_.size(), Contact());
  return ++incarnation_;
}

void ProfileLeases::Turn(Time now, double wait_s) {
  while (auto incoming = router_->Receive(wait_s)) {
    Take(now, incoming->peer, incoming->message);
    wait_s = 0;
  }
  for (size_t job = 0; job < jobs_.size(); ++job) AskBack(now, job);
}

void ProfileLeases::TakeBack(Time now, size_t job, PauseTier tier) {
  jobs_[job].asked_at = now;
  contacts_[job].tier = tier;
  contacts_[job].asked_again_at = now;
  AskBack(now, job);
}

void ProfileLeases::AskBack(Time now, size_t job) {
  const ProfiledJob& one = jobs_[job];
  Contact& contact = contacts_[job];
  if (one.asked_at < 0 || one.released_at >= 0 ||
      now < contact.asked_again_at) {
    return;
  }
  contact.asked_again_at = now + kAskAgain_s;
  const WorkerKey worker{JobId(job + 1), 0, incarnation_};
  Send(job, PauseRequest{worker, {1, one.epoch}, one.epoch, contact.tier});
}

void ProfileLeases::GiveAgain(size_t job) {
  ProfiledJob& one = jobs_[job];
  ++one.epoch;
  one.granted_at = one.asked_at = one.released_at = -1;
  const WorkerKey worker{JobId(job + 1), 0, incarnation_};
  Send(job, LeaseNotice{worker, {1, one.epoch}, one.epoch});
}

void ProfileLeases::Send(size_t job, const Message& message) {
  // Asked for again if it does not arrive.
  router_->Send(contacts_[job].peer, message).IgnoreError();
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
      if (request->worker.rank == 0) {
        contacts_[request->worker.job.value() - 1].peer = peer;
      }
      // Asked for again if it does not arrive.
      router_->Send(peer, AnswerTo(now, *job, *request)).IgnoreError();
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
      NoteRelease(*job, *released);
      if (released->worker.rank == 0 && released->epoch == job->epoch) {
        job->released_at = now;
        job->steps_done =
            std::max(job->steps_done, released->progress.steps_done);
      }
    }
  } else if (const auto* end = std::get_if<WorkerFinished>(&message)) {
    ProfiledJob* const job = of(end->worker);
    if (job == nullptr || end->exit_code == 0) return;
    if (end->exit_code == kExitEvicted && job->asked_at >= 0) return;
    job->error = end->detail;
    job->out_of_memory |= TellsOutOfMemory(end->detail);
  }
}

// Nobody asked for it: whatever was granted, the worker could not run.
void ProfileLeases::NoteRelease(ProfiledJob& job,
                                const LeaseReleased& released) {
  const auto rank = static_cast<size_t>(released.worker.rank);
  const AcceleratorInfo& place = job.places[rank];
  const std::string who =
      StrCat("rank ", rank, " on ", place.type, " ", place.uuid);
  switch (released.cause) {
    case ReleaseCause::kPaused:
      return;
    case ReleaseCause::kOutOfMemory:
      job.out_of_memory = true;
      return;
    case ReleaseCause::kDeviceFailed:
      job.error = StrCat(who, ": the device is not there or does not work");
      return;
    case ReleaseCause::kResumeFailed:
      job.error = StrCat(who, ": it could not begin on what it was given");
      return;
  }
}

Message ProfileLeases::AnswerTo(Time now, ProfiledJob& job,
                                const LeaseRequest& request) {
  const bool first = request.worker.rank == 0;
  if (first && request.holding) job.gang_address = request.gang_address;
  const bool waits = !first && job.gang_address.empty();
  if (waits || job.asked_at >= 0 || request.released_epoch >= job.epoch) {
    return LeaseDenied{
        request.worker, {1, job.epoch}, job.epoch, request.nonce, kRetry_s};
  }
  if (first && job.granted_at < 0) job.granted_at = now;
  LeaseGrant grant;
  grant.worker = request.worker;
  grant.position = {1, job.epoch};
  grant.epoch = job.epoch;
  grant.nonce = request.nonce;
  grant.duration_s = job.lease_s;
  grant.accelerator = job.places[static_cast<size_t>(request.worker.rank)];
  grant.slots = job.slots;
  grant.world_size = static_cast<int>(job.places.size());
  if (!first) grant.gang_address = job.gang_address;
  return grant;
}

}  // namespace gavel
