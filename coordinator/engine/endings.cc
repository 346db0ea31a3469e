#include "coordinator/engine/endings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/job.h"
#include "core/launch_errors.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// A loop may stand still for this many of its steps, however long they take.
constexpr double kHangSteps = 100;

// `gavel why` and `gavel nodes` show a standstill from this fraction of the
// hang timeout on.
constexpr double kToldFraction = 0.25;

}  // namespace

void HangWatch::NoteSteps(Time now, Worker& worker, const Progress& told) {
  const Progress& before = worker.progress;
  if (told.steps_done != before.steps_done ||
      told.boundaries != before.boundaries ||
      told.last_generation != before.last_generation) {
    worker.stepped_at = now;
  }
  worker.progress = told;
  worker.progress_at = now;
}

double HangWatch::HangTimeout(const Job& job, const Worker& worker) const {
  const double seconds =
      job.spec.hang_timeout_s.value_or(options_.hang_timeout_s);
  if (seconds <= 0 || worker.held_epoch == 0) return kNever;
  if (job.spec.hang_timeout_s.has_value()) return seconds;
  const std::string& type = cluster_.accelerator(worker.held).info.type;
  const Throughput speed = throughputs_.Get(job.id, type);
  const bool known =
      speed.source != ThroughputSource::kGuessed && speed.steps_per_s > 0;
  return known ? std::max(seconds, kHangSteps / speed.steps_per_s) : seconds;
}

std::optional<Standstill> HangWatch::StandstillOf(const Job& job) const {
  std::optional<Standstill> longest;
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const double allowed_s = HangTimeout(job, worker);
    const double seconds = StandsStill(worker);
    if (seconds < kToldFraction * allowed_s) continue;
    if (longest && seconds <= longest->seconds) continue;
    longest = {static_cast<int>(rank), seconds, allowed_s};
  }
  return longest;
}

double HangWatch::StandsStill(const Worker& worker) {
  if (worker.held_epoch == 0) return 0;
  // While a checkpoint is being written the loop may wait for it, so moved
  // bytes count as progress.
  const Time since = OverdueAt(worker.stepped_at, 0, worker);
  return std::max(0.0, worker.progress_at - since);
}

namespace {

constexpr int kHungLaunchesMax = 2;

// A job that can't use the accelerators of this many servers is itself at
// fault. Where no other server has the type, so is a job that can't use this
// many accelerators.
constexpr size_t kAccusedMax = 2;

bool EndedByItself(const WorkerExited& exit) {
  return exit.signal == 0 && exit.launch_error.empty();
}

// The process ended because it was out of memory, or because it was asked to
// leave and did not fail by itself.
bool Leaves(const Job& job, const Worker& worker, const WorkerExited& exit) {
  return worker.out_of_memory ||
         (worker.leaving &&
          (job.failure_counted || !DiedByItself(worker, exit)));
}

// Reads the end of a process from its exit alone. Rows of older versions do not
// say how it was read.
event::ProcessEnd EndByCode(const Job& job, const Worker& worker,
                            const WorkerExited& exit) {
  using event::ProcessEnd;
  const bool by_itself = EndedByItself(exit);
  if (by_itself && exit.exit_code == 0) return ProcessEnd::kDone;
  const bool left = Leaves(job, worker, exit) || exit.no_failure ||
                    exit.launch_hung ||
                    (by_itself && exit.exit_code == kExitEvicted);
  return left ? ProcessEnd::kLeft : ProcessEnd::kFailed;
}

}  // namespace

namespace {

// The job trains through the runtime: its job file gives a number of steps, or
// some worker has made steps. A process of such a job that never spoke has not
// even begun.
bool HasSessions(const Job& job) {
  if (job.spec.opaque()) return false;
  return job.spec.steps_total > 0 ||
         std::ranges::any_of(job.workers, [](const Worker& worker) {
           return worker.progress.steps_done > 0;
         });
}

}  // namespace

event::ProcessEnd ReadEnd(Time now, const Job& job, int rank,
                          const WorkerExited& exit) {
  using event::ProcessEnd;
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const bool by_itself = EndedByItself(exit);
  if (job.spec.opaque() && exit.stopped && !worker.leaving &&
      worker.held_epoch != 0 &&
      now >= worker.leased_at + job.spec.time_limit_s.value_or(kNever)) {
    return ProcessEnd::kTimeLimit;
  }
  const bool has_session = worker.spoke || exit.finished_code.has_value();
  if (by_itself && exit.exit_code == 0 &&
      (has_session ? exit.finished_code == 0
                   : !exit.stopped && !HasSessions(job))) {
    return ProcessEnd::kDone;
  }
  if (!worker.is_live() || Leaves(job, worker, exit) || exit.no_failure ||
      exit.launch_hung) {
    return ProcessEnd::kLeft;
  }
  // It ended with its state saved, though no pause was asked for. That is no
  // failure if the agent stopped it because its lease was over, and not because
  // it stood still or never began, or if its rank is outside the gang.
  if (by_itself && exit.exit_code == kExitEvicted) {
    const bool began = worker.held_epoch != 0 || worker.parked_at != kNever;
    const bool for_lease = exit.stopped && began && worker.hung_s == 0;
    if (for_lease || rank >= job.world_size) return ProcessEnd::kLeft;
  }
  return ProcessEnd::kFailed;
}

void Endings::On(Time now, const event::WorkerGone& e) {
  const WorkerKey& key = e.exit.worker;
  while (const auto freed = leases_.EndQuarantine(key)) {
    processes_.AcceleratorFreed(*freed);
  }
  if (Worker* worker = jobs_.Find(key)) {
    worker->hung_s = e.hung_s;
    Job& job = *jobs_.Find(key.job);
    const event::ProcessEnd end = e.end == event::ProcessEnd::kUntold
                                      ? EndByCode(job, *worker, e.exit)
                                      : e.end;
    ProcessEnded(now, job, key.rank, e.exit, end);
  }
}

void Endings::On(Time now, const event::WorkerAbandoned& e) {
  Worker* worker = jobs_.Find(e.worker);
  Job* job = jobs_.Find(e.worker.job);
  if (worker == nullptr) return;
  leases_.Quarantine(*worker, e.worker);
  const WorkerExited exit = EndedWithAgent(worker->server, *worker, e.worker);
  assignments_.Assign(now, *job, {}, JobId());
  ProcessEnded(now, *job, e.worker.rank, exit);
  agenda_.FillSoon();
}

// A job that has grown, and whose gang does not come together however often it
// is tried (a step may have too few samples for so many workers), goes back to
// the size that it asked for. It does not try the larger size on that type
// again. False: the job has not grown.
bool Endings::GiveUpSize(Time now, Job& job) {
  const int size = job.world_size;
  if (size <= job.spec.scale_factor || job.assigned.empty()) return false;
  const std::string type = cluster_.accelerator(job.assigned.front()).info.type;
  throughputs_.ExcludeSize(job.id, type, size);
  job.scale_factor = job.spec.scale_factor;
  job.failed_starts = 0;
  job.resized_at = now;
  job.resize_reason = reason::ShrunkFailed{type, size};
  round_.ForgetPlan(job);
  assignments_.Assign(now, job, {}, JobId());
  agenda_.SolveSoon();
  agenda_.FillSoon();
  return true;
}

void Endings::ProcessEnded(Time now, Job& job, int rank,
                           const WorkerExited& exit, event::ProcessEnd read) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (IsLoss(worker, exit)) ledger_.AddLoss();
  const bool leaving = Leaves(job, worker, exit);
  const bool restarts = worker.out_of_memory && job.is_gang();
  const bool fetched_nothing = !worker.leaving &&
                               worker.process == ProcessState::kLaunching &&
                               exit.launch_error == kStoppedWhileFetching;
  // The process was stopped before it was ready, so it did not end quickly: it
  // took too long to start.
  const bool overdue = worker.process == ProcessState::kLaunching &&
                       exit.stopped && !job.spec.opaque();
  const bool silent = overdue && !worker.spoke;
  const double unready_s =
      overdue && worker.spoke ? StartTimeout(job, options_) : 0;
  // A process that was stopped and never held a lease counts as starting until
  // its end.
  if (exit.stopped && worker.held_epoch == 0 && worker.parked_at == kNever) {
    worker.process = ProcessState::kLaunching;
  }
  ledger_.BookStart(now, job, worker);
  // The worker that ran out of memory may start again elsewhere.
  if (worker.out_of_memory) agenda_.FillSoon();
  const AcceleratorId where = PlaceOf(job, rank, cluster_);
  const bool leased = worker.held_epoch != 0 || worker.left_on.valid();
  const std::set<AcceleratorId> contexts = std::move(worker.contexts);
  worker.contexts.clear();
  worker.parked_at = kNever;
  worker.kept_on = AcceleratorId();
  worker.left_on = AcceleratorId();
  worker.out_of_memory = false;
  jobs_.MayBeOver(job);
  changes_.Touch(job);
  worker.process = ProcessState::kNone;
  worker.leaving = false;
  worker.restarting = false;
  worker.finished = false;
  worker.finished_code.reset();
  worker.unswept = false;
  const FailedEnd end{exit, std::exchange(worker.hung_s, 0), silent, unready_s};
  EndLease(now, job, worker);
  worker.pause_sent_at = kNever;
  worker.stop_sent_at = kNever;
  worker.launch_sent_at = kNever;
  worker.last_nonce = 0;
  const WorkerKey key{job.id, rank, worker.incarnation};
  checkpoints_.EndFetch(key);
  processes_.EndSilence(now, key, worker);
  if (!contexts.empty()) leases_.EndContexts(key);
  for (const AcceleratorId freed : contexts) processes_.AcceleratorFreed(freed);
  const bool of_gang = rank < job.world_size;
  if (read == event::ProcessEnd::kDone && job.active() && of_gang) {
    worker.process = ProcessState::kDone;
    if (leased) accusations_.NoteGoodEnd(job.id, where);
    if (job.AllDone()) {
      EndJob(now, job, JobState::kFinished, reason::Finished());
    }
    processes_.ReviveDone(now, job);
    return;
  }
  if (!job.active()) return;
  if (read == event::ProcessEnd::kTimeLimit) {
    return EndJob(
        now, job, JobState::kHeld,
        reason::HeldTimeLimit{job.id, job.spec.time_limit_s.value_or(0)});
  }
  if (fetched_nothing && GiveUpFetching(now, job, worker.server)) return;
  if (exit.launch_hung && GiveUpLaunching(now, job, exit)) return;
  const bool failed = read == event::ProcessEnd::kFailed;
  // The first rank to notice a broken gang exits with kExitEvicted. Its exit is
  // counted as a failure only when the other ranks are gone too, and only if
  // none of them had broken the gang.
  const bool noticed = failed && !exit.stopped && EndedByItself(exit) &&
                       exit.exit_code == kExitEvicted && job.HoldsAny();
  job.left_unasked = (job.left_unasked || noticed) && !exit.no_failure;
  if (failed && !noticed) {
    if (where.valid()) AvoidPlace(now, job.id, where, leased);
    CountFailure(now, job, end);
    if (job.active()) TryElsewhere(now, job);
  } else if (restarts || (of_gang && !leaving && job.HoldsAny())) {
    // This is no failure, but the other ranks can't continue alone.
    processes_.RestartGang(now, job);
  } else if (job.left_unasked && !job.AnyLive()) {
    WorkerExited left;
    left.exit_code = kExitEvicted;
    CountFailure(now, job, {left});
  }
  if (job.active() && !job.assigned.empty()) {
    processes_.EnsureProcesses(now, job, job.assigned);
  }
}

// Counts a launch that came to nothing: it did not get to exec, or its agent
// was lost meanwhile. After kHungLaunchesMax of them in a row the job is held,
// so that a job whose directory hangs does not occupy, or take down, one server
// after the other. True: the job is held.
bool Endings::GiveUpLaunching(Time now, Job& job, const WorkerExited& exit) {
  if (++job.hung_launches < kHungLaunchesMax) return false;
  const std::string why = exit.launch_error.empty()
                              ? "its agent was lost meanwhile"
                              : exit.launch_error;
  EndJob(now, job, JobState::kHeld,
         reason::HeldHungLaunch{StrCat("on ", exit.server), job.id,
                                job.hung_launches, why});
  return true;
}

void Endings::CountFailure(Time now, Job& job, const FailedEnd& end) {
  const WorkerExited& exit = end.exit;
  ++job.failures_in_a_row;
  job.failure_counted = true;
  job.left_unasked = false;
  job.last_error = exit.error_line;
  job.last_end = exit.signal != 0 ? -exit.signal : exit.exit_code;
  if (!exit.launch_error.empty()) {
    // Another launch would fail in the same way.
    return EndJob(now, job, JobState::kHeld,
                  reason::HeldLaunch{exit.launch_error});
  }
  const int failures = job.failures_in_a_row;
  // A program that never spoke would be silent the next time, too.
  if (end.silent) {
    return EndJob(now, job, JobState::kHeld,
                  reason::HeldSilent{job.id, failures});
  }
  if (failures < job.spec.retries_max) return processes_.RestartGang(now, job);
  if (end.hung_s > 0) {
    return EndJob(now, job, JobState::kHeld,
                  reason::HeldHung{job.id, failures, end.hung_s});
  }
  if (end.unready_s > 0) {
    return EndJob(now, job, JobState::kHeld,
                  reason::HeldUnready{job.id, failures, end.unready_s});
  }
  EndJob(now, job, JobState::kHeld,
         reason::HeldFailures{job.id, failures, job.last_end, job.last_error});
}

// Makes the job avoid the accelerator where its process failed. The job avoids
// the whole server if the process had no lease yet, or if the job already
// avoids another accelerator of that server.
void Endings::AvoidPlace(Time now, JobId job, AcceleratorId where,
                         bool leased) {
  const auto server =
      cluster_.servers().find(cluster_.accelerator(where).server);
  if (server == cluster_.servers().end()) return;
  const std::vector<AcceleratorId>& ids = server->second;
  const bool all = !leased || std::ranges::any_of(ids, [&](AcceleratorId id) {
    return id != where && avoidance_.Avoids(now, job, id);
  });
  for (const AcceleratorId id : ids) {
    if (all || id == where) avoidance_.Avoid(now, job, id);
  }
}

// Moves the job away from its accelerators if it avoids some of them, and at
// least as many others of the type are free.
void Endings::TryElsewhere(Time now, Job& job) {
  const auto avoids = [&](AcceleratorId id) {
    return avoidance_.Avoids(now, job.id, id);
  };
  const auto avoided = std::ranges::count_if(job.assigned, avoids);
  if (avoided == 0) return;
  const std::span<const uint32_t> types = cluster_.usable_types();
  const uint32_t type = types[job.assigned.front().value() - 1];
  std::ptrdiff_t others = 0;
  for (const Accelerator& other : cluster_.accelerators()) {
    others += types[other.id.value() - 1] == type && other.usable() &&
              assigned_.IsFree(other.id) && !avoids(other.id);
  }
  if (others < avoided) return;
  round_.ForgetPlan(job);
  assignments_.Assign(now, job, {}, JobId());
  agenda_.FillSoon();
}

void Endings::EndJob(Time now, Job& job, JobState state, Reason reason,
                     PauseTier tier) {
  ledger_.BookAll(now);
  ledger_.BookTarget(now, job);
  isolated_.End(now, job);
  assignments_.Assign(now, job, {}, JobId());
  round_.ForgetPlan(job);
  changes_.Touch(job);
  jobs_.End(job, state);
  job.reason = std::move(reason);
  job.ended_at = now;
  job.ended_wall_s = now + options_.wall_offset_s;
  processes_.EndWorkers(now, job, tier);
  // A job that finished could use other accelerators, so its word counts.
  if (state != JobState::kFinished) accusations_.WithdrawAccusations(job.id);
  if (state != JobState::kHeld) {
    avoidance_.Forget(job.id);
    throughputs_.RemoveJob(job.id);
    speeds_.RemoveJob(job.id);
    ledger_.RemoveJob(job.id);
    trials_.ForgetJob(job.id);
  }
  agenda_.SolveSoon();
  agenda_.FillSoon();
}

void Endings::GiveUpEpoch(Time now, Job& job, ReleaseCause cause) {
  ++job.epoch;
  if (job.is_gang() && cause == ReleaseCause::kResumeFailed &&
      ++job.failed_starts >= StartsMax(job)) {
    if (GiveUpSize(now, job)) return;
    return EndJob(now, job, JobState::kHeld,
                  reason::HeldGang{job.id, job.failed_starts});
  }
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) {
      processes_.Pause(now, job, static_cast<int>(rank), PauseTier::kPark);
    }
  }
}

void Endings::EndLease(Time now, Job& job, Worker& worker) {
  if (worker.held_epoch == 0) return;
  ledger_.BookWorker(now, job, worker);
  trials_.CountTrial(now, worker);
  const AcceleratorId freed = worker.held;
  leases_.End(freed, job.id);
  worker.asked_at = now;
  agenda_.Due(now + StartTimeout(job, options_));
  worker.held_epoch = 0;
  worker.held = AcceleratorId();
  worker.hung_s = 0;
  agenda_.MakeRoomSoon();
  if (!worker.leaving) {
    worker.pause_sent_at = kNever;
    worker.stop_sent_at = kNever;
  }
  processes_.AcceleratorFreed(freed);
}

void Endings::On(Time now, const event::AcceleratorLost& e) {
  const AcceleratorId lost = cluster_.Find(e.server, e.uuid);
  if (!lost.valid()) return;
  if (!e.job.valid()) return LoseForAll(now, lost);
  Job* accuser = jobs_.Find(e.job);
  if (accuser == nullptr || !accuser->active()) return;
  if (accusations_.Accuse(lost, *accuser)) LoseForAll(now, lost);
  KeepOut(now, *accuser, lost);
  if (!CanUseNone(e.job, lost)) return;
  std::vector<std::string> accused;
  for (const AcceleratorId id : avoidance_.KeptOutOf(e.job)) {
    accused.push_back(cluster_.accelerator(id).info.uuid);
  }
  EndJob(now, *accuser, JobState::kHeld,
         reason::HeldDevice{absl::StrJoin(accused, " nor "), e.job});
}

void Endings::LoseForAll(Time now, AcceleratorId lost) {
  cluster_.MarkLost(lost);
  assigned_.Recount();
  agenda_.SolveSoon();
  agenda_.FillSoon();
  while (!assigned_.JobsOn(lost).empty()) {
    assignments_.Assign(now, jobs_.at(assigned_.JobsOn(lost).front()), {},
                        JobId());
  }
}

// Makes the job start elsewhere. An elastic job shrinks to at most the number
// of accelerators of the type that are left to it, if those are enough for it.
void Endings::KeepOut(Time now, Job& job, AcceleratorId lost) {
  const int left =
      avoidance_.CountLeft(job.id, static_cast<size_t>(cluster_.TypeOf(lost)));
  if (job.spec.elastic() && left >= job.spec.LeastWorkers()) {
    throughputs_.ExcludeSize(job.id, cluster_.accelerator(lost).info.type,
                             left + 1);
    job.scale_factor = std::min(job.scale_factor, left);
  }
  round_.ForgetPlan(job);
  assignments_.Assign(now, job, {}, JobId());
  // The accelerators that the job can use have changed, and so has the problem
  // for the policy.
  changes_.TouchAll();
  agenda_.SolveSoon();
  agenda_.FillSoon();
}

bool Endings::CanUseNone(JobId accuser, AcceleratorId last) const {
  const std::vector<AcceleratorId> accused = avoidance_.KeptOutOf(accuser);
  std::set<std::string> servers;
  for (const AcceleratorId id : accused) {
    servers.insert(cluster_.accelerator(id).server);
  }
  const std::string& type = cluster_.accelerator(last).info.type;
  const bool others =
      std::ranges::any_of(cluster_.accelerators(), [&](const auto& other) {
        return other.usable() && other.info.type == type &&
               !servers.contains(other.server);
      });
  return (others ? servers.size() : accused.size()) >= kAccusedMax;
}

bool Endings::EvictParkedOn(Time now, AcceleratorId where, JobId but) {
  bool some = false;
  for (const WorkerKey& key : leases_.ParkedOn(where)) {
    if (key.job == but) continue;
    processes_.Pause(now, *jobs_.Find(key.job), key.rank, PauseTier::kEvict);
    some = true;
  }
  return some;
}

void Endings::OutOfMemory(Job& job, AcceleratorId where, JobId partner,
                          ReleaseCause cause, Time now) {
  const bool shared = EvictParkedOn(now, where, job.id);
  if (!job.active()) return;
  const std::string& type = cluster_.accelerator(where).info.type;
  if (partner.valid()) {
    throughputs_.ExcludePair(job.id, partner, type);
    if (Job* other = jobs_.Find(partner)) {
      measurements_.KeepPairCell(job, *other, type);
      measurements_.KeepPairCell(*other, job, type);
    }
  } else if (!shared && cause == ReleaseCause::kOutOfMemory) {
    throughputs_.Exclude(job.id, type);
  } else if (!shared) {
    avoidance_.Avoid(now, job.id, where);
  }
  round_.ForgetPlan(job);
  assignments_.Assign(now, job, {}, JobId());
  agenda_.SolveSoon();
  agenda_.FillSoon();
}

void Endings::GiveUpFetches(Time now) {
  for (auto& [id, live] : jobs_.live()) {
    Job& job = *live;
    if (!job.active() || !checkpoints_.IsStranded(job)) continue;
    const bool waits = std::ranges::any_of(job.workers, [](const Worker& w) {
      return w.process == ProcessState::kLaunching;
    });
    if (!waits) continue;
    assignments_.Assign(now, job, {}, JobId());
    for (Worker& worker : job.workers) {
      if (worker.process != ProcessState::kLaunching) continue;
      processes_.TellToStop(now, job, worker, /*grace_s=*/0);
    }
  }
}

// The launch of a process on `server` was ended because no more bytes of its
// checkpoint arrived. It is tried again, but not forever, as other jobs could
// use its accelerators meanwhile. Then the job is held: both agents are there,
// so only a person can find out why they do not reach each other. True: the job
// is held.
bool Endings::GiveUpFetching(Time now, Job& job, const std::string& server) {
  if (++job.failed_starts < StartsMax(job)) return false;
  EndJob(now, job, JobState::kHeld,
         reason::HeldFetch{
             {job.id, StrCat(checkpoints_.SourceFor(job, server).server, " to ",
                             server)},
             StartTimeout(job, options_),
             job.failed_starts});
  return true;
}

WorkerExited EndedWithAgent(const std::string& server, const Worker& worker,
                            const WorkerKey& key) {
  WorkerExited exit;
  exit.launch_hung = worker.process == ProcessState::kLaunching &&
                     !worker.spoke && !worker.leaving;
  exit.server = server;
  exit.worker = key;
  exit.signal = 9;
  exit.no_failure = true;
  return exit;
}

}  // namespace gavel::engine
