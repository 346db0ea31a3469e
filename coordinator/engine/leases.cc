#include "coordinator/engine/leases.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/workers.h"
#include "core/error_line.h"
#include "core/text.h"

namespace gavel::engine {

// ---- the book

bool LeaseBook::CanStart(const Job& job) const {
  if (!job.active() || job.assigned.empty()) return false;
  if (!job.AllJoined()) return false;
  for (size_t rank = job.assigned.size(); rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) return false;  // it leaves
  }
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const Accelerator& next = cluster_.accelerator(job.assigned[rank]);
    if (worker.leaving || worker.server != next.server) return false;
    if (!worker.Sees(next.id)) return false;
    if (!next.usable()) return false;
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) return false;
    if (HeldByOther(next.id, job) != nullptr) return false;
    if (LeavingMemory(next.id, job) != nullptr) return false;
  }
  return true;
}

bool LeaseBook::CanLaunch(const Job& job) const {
  if (!job.active() || job.assigned.empty()) return false;
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const Accelerator& next = cluster_.accelerator(job.assigned[rank]);
    if (worker.process != ProcessState::kLaunching || worker.leaving ||
        worker.launched_on != next.id || !next.may_start() ||
        HeldByOther(next.id, job) != nullptr ||
        LeavingMemory(next.id, job) != nullptr) {
      return false;
    }
  }
  return true;
}

const WorkerKey* LeaseBook::HeldByOther(AcceleratorId accelerator,
                                        const Job& job) const {
  const auto quarantine = quarantined_.find(accelerator);
  if (quarantine != quarantined_.end()) return &quarantine->second;
  for (const WorkerKey& key : holders_.At(accelerator)) {
    if (key.job == job.id) continue;
    const Job& other = jobs_.at(key.job);
    const Worker& worker = jobs_.WorkerOf(key);
    const bool has_half = worker.held_epoch == other.epoch;
    if (jobs_.Together(job, key.job) && has_half) continue;
    return &key;
  }
  return SilentBefore(accelerator, job);
}

const WorkerKey* LeaseBook::SilentBefore(AcceleratorId accelerator,
                                         const Job& job) const {
  const auto [begin, end] = silent_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    // Another rank of its own that is being ended is in its way as well.
    const bool own = it->second.job == job.id;
    if (own && !jobs_.WorkerOf(it->second).leaving) return nullptr;
    if (!jobs_.Together(job, it->second.job)) return &it->second;
  }
  return nullptr;
}

void LeaseBook::EndSilent(AcceleratorId accelerator, const WorkerKey& worker) {
  const auto [begin, end] = silent_.equal_range(accelerator);
  const auto found = std::find_if(
      begin, end, [&](const auto& entry) { return entry.second == worker; });
  if (found != end) silent_.erase(found);
}

const WorkerKey* LeaseBook::LeavingMemory(AcceleratorId accelerator,
                                          const Job& job) const {
  const auto [begin, end] = contexts_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    if (it->second.job == job.id) continue;
    const Worker& worker = jobs_.WorkerOf(it->second);
    if (worker.is_parked() && (worker.leaving || worker.finished)) {
      return &it->second;
    }
  }
  return nullptr;
}

void LeaseBook::Begin(AcceleratorId accelerator, const WorkerKey& worker) {
  holders_.Add(accelerator, worker);
}

void LeaseBook::End(AcceleratorId accelerator, JobId job) {
  holders_.Remove(accelerator,
                  [&](const WorkerKey& key) { return key.job == job; });
}

bool LeaseBook::IsQuarantined(const WorkerKey& worker,
                              std::string_view server) const {
  return std::ranges::any_of(quarantined_, [&](const auto& entry) {
    return entry.second == worker &&
           cluster_.accelerator(entry.first).server == server;
  });
}

void LeaseBook::Quarantine(const Worker& worker, const WorkerKey& key) {
  std::set<AcceleratorId> used = worker.contexts;
  if (worker.held_epoch != 0) used.insert(worker.held);
  if (worker.launched_on.valid()) used.insert(worker.launched_on);
  for (const AcceleratorId id : used) quarantined_.emplace(id, key);
}

std::optional<AcceleratorId> LeaseBook::EndQuarantine(const WorkerKey& worker) {
  const auto found = std::ranges::find_if(
      quarantined_, [&](const auto& entry) { return entry.second == worker; });
  if (found == quarantined_.end()) return std::nullopt;
  const AcceleratorId freed = found->first;
  quarantined_.erase(found);
  return freed;
}

void LeaseBook::AddContext(AcceleratorId accelerator, const WorkerKey& worker) {
  contexts_.emplace(accelerator, worker);
}

void LeaseBook::EndContexts(const WorkerKey& worker) {
  std::erase_if(contexts_,
                [&](const auto& entry) { return entry.second == worker; });
}

LeaseBook::ContextRange LeaseBook::Contexts(AcceleratorId accelerator) const {
  const auto [begin, end] = contexts_.equal_range(accelerator);
  return {begin, end};
}

std::set<WorkerKey> LeaseBook::ParkedOn(AcceleratorId accelerator) const {
  std::set<WorkerKey> parked;
  const auto [begin, end] = contexts_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    const Worker& worker = jobs_.WorkerOf(it->second);
    if (worker.is_parked() && !worker.leaving && !worker.finished) {
      parked.insert(it->second);
    }
  }
  return parked;
}

// ---- messages and events of workers

void On(State& s, Time now, const event::WorkerJoined& e) {
  Worker* worker = s.jobs.Find(e.hello.worker);
  Job* job = s.jobs.Find(e.hello.worker.job);
  if (worker == nullptr) return;
  s.changes.Touch(*job);
  worker->spoke = true;
  job->hung_launches = 0;
  EndSilence(s, now, e.hello.worker, *worker);
  if (!e.hello.ready) {
    worker->launch_sent_at = now;  // the start timeout counts from here
    return s.agenda.Due(now + StartTimeout(*job, s.options));
  }
  worker->process = ProcessState::kJoined;
  worker->launch_sent_at = kNever;
  worker->stop_sent_at = kNever;
  worker->asked_at = now;
  s.agenda.Due(now + StartTimeout(*job, s.options));
  worker->progress = e.hello.progress;
  worker->progress_at = now;
  worker->Know(now, e.hello.progress);
  s.checkpoints.NoteRestored(*job, worker->server);
  s.checkpoints.EndFetch(e.hello.worker);
  // A checkpoint of a later step shows that the job advanced since the last
  // start. A newer generation alone does not: an eviction makes one of the same
  // step.
  const Generation& start = e.hello.progress.last_generation;
  if (start.step > job->restored.step) job->failures_in_a_row = 0;
  job->restored = std::max(job->restored, start);
  // Other ranks may be done already, in a gang that did not come to its end.
  ReviveDone(s, now, *job);
  NotifyReady(s, *job);
}

void On(State& s, Time now, const event::LeaseStarted& e) {
  Job* job = s.jobs.Find(e.worker.job);
  Worker* worker = s.jobs.Find(e.worker);
  if (worker == nullptr) return;
  s.changes.Touch(*job);
  s.ledger.BookStart(now, *job, *worker);
  worker->held_epoch = e.epoch;
  worker->held = e.accelerator;
  worker->world_size = job->world_size;
  worker->held_with = job->partner;
  worker->lease_seq = s.outbox.seq();
  worker->leased_at = now;
  worker->accrued_at = now;
  worker->lease_expires = now;    // until it is granted
  worker->reported_at = -kNever;  // the first report of each lease is journaled
  worker->unjournaled = {};
  worker->stepped_at = now;
  worker->hung_s = 0;
  job->failure_counted = false;
  worker->pause_tier = PauseTier::kPark;
  worker->parked_at = kNever;
  worker->kept_on = AcceleratorId();
  worker->left_on = AcceleratorId();
  if (CountsContexts(s.cluster.accelerator(worker->held).info) &&
      worker->contexts.insert(worker->held).second) {
    s.leases.AddContext(worker->held, e.worker);
  }
  s.leases.Begin(worker->held, e.worker);
  if (e.worker.rank == 0) job->stays.Begin(e.accelerator);
  s.checkpoints.NoteWriter(*job, worker->server, e.epoch);
  s.trials.NoteTried(*job, *worker);
  NoteResized(now, *job);
  if (job->spec.time_limit_s || job->spec.interactive()) s.agenda.Due(now);
  if (job->spec.opaque() && worker->launch_sent_at == kNever) {
    worker->lease_expires = kNever;
    BeginLaunch(s, now, *job, e.worker.rank);
  }
}

void On(State& s, Time now, const event::LeaseEnded& e) {
  Worker* worker = s.jobs.Find(e.worker);
  Job* job = s.jobs.Find(e.worker.job);
  if (worker == nullptr || worker->held_epoch != e.epoch) return;
  s.changes.Touch(*job);
  // The job ran on this accelerator. That is judged by this row alone, as for
  // StepsReported.
  if (e.cause == ReleaseCause::kPaused && !e.finished &&
      e.progress.steps_done > 0) {
    s.accusations.NoteGoodEnd(e.worker.job, worker->held);
  }
  worker->progress = e.progress;
  worker->progress_at = now;
  worker->Know(now, e.progress);
  if (e.worker.rank == 0) NoteLoss(e.progress, *job);
  if (e.worker.rank == 0 && e.progress.window_s > 0) {
    Measure(s, now, *job, e.progress);
  }
  worker->finished |= e.finished;
  if (e.finished_code) worker->finished_code = e.finished_code;
  if (e.worker.rank == 0) {
    job->stays.End(e.cause == ReleaseCause::kPaused && !e.finished,
                   e.worker.incarnation, e.progress.pausing_s);
  }
  worker->need_bytes = std::max(worker->need_bytes, e.progress.state_bytes);
  const bool given_up = worker->held_epoch == job->epoch;
  const AcceleratorId held = worker->held;
  const JobId held_with = worker->held_with;
  const bool kept = worker->pause_tier == PauseTier::kKeep &&
                    e.cause == ReleaseCause::kPaused && !e.finished;
  EndLease(s, now, *job, *worker);
  worker->parked_at = now;
  worker->kept_on = kept ? held : AcceleratorId();
  worker->left_on = held;
  if (e.cause == ReleaseCause::kOutOfMemory ||
      e.cause == ReleaseCause::kNoRoom) {
    worker->out_of_memory = e.finished;
    OutOfMemory(s, *job, held, held_with, e.cause, now);
  } else if (given_up && !e.finished && job->active() &&
             !job->assigned.empty()) {
    GiveUpEpoch(s, now, *job, e.cause);
  }
  ReviveDone(s, now, *job);
  NotifyReady(s, *job);
}

void On(State& s, Time now, const event::StepsReported& e) {
  Worker* worker = s.jobs.Find(e.worker);
  if (worker == nullptr) return;
  // The job runs. That is judged by this row alone: a replay does not have the
  // reports that were not journaled.
  if (e.progress.throughput_steps_per_s > 0) {
    s.jobs.at(e.worker.job).failed_starts = 0;
    if (worker->held_epoch != 0) {
      s.accusations.NoteGoodEnd(e.worker.job, worker->held);
    }
  }
  worker->need_bytes = std::max(worker->need_bytes, e.progress.device_bytes);
  Job& job = s.jobs.at(e.worker.job);
  s.changes.Touch(job);
  NoteSteps(now, *worker, e.progress);
  worker->Know(now, e.progress);
  if (e.worker.rank == 0) NoteLoss(e.progress, job);
  if (e.worker.rank != 0 || worker->held_epoch == 0) return;
  Measure(s, now, job, e.progress);
  if (s.options.introspection) s.agenda.JudgeSoon(job.id);
}

namespace {

// Denied workers ask again after this time; usually a LeaseNotice reaches them
// sooner.
constexpr double kRetryAfter_s = 2;

// The same for the other ranks of a gang, while rank 0 opens its store.
constexpr double kGangRetry_s = 0.5;

// A lease shorter than kLeaseMin_s is not begun. The ranks of a gang stop up to
// three of their steps before its end, so a gang would come together for
// nothing in a lease that is not longer than kGangLeaseMinSteps steps. That
// limit is clamped to between kGangLeaseMin and kGangLeaseMinMost of a whole
// lease.
constexpr double kLeaseMin_s = 0.05;
constexpr double kGangLeaseMinSteps = 4;
constexpr double kGangLeaseMin = 0.1;
constexpr double kGangLeaseMinMost = 0.5;

// The process failed by itself, with a lease or before its first one.
bool IsFailure(const Worker& worker, const WorkerExited& exit) {
  const bool counts = worker.held_epoch != 0 || !worker.left_on.valid();
  return counts && !worker.out_of_memory && !exit.stopped && !exit.no_failure &&
         exit.launch_error.empty() &&
         (exit.signal != 0 ||
          (exit.exit_code != 0 && exit.exit_code != kExitEvicted));
}

// Its exit code is that of the last command that somebody typed.
bool IsEndOfInteractive(const Job& job, const WorkerExited& exit) {
  return job.spec.interactive() && exit.signal == 0 &&
         exit.launch_error.empty();
}

// Takes the exit code from the session, where the process itself ended with 0:
// a shell that ran the program may end with 0 whatever the program did.
void UncoverCode(const Worker& worker, WorkerExited& exit) {
  if (!exit.finished_code) exit.finished_code = worker.finished_code;
  const bool by_itself = exit.signal == 0 && exit.launch_error.empty();
  // A code below 0 says that the session began, and did not come to its end.
  const int finished = std::max(0, exit.finished_code.value_or(0));
  if (by_itself && exit.exit_code == 0) exit.exit_code = finished & 0xff;
}

std::string JobsText(const std::set<JobId>& jobs) {
  std::vector<uint64_t> numbers;
  for (const JobId job : jobs) numbers.push_back(job.value());
  return absl::StrJoin(numbers, ", ");
}

}  // namespace

static void Reject(State& s, const WorkerKey& worker, std::string reason);
static void AnswerRequest(State& s, Time now, Job& job, Worker& worker,
                          const LeaseRequest& request);
// The shortest lease, in seconds, that is granted to a job which has its
// accelerators.
static double LeastLease(const State& s, const Job& job);
static void Deny(State& s, const WorkerKey& key, const Job& job, uint64_t nonce,
                 double retry_after_s);
static void Grant(State& s, Time now, Job& job, int rank, uint64_t nonce,
                  bool renewal);
static void AdmitFailedDevice(State& s, Time now, JobId job,
                              AcceleratorId where);
static void NoteFailure(State& s, Time now, JobId job, AcceleratorId where);
static void AddPart(const State& s, const Job& job, int rank,
                    LeaseGrant& grant);

void Reject(State& s, const WorkerKey& worker, std::string reason) {
  s.outbox.EmitNow(action::SendToWorker{
      worker,
      WorkerRejected{worker, s.outbox.durable_position(), std::move(reason)}});
}

void Admit(State& s, Time now, const event::WorkerJoined& e) {
  const WorkerKey& key = e.hello.worker;
  Worker* worker = s.jobs.Find(key);
  if (worker == nullptr || worker->process == ProcessState::kNone ||
      worker->process == ProcessState::kDone) {
    return Reject(
        s, key,
        StrCat("job ", key.job.value(), " rank ", key.rank,
               " does not run as incarnation ", key.incarnation, " any more"));
  }
  const bool news = e.hello.ready || !worker->spoke;
  if (worker->process == ProcessState::kLaunching && news) Record(s, now, e);
  // This also answers a repeated hello.
  s.outbox.Emit(action::SendToWorker{
      key, LeaseNotice{key, s.outbox.position(), s.jobs.Find(key.job)->epoch}});
  s.outbox.Flush();
}

void Admit(State& s, Time now, event::LeaseEnded e) {
  Worker* worker = s.jobs.Find(e.worker);
  if (worker == nullptr || e.epoch == 0 || worker->held_epoch != e.epoch) {
    return;
  }
  const AcceleratorId held = worker->held;
  const JobId job = e.worker.job;
  const bool failed = e.cause == ReleaseCause::kDeviceFailed;
  if (e.cause == ReleaseCause::kPaused && !e.finished &&
      e.progress.steps_done > 0) {
    s.streaks.NoteGoodEnd(job, held);
  }
  // Decisions also use the speeds of the reports that were not journaled, so
  // this row carries them.
  worker->unjournaled.MoveInto(e.progress);
  Record(s, now, std::move(e));
  if (failed) AdmitFailedDevice(s, now, job, held);
}

void Admit(State& s, Time now, event::StepsReported e) {
  Worker* worker = s.jobs.Find(e.worker);
  if (worker == nullptr || worker->held_epoch != e.epoch || e.epoch == 0) {
    return;
  }
  if (now - worker->reported_at < s.options.report_interval_s) {
    worker->unjournaled.Add(e.progress);
    return NoteSteps(now, *worker, e.progress);
  }
  worker->reported_at = now;
  worker->unjournaled.MoveInto(e.progress);
  Record(s, now, std::move(e));
}

void Admit(State& s, Time now, const event::WorkerGone& e) {
  const WorkerKey& key = e.exit.worker;
  const Worker* worker = s.jobs.Find(key);
  const bool current = worker != nullptr && worker->server == e.exit.server &&
                       (worker->process == ProcessState::kLaunching ||
                        worker->process == ProcessState::kJoined);
  const bool quarantined = s.leases.IsQuarantined(key, e.exit.server);
  s.agents.DropStranger(key, e.exit.server);
  // The agent says that it does not know the process. While a process may still
  // run that the agent has not swept, that is no proof of its end: Sweep
  // asks again later.
  const bool holds =
      current ? worker->held_epoch != 0 && worker->unswept : quarantined;
  if (holds && e.exit.no_failure && !e.exit.launch_error.empty() &&
      now < s.agents.SweptAt(e.exit.server)) {
    return;
  }
  if (current || quarantined) {
    event::WorkerGone gone = e;
    gone.hung_s = current ? worker->hung_s : 0;
    if (worker != nullptr) {
      UncoverCode(*worker, gone.exit);
      gone.end = ReadEnd(now, *s.jobs.Find(key.job), key.rank, gone.exit);
      // A process without a lease has used the accelerator that it was launched
      // on: the row says which, and since when. An opaque process has a lease
      // for that.
      if (worker->held_epoch == 0 && worker->launch_sent_at < now) {
        gone.launched_on = worker->launched_on;
        gone.launched_at = worker->launch_sent_at;
      }
    }
    const AcceleratorId failed_on =
        current && IsFailure(*worker, gone.exit) &&
                !IsEndOfInteractive(*s.jobs.Find(key.job), gone.exit)
            ? PlaceOf(*s.jobs.Find(key.job), key.rank, s.cluster)
            : AcceleratorId();
    Record(s, now, std::move(gone));
    if (failed_on.valid()) NoteFailure(s, now, key.job, failed_on);
    const Job* const job = s.jobs.Find(key.job);
    const bool may_run =
        job != nullptr && (job->active() || job->state == JobState::kHeld);
    if (!may_run) s.streaks.Forget(key.job);
  }
  // The acknowledgement waits for the row to be on disk. Until then the agent
  // repeats its message.
  s.outbox.Emit(
      action::SendToAgent{e.exit.server, ExitAcknowledged{e.exit.server, key}});
  s.outbox.Flush();
}

void Admit(State& s, Time now, const event::WorkerBusy& e) {
  Worker* worker = s.jobs.Find(e.message.worker);
  if (worker != nullptr) NoteBytes(now, e.message, *worker);
}

// An opaque process says no hello: this alone ends the repeats of its launch.
// A launch that is repeated after a restart is answered in the same way.
void Admit(State& s, Time, const event::ProcessBegan& e) {
  Worker* worker = s.jobs.Find(e.launched.worker);
  if (worker == nullptr || worker->server != e.launched.server ||
      !s.jobs.at(e.launched.worker.job).spec.opaque()) {
    return;
  }
  worker->launch_sent_at = kNever;
}

void Admit(State& s, Time now, const event::WorkerSaidFinished& e) {
  const WorkerFinished& end = e.message;
  const bool out_of_memory = end.exit_code != 0 && TellsOutOfMemory(end.detail);
  const bool failed =
      end.exit_code != 0 && end.exit_code != kExitEvicted && !out_of_memory;
  Worker* const worker = s.jobs.Find(end.worker);
  // This is noted without a lease, too: a worker whose checkpoint has all steps
  // already finishes without one.
  if (worker != nullptr) worker->finished_code = end.exit_code;
  const AcceleratorId held =
      worker != nullptr && worker->held_epoch == end.epoch ? worker->held
                                                           : AcceleratorId();
  Admit(s, now,
        event::LeaseEnded{
            e.message.worker,
            e.message.epoch,
            WithoutSpeed(e.message.progress),
            true,
            out_of_memory ? ReleaseCause::kOutOfMemory : ReleaseCause::kPaused,
            {},
            end.exit_code});
  if (!held.valid()) return;
  if (failed) NoteFailure(s, now, end.worker.job, held);
  if (end.exit_code == 0) s.streaks.NoteGoodEnd(end.worker.job, held);
}

void Admit(State& s, Time now, const event::LeaseRequested& e) {
  const LeaseRequest& request = e.request;
  const WorkerKey& key = request.worker;
  Job* job = s.jobs.Find(key.job);
  Worker* worker = s.jobs.Find(key);
  if (worker == nullptr || worker->process == ProcessState::kNone ||
      worker->process == ProcessState::kDone) {
    return Reject(s, key, "another incarnation has taken its place");
  }
  // The hello comes first, and is repeated until it is answered. The nonce
  // keeps an old request from being taken for a new one.
  if (worker->process == ProcessState::kLaunching) return;
  if (request.nonce <= worker->last_nonce) return;
  worker->last_nonce = request.nonce;
  worker->asked_at = now;
  // The worker asked before its loop ended, and the request came late. The
  // worker only has to exit now.
  if (worker->finished) return;
  AnswerRequest(s, now, *job, *worker, request);
}

void AnswerRequest(State& s, Time now, Job& job, Worker& worker,
                   const LeaseRequest& request) {
  const WorkerKey& key = request.worker;
  // The message that gave the lease back was lost; the request says the same.
  if (worker.held_epoch != 0 && request.released_epoch >= worker.held_epoch) {
    Admit(s, now,
          event::LeaseEnded{key, worker.held_epoch,
                            WithoutSpeed(worker.progress), false});
  }
  if (worker.leaving) {
    // The state of a job that was held on purpose is wanted, too.
    const bool saves = job.active() || worker.pause_tier == PauseTier::kEvict;
    const PauseTier tier = saves ? PauseTier::kEvict : PauseTier::kStop;
    const uint64_t epoch =
        worker.held_epoch != 0 ? worker.held_epoch : job.epoch;
    s.outbox.Emit(action::SendToWorker{
        key, PauseRequest{key, s.outbox.position(), epoch, tier}});
    return s.outbox.Flush();
  }
  if (worker.held_epoch != 0) {
    if (worker.pause_sent_at != kNever || MustGo(job, key.rank)) {
      Pause(s, now, job, key.rank, worker.pause_tier);
      return s.outbox.Flush();
    }
    // The worker is about to be killed. If the agent can't be reached, its
    // lease runs out.
    if (worker.hung_s > 0) return;
    if (key.rank == 0) NoteGang(s, job, worker, request);
    // The lease was granted, but the worker never received the grant, and the
    // address of rank 0's store is not known (any more). The worker can't start
    // without it.
    if (!request.holding && WaitsForGang(job, key.rank, worker.held_epoch)) {
      return Deny(s, key, job, request.nonce, kGangRetry_s);
    }
    // While the row of its lease is not on disk, this grant waits for it like
    // the first one.
    return Grant(s, now, job, key.rank, request.nonce,
                 /*renewal=*/worker.lease_seq <= s.outbox.persisted());
  }
  // The worker was left outside the gang when the gang became smaller.
  if (s.leases.CanStart(job) && key.rank >= job.world_size) {
    return Reject(s, key,
                  StrCat("job ", job.id.value(), " runs with ", job.world_size,
                         " workers now"));
  }
  if (s.leases.CanStart(job) &&
      s.round.LeaseHorizon(job) - now >= LeastLease(s, job)) {
    if (WaitsForGang(job, key.rank, job.epoch)) {
      return Deny(s, key, job, request.nonce, kGangRetry_s);
    }
    if (now < s.leases.lost_until()) {
      return Deny(s, key, job, request.nonce, s.leases.lost_until() - now);
    }
    if (!TakeLeaseStart(now, worker)) {
      return Deny(s, key, job, request.nonce, kRetryAfter_s);
    }
    Record(s, now,
           event::LeaseStarted{key, job.epoch,
                               job.assigned[static_cast<size_t>(key.rank)]});
    return Grant(s, now, job, key.rank, request.nonce,
                 /*renewal=*/false);
  }
  Deny(s, key, job, request.nonce, kRetryAfter_s);
}

double LeastLease(const State& s, const Job& job) {
  if (!job.is_gang()) return kLeaseMin_s;
  const double whole_s =
      std::min(s.terms.lease_duration_s(), s.terms.round_duration_s());
  const std::string& type = s.cluster.accelerator(job.assigned[0]).info.type;
  const double steps_per_s = s.throughputs.Get(job.id, type).steps_per_s;
  const double steps_s = steps_per_s > 0 ? kGangLeaseMinSteps / steps_per_s : 0;
  return std::max(kLeaseMin_s, std::clamp(steps_s, kGangLeaseMin * whole_s,
                                          kGangLeaseMinMost * whole_s));
}

// The denial names the epoch, so it must wait until the event that raised the
// epoch is on disk.
void Deny(State& s, const WorkerKey& key, const Job& job, uint64_t nonce,
          double retry_after_s) {
  s.outbox.Emit(action::SendToWorker{
      key,
      LeaseDenied{key, s.outbox.position(), job.epoch, nonce, retry_after_s}});
  s.outbox.Flush();
}

// Renewals never wait behind an fsync; the first grant of an epoch always does.
void Grant(State& s, Time now, Job& job, int rank, uint64_t nonce,
           bool renewal) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const WorkerKey key{job.id, rank, worker.incarnation};
  LeaseGrant grant;
  grant.worker = key;
  grant.position = renewal ? s.outbox.durable_position() : s.outbox.position();
  grant.epoch = worker.held_epoch;
  grant.nonce = nonce;
  grant.duration_s = std::max(0.0, std::min(s.options.lease_duration_s,
                                            s.round.LeaseHorizon(job) - now));
  grant.extension_lead_s = s.round.ExtensionLead(job, now, grant.duration_s);
  AddPart(s, job, rank, grant);
  grant.world_size = worker.world_size;
  if (rank != 0 && job.gang_epoch == worker.held_epoch) {
    grant.gang_address = job.gang_address;
  }
  // A renewal may end before an earlier grant does, if a plan was taken back.
  // If that renewal is lost, the worker still uses the earlier grant, so the
  // later of the two ends counts here.
  const Time expires = now + grant.duration_s * (1 + s.options.drift);
  worker.lease_expires = std::max(worker.lease_expires, expires);
  s.agenda.Due(worker.lease_expires);
  if (renewal) {
    s.outbox.EmitNow(action::SendToWorker{key, std::move(grant)});
  } else {
    s.outbox.Emit(action::SendToWorker{key, std::move(grant)});
  }
}

// A lease was given back because its device failed. The device counts as lost
// unless another job holds a lease of it at this moment.
void AdmitFailedDevice(State& s, Time now, JobId job, AcceleratorId where) {
  if (!s.leases.Holders(where).empty()) return;
  const Accelerator& accelerator = s.cluster.accelerator(where);
  if (accelerator.state == AcceleratorState::kLost) return;
  Record(
      s, now,
      event::AcceleratorLost{accelerator.server, accelerator.info.uuid, job});
}

void NoteFailure(State& s, Time now, JobId job, AcceleratorId where) {
  const std::set<JobId> jobs = s.streaks.NoteFailure(
      job, where, s.jobs.at(job).spec.owner, s.jobs.HasSeveralUsers());
  const Accelerator& accelerator = s.cluster.accelerator(where);
  if (jobs.empty() || accelerator.drained) return;
  event::AcceleratorsDrained drained{accelerator.server, accelerator.info.uuid};
  drained.why = StrCat("jobs ", JobsText(jobs),
                       " failed there one after the other, and ran elsewhere; "
                       "look at the device, then `gavel resume ",
                       accelerator.server, "/", accelerator.info.uuid, "`");
  drained.scoped = true;
  drained.errors = accelerator.errors_known;
  Record(s, now, std::move(drained));
}

// Adds to `grant` the part of the accelerator that `rank` may use: all of it,
// or a part beside a partner.
// Threads of a CPU slot: each of the two jobs has half of them, at least one;
// the job with the lower id has the odd one. A job whose partner has left has
// all threads again.
// Memory, in bytes without the context: each job has as much as it was seen to
// need and half of the rest, or, if the needs exceed the memory, a part in
// proportion to its need. A job for which that is too little runs out of memory
// and is not packed so again; it does not take its partner down with it.
void AddPart(const State& s, const Job& job, int rank, LeaseGrant& grant) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  grant.accelerator = s.cluster.accelerator(worker.held).info;
  if (worker.sees_only.valid()) {
    grant.accelerator.device = OnlyDevice(grant.accelerator.device);
  }
  if (!job.partner.valid()) return;
  grant.slots = 1;
  AcceleratorInfo& info = grant.accelerator;
  if (s.jobs.Together(job, job.partner)) {
    const int odd = job.id < job.partner ? 1 : 0;
    info.threads = std::max(1, (info.threads + odd) / 2);
  }
  if (info.memory_bytes <= 2 * info.context_bytes) return;
  const auto room =
      static_cast<double>(info.memory_bytes - 2 * info.context_bytes);
  const auto own = static_cast<double>(worker.need_bytes);
  double other = 0;
  const Job& partner = s.jobs.at(job.partner);
  for (size_t i = 0; i < partner.assigned.size(); ++i) {
    if (partner.assigned[i] != worker.held) continue;
    other = static_cast<double>(partner.workers[i].need_bytes);
  }
  const double needs = own + other;
  const double limit =
      needs > room ? room * own / needs : own + (room - needs) / 2;
  grant.memory_limit_bytes =
      std::max<uint64_t>(1, static_cast<uint64_t>(limit));
}

}  // namespace gavel::engine
