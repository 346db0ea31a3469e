#include "runtime/transport/lease_granter.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr double kRetry_s = 0.05;
// A message that is sent before the worker's connection is established may be
// lost, so the request is repeated.
constexpr double kAskAgain_s = 0.5;

// Returns the worker that a message names; every message of a worker does.
std::optional<WorkerKey> WorkerOf(const Message& message) {
  return std::visit(
      [](const auto& one) -> std::optional<WorkerKey> {
        if constexpr (requires { one.worker.incarnation; }) return one.worker;
        return std::nullopt;
      },
      message);
}

// Returns null if the message has no progress.
const Progress* ProgressOf(const Message& message) {
  return std::visit(
      [](const auto& one) -> const Progress* {
        if constexpr (requires { one.progress.pausing_s; }) {
          return &one.progress;
        }
        return nullptr;
      },
      message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseGranter>> LeaseGranter::Open(
    const std::string& endpoint, Listener listener) {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
                         Router::Bind(endpoint));
  return std::unique_ptr<LeaseGranter>(
      new LeaseGranter(std::move(router), std::move(listener)));
}

uint64_t LeaseGranter::Begin(std::vector<LeasedJob> jobs) {
  jobs_ = std::move(jobs);
  contacts_.assign(jobs_.size(), Contact());
  return ++incarnation_;
}

void LeaseGranter::Turn(Time now, double wait_s) {
  while (auto incoming = router_->Receive(wait_s)) {
    Take(now, *incoming);
    wait_s = 0;
  }
  for (size_t job = 0; job < jobs_.size(); ++job) AskBack(now, job);
}

void LeaseGranter::TakeBack(Time now, size_t job, PauseTier tier) {
  jobs_[job].asked_at = now;
  contacts_[job].asking = true;
  contacts_[job].tier = tier;
  contacts_[job].ask_at = now;
  AskBack(now, job);
}

void LeaseGranter::AskBack(Time now, size_t job) {
  Contact& contact = contacts_[job];
  if (!contact.asking || contact.peer.empty() || now < contact.ask_at) return;
  contact.ask_at = now + kAskAgain_s;
  const uint64_t epoch = jobs_[job].epoch;
  Send(job, PauseRequest{contact.worker, {kTerm, epoch}, epoch, contact.tier});
}

void LeaseGranter::GrantNext(size_t job) {
  LeasedJob& one = jobs_[job];
  ++one.epoch;
  one.granted_at = one.asked_at = one.released_at = -1;
  one.runs = false;
  one.gang_address.clear();
  contacts_[job].asking = false;
  Send(job, LeaseNotice{contacts_[job].worker, {kTerm, one.epoch}, one.epoch});
}

void LeaseGranter::Send(size_t job, const Message& message) {
  const std::string& peer = contacts_[job].peer;
  // An error needs no handling: a lost message is repeated.
  if (!peer.empty()) router_->Send(peer, message).IgnoreError();
}

LeasedJob* LeaseGranter::Find(const WorkerKey& worker) {
  const uint64_t number = worker.job.value();
  if (worker.incarnation < incarnation_ || number < 1 ||
      number > jobs_.size() || worker.rank < 0) {
    return nullptr;
  }
  LeasedJob& job = jobs_[number - 1];
  const auto rank = static_cast<size_t>(worker.rank);
  return rank < job.terms.places.size() ? &job : nullptr;
}

void LeaseGranter::Take(Time now, const Incoming& incoming) {
  if (listener_) listener_(incoming);
  const Message& message = incoming.message;
  const std::optional<WorkerKey> worker = WorkerOf(message);
  LeasedJob* const job = worker ? Find(*worker) : nullptr;
  if (job == nullptr) return;
  if (worker->rank == 0) {
    job->heard = true;
    ContactOf(*worker).peer = incoming.peer;
    ContactOf(*worker).worker = *worker;
    const Progress* const progress = ProgressOf(message);
    if (progress != nullptr) job->pausing_s = progress->pausing_s;
  }
  if (const auto* request = std::get_if<LeaseRequest>(&message)) {
    // If the answer is lost, the worker asks again.
    router_->Send(incoming.peer, AnswerTo(now, *job, *request)).IgnoreError();
  } else if (const auto* report = std::get_if<StepReport>(&message)) {
    TakeReport(now, *job, *report);
  } else if (const auto* released = std::get_if<LeaseReleased>(&message)) {
    TakeRelease(now, *job, *released);
  } else if (const auto* end = std::get_if<WorkerFinished>(&message)) {
    TakeEnd(*job, *end);
  }
}

void LeaseGranter::TakeReport(Time now, LeasedJob& job,
                              const StepReport& report) {
  const Progress& progress = report.progress;
  // A worker that makes no steps repeats its last report.
  if (report.worker.rank != 0 || progress.steps_done <= job.steps_done) return;
  job.stepped_at = now;
  job.steps_done = progress.steps_done;
  job.runs |= report.epoch == job.epoch;
  if (progress.throughput_steps_per_s > 0 && progress.window_s > 0) {
    job.rates.push_back(
        {now, progress.throughput_steps_per_s, progress.window_s});
  }
}

void LeaseGranter::TakeRelease(Time now, LeasedJob& job,
                               const LeaseReleased& released) {
  const auto rank = static_cast<size_t>(released.worker.rank);
  const AcceleratorInfo& place = job.terms.places[rank];
  const std::string who =
      StrCat("rank ", rank, " on ", place.type, " ", place.uuid);
  switch (released.cause) {
    case ReleaseCause::kPaused:
      break;
    case ReleaseCause::kOutOfMemory:
      job.out_of_memory = true;
      break;
    case ReleaseCause::kDeviceFailed:
      job.error = StrCat(who, ": the device is not there or does not work");
      break;
    case ReleaseCause::kNoRoom:
      job.error = StrCat(who, ": other processes have its memory");
      break;
    case ReleaseCause::kResumeFailed:
      job.error = StrCat(who, ": it could not begin on what it was given");
      break;
  }
  if (rank != 0 || released.epoch != job.epoch) return;
  ContactOf(released.worker).asking = false;
  job.released_at = now;
  job.steps_done = std::max(job.steps_done, released.progress.steps_done);
}

void LeaseGranter::TakeEnd(LeasedJob& job, const WorkerFinished& end) {
  if (end.worker.rank == 0) {
    ContactOf(end.worker).asking = false;
    job.runs |= end.epoch == job.epoch;
  }
  const bool evicted = end.exit_code == kExitEvicted && job.asked_at >= 0;
  if (end.exit_code == 0 || evicted) return;
  job.error = end.detail;
  job.out_of_memory |= TellsOutOfMemory(end.detail);
}

Message LeaseGranter::AnswerTo(Time now, LeasedJob& job,
                               const LeaseRequest& request) {
  const bool first = request.worker.rank == 0;
  if (first && request.holding) job.gang_address = request.gang_address;
  const bool waits = !first && job.gang_address.empty();
  const bool wanted = request.holding ? request.epoch == job.epoch
                                      : request.released_epoch < job.epoch;
  if (first && request.holding && wanted) job.runs = true;
  if (waits || !wanted || job.asked_at >= 0) {
    return LeaseDenied{
        request.worker, {kTerm, job.epoch}, job.epoch, request.nonce, kRetry_s};
  }
  if (first && job.granted_at < 0) job.granted_at = now;
  LeaseGrant grant;
  grant.worker = request.worker;
  grant.position = {kTerm, job.epoch};
  grant.epoch = job.epoch;
  grant.nonce = request.nonce;
  grant.duration_s = job.terms.duration_s;
  grant.accelerator =
      job.terms.places[static_cast<size_t>(request.worker.rank)];
  grant.slots = job.terms.slots;
  grant.world_size = static_cast<int>(job.terms.places.size());
  if (!first) grant.gang_address = job.gang_address;
  grant.memory_limit_bytes = job.terms.memory_limit_bytes;
  return grant;
}

}  // namespace gavel
