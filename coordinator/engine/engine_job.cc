// A job's processes and leases: launching, pausing, ending.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/worker_limits.h"
#include "core/launch_errors.h"
#include "core/rules.h"

namespace gavel {

Job* Engine::Find(JobId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->second;
}

Job* Engine::FindLive(JobId id) const {
  Job* job = Find(id);
  return job != nullptr && job->live ? job : nullptr;
}

// The worker of exactly this incarnation.
Worker* Engine::Find(const WorkerKey& key) {
  Job* job = Find(key.job);
  if (job == nullptr || key.rank < 0 ||
      static_cast<size_t>(key.rank) >= job->workers.size()) {
    return nullptr;
  }
  Worker& worker = job->workers[static_cast<size_t>(key.rank)];
  const bool is_latest = worker.incarnation == key.incarnation ||
                         !Rules::Hold(Rule::kIncarnationIsTheLatest);
  return is_latest && key.incarnation != 0 ? &worker : nullptr;
}

// Both run there as a packed pair, or are about to.
bool Engine::Together(const Job& job, JobId other) const {
  if (!other.valid() || job.partner != other || job.assigned.empty()) {
    return false;
  }
  const Job* partner = FindLive(other);
  return partner != nullptr && partner->partner == job.id &&
         partner->assigned == job.assigned;
}

ShareUnit Engine::UnitOf(const Job& job) const {
  if (!Together(job, job.partner)) return {job.id, JobId()};
  return PairOf(job.id, job.partner);
}

// Whoever keeps `job` from starting there: any other job's lease, but one of
// its partner that already takes only half.
const WorkerKey* Engine::HeldByOther(AcceleratorId accelerator,
                                     const Job& job) const {
  const auto quarantine = quarantined_.find(accelerator);
  if (quarantine != quarantined_.end() && Rules::Hold(Rule::kQuarantineBars)) {
    return &quarantine->second;
  }
  for (const WorkerKey& key : holders_.At(accelerator)) {
    if (key.job == job.id) continue;
    const Job& other = *Find(key.job);
    const Worker& worker = other.workers[static_cast<size_t>(key.rank)];
    const bool has_half = worker.held_epoch == other.epoch ||
                          !Rules::Hold(Rule::kPartnerTakesHalf);
    if (Together(job, key.job) && has_half) continue;
    return &key;
  }
  return nullptr;
}

// What it holds is not (or no longer) what it is assigned.
bool Engine::MustGo(const Job& job, int rank) {
  const auto index = static_cast<size_t>(rank);
  return index >= job.assigned.size() ||
         job.assigned[index] != job.workers[index].held;
}

// Left behind by its partner, a job goes on with its half of the lock as if it
// were alone.
bool Engine::Unchanged(const Job& job, const std::vector<AcceleratorId>& next,
                       JobId partner) const {
  if (next != job.assigned) return false;
  return next.empty() || partner == job.partner ||
         (!partner.valid() && FindLive(job.partner) == nullptr);
}

// `by` more jobs are assigned to it.
void Engine::CountAssigned(AcceleratorId accelerator, int by) {
  uint8_t& jobs = assigned_[accelerator.value() - 1];
  const bool was_free = jobs == 0;
  jobs = static_cast<uint8_t>(jobs + by);
  const uint32_t type = cluster_.usable_types()[accelerator.value() - 1];
  filled_.Forget(type);
  idle_.types.Forget(type);
  if (was_free == (jobs == 0) || type == Cluster::kUnusable) return;
  free_[type] += was_free ? -1 : 1;
  if (!free_places_) return;
  was_free ? free_places_->Claim(accelerator)
           : free_places_->Release(accelerator);
}

// After accelerators have come or gone.
void Engine::CountAssigned() {
  TouchAll();
  free_ = cluster_.Capacity();
  assigned_.assign(cluster_.accelerators().size(), 0);
  free_places_.reset();
  // A snapshot may be damaged.
  const size_t end = std::min(assigned_to_.size(), assigned_.size());
  for (size_t i = 0; i < end; ++i) {
    const AcceleratorId id(i + 1);
    const size_t jobs = assigned_to_.At(id).size();
    if (jobs > 0) CountAssigned(id, static_cast<int>(jobs));
  }
}

void Engine::NoteWaiting(Job& job) {
  if (job.assigned.empty()) {
    waiting_[job.id] = &job;
  } else {
    waiting_.erase(job.id);
  }
}

// Gives the job `next`, alone or with a partner that gets the same (empty: it
// waits). Whoever holds a lease of the old assignment is asked to stop; the new
// one is granted when they have.
void Engine::Assign(Time now, Job& job, const std::vector<AcceleratorId>& next,
                    JobId partner, PauseTier tier) {
  if (Unchanged(job, next, partner)) return;
  memory_due_ = true;
  Touch(job);
  if (result_.is_assignment) {
    // As the unit that it was until now; so was its partner.
    BookJob(now, job);
    if (Job* other = FindLive(job.partner)) BookJob(now, *other);
  }
  for (Worker& worker : job.workers) BookStart(now, job, worker);
  for (AcceleratorId old : job.assigned) {
    if (assigned_to_.Remove(old, [&](JobId id) { return id == job.id; })) {
      CountAssigned(old, -1);
    }
  }
  const bool resized =
      !next.empty() && static_cast<int>(next.size()) != job.world_size;
  if (next.empty()) job.resizing_since = kNever;
  if (resized && Rules::Hold(Rule::kGangIsOfItsSize)) {
    ChangeWorldSize(now, job, static_cast<int>(next.size()));
  }
  job.assigned = next;
  NoteWaiting(job);
  job.partner = next.empty() ? JobId() : partner;
  for (AcceleratorId accelerator : next) {
    CountAssigned(accelerator, 1);
    assigned_to_.Add(accelerator, job.id);
  }
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch == 0 || (resized && worker.leaving)) continue;
    const bool stays =
        next.empty() ||
        (static_cast<size_t>(rank) < next.size() &&
         cluster_.accelerator(next[static_cast<size_t>(rank)]).server ==
             worker.server);
    Pause(now, job, rank, stays ? tier : PauseTier::kEvict);
  }
  if (next.empty()) return;
  ++job.epoch;
  EnsureProcesses(now, job, next);
  NotifyReady(job);
}

// A process on the server of each accelerator: launched where there is none,
// asked to end where it is on another server (its exit comes back here).
void Engine::EnsureProcesses(Time now, Job& job,
                             const std::vector<AcceleratorId>& where) {
  // All ranks start from the same generation: the last of the old processes
  // may still be writing one.
  if (IsRestarting(job)) return;
  for (int rank = 0; rank < static_cast<int>(where.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    const AcceleratorId accelerator = where[static_cast<size_t>(rank)];
    if (worker.process == ProcessState::kNone ||
        worker.process == ProcessState::kDone) {
      // One that is done starts again with the rest of its gang, and ends at
      // once: its last generation has all its steps.
      Launch(now, job, rank, accelerator);
    } else if (worker.is_live() && !worker.leaving &&
               worker.server != cluster_.accelerator(accelerator).server) {
      Pause(now, job, rank, PauseTier::kEvict);
    }
  }
}

// A rank that stopped before its gang's end needs the others again: those that
// are done already start once more.
void Engine::ReviveDone(Time now, Job& job) {
  if (!job.active() || job.assigned.empty()) return;
  bool done = false;
  bool stopped = false;
  for (const Worker& worker : job.gang()) {
    done |= worker.process == ProcessState::kDone;
    stopped |= worker.process == ProcessState::kJoined &&
               worker.held_epoch == 0 && !worker.finished;
  }
  if (done && (stopped || !job.AnyLive())) {
    EnsureProcesses(now, job, job.assigned);
  }
}

// A new incarnation gets a new epoch before any grant.
void Engine::Launch(Time now, Job& job, int rank, AcceleratorId where) {
  Touch(job);
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  worker.incarnation = std::max(worker.incarnation + 1, numbers_from_);
  worker.process = ProcessState::kLaunching;
  worker.server = cluster_.accelerator(where).server;
  worker.leaving = false;
  worker.restarting = false;
  worker.finished = false;
  worker.out_of_memory = false;
  worker.unswept = false;
  worker.spoke = false;
  worker.bytes_moved = 0;
  worker.bytes_at = -kNever;
  worker.parked_at = kNever;
  worker.kept_on = AcceleratorId();
  worker.launch_sent_at = launches_.Next(now, options_.launches_per_s);
  worker.accrued_at = worker.launch_sent_at;
  worker.launch_repeated_at = kNever;
  if (Rules::Hold(Rule::kNewIncarnationNewEpoch)) ++job.epoch;
  if (worker.launch_sent_at > now) return Due(worker.launch_sent_at);
  Due(now + StartTimeout(job, options_));
  SendLaunch(now, job, rank);
}

void Engine::SendLaunch(Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  worker.launch_repeated_at = now;
  OfferCheckpoint(job, SourceFor(job, worker.server), worker.server);
  Emit(action::SendToAgent{worker.server, LaunchMessage(job, rank)});
}

Message Engine::LaunchMessage(const Job& job, int rank) const {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  Message message(std::in_place_type<LaunchWorker>);
  LaunchWorker& launch = std::get<LaunchWorker>(message);
  launch.server = worker.server;
  launch.worker = {job.id, rank, worker.incarnation};
  launch.position = position();
  launch.job_name = job.spec.name;
  launch.argv = job.spec.argv;
  launch.working_directory = job.spec.working_directory;
  launch.checkpoint_directory = job.spec.checkpoint_directory;
  constexpr size_t kOwnVariables = 7;  // about: room, not a limit
  launch.environment.reserve(job.spec.environment.size() + kOwnVariables);
  // The job's own value wins.
  launch.environment.emplace_back(
      "GAVEL_FAILURE_INTERVAL_S",
      std::to_string(std::llround(failure_rate_.Interval_s())));
  launch.environment.insert(launch.environment.end(),
                            job.spec.environment.begin(),
                            job.spec.environment.end());
  launch.unix_user = job.spec.unix_user;
  if (job.spec.steps_total > 0) {
    launch.environment.emplace_back("GAVEL_STEPS",
                                    std::to_string(job.spec.steps_total));
  }
  launch.world_size = job.assigned.empty() ? job.scale_factor : job.world_size;
  AddPlaceInGang(job, rank, launch);
  // None where it has lost its place since, or is to have one elsewhere.
  const auto at = static_cast<size_t>(rank);
  for (const auto* places : {&job.assigned, &PlannedFor(job)}) {
    if (at >= places->size()) continue;
    const Accelerator& place = cluster_.accelerator((*places)[at]);
    if (place.server != worker.server) continue;
    launch.accelerator = place.info;
    break;
  }
  launch.source = SourceFor(job, worker.server);
  return message;
}

void Engine::Pause(Time now, Job& job, int rank, PauseTier tier) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (StrongerThan(tier, PauseTier::kPark)) worker.leaving = true;
  if (worker.pause_sent_at == kNever || StrongerThan(tier, worker.pause_tier)) {
    worker.pause_tier = tier;
  }
  if (worker.pause_sent_at == kNever) worker.pause_sent_at = now;
  Due(now + PauseGrace(job, options_));
  const uint64_t epoch = worker.held_epoch != 0 ? worker.held_epoch : job.epoch;
  Emit(action::SendToWorker{key, PauseRequest{key, position(), epoch, tier}});
}

// One that has not spoken hears no pause: its agent ends it.
void Engine::EndWorkers(Time now, Job& job, PauseTier tier) {
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (!worker.is_live()) continue;
    if (worker.spoke) {
      Pause(now, job, rank, tier);
    } else {
      TellToStop(now, job, worker, options_.stop_grace_s);
    }
  }
}

// By its agent, whatever the worker itself would do; Sweep repeats it.
void Engine::TellToStop(Time now, const Job& job, Worker& worker,
                        double grace_s) {
  worker.leaving = true;
  worker.stop_sent_at = now;
  if (worker.pause_sent_at == kNever) worker.pause_sent_at = now;
  Due(now + PauseGrace(job, options_));
  const auto rank = static_cast<int>(&worker - job.workers.data());
  Emit(action::SendToAgent{
      worker.server,
      StopWorker{worker.server, WorkerKey{job.id, rank, worker.incarnation},
                 position(), grace_s}});
}

// "Ask now": all ranks are there and the accelerators are free.
void Engine::NotifyReady(Job& job) {
  if (!CanStart(job)) return;
  for (int rank = 0; rank < job.world_size; ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch != 0 || WaitsForGang(job, rank, job.epoch)) continue;
    Notify(job, rank);
  }
}

void Engine::Notify(const Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const WorkerKey key{job.id, rank, worker.incarnation};
  Emit(action::SendToWorker{key, LeaseNotice{key, position(), job.epoch}});
}

void Engine::AcceleratorFreed(AcceleratorId accelerator) {
  for (const JobId id : assigned_to_.At(accelerator)) NotifyReady(*Find(id));
}

// Adds what the worker ran, or took to start, since the last booking; its part
// of the gang's, and of the pair's.
void Engine::Book(Time now, Job& job, Worker& worker,
                  TimeReceived::Booking& booking) {
  const bool leased = worker.held_epoch != 0;
  const AcceleratorId occupied = Occupied(job, worker);
  const double busy_s = std::max(0.0, now - worker.accrued_at);
  if (!occupied.valid() || (!leased && busy_s == 0)) return;
  const uint32_t held_type = cluster_.TypeOf(occupied);
  if (!leased && held_type >= cluster_.types().size()) return;
  const double seconds = busy_s / (leased ? worker.world_size : job.world_size);
  if (leased) failure_rate_.AddBusy(busy_s);
  worker.accrued_at = now;
  job.received_s += seconds;
  const ShareUnit unit = UnitOf(job);
  const size_t type = job.BookedType(held_type, cluster_.types().size());
  const double part_s = unit.packed() ? seconds / 2 : seconds;
  booking.Add(unit, type, part_s);
  // An assignment means whoever runs to run.
  if (result_.is_assignment) booking.Owe(unit, type, part_s);
}

void Engine::BookStart(Time now, Job& job, Worker& worker) {
  if (worker.held_epoch != 0) return;
  TimeReceived::Booking booking(time_received_);
  Book(now, job, worker, booking);
  worker.accrued_at = now;
}

void Engine::EndLease(Time now, Job& job, Worker& worker) {
  if (worker.held_epoch == 0) return;
  TimeReceived::Booking booking(time_received_);
  Book(now, job, worker, booking);
  CountTrial(now, worker);
  const AcceleratorId freed = worker.held;
  holders_.Remove(freed,
                  [&](const WorkerKey& key) { return key.job == job.id; });
  worker.asked_at = now;
  Due(now + StartTimeout(job, options_));
  worker.held_epoch = 0;
  worker.held = AcceleratorId();
  worker.hung_s = 0;
  memory_due_ = true;
  if (!worker.leaving) {
    worker.pause_sent_at = kNever;
    worker.stop_sent_at = kNever;
  }
  AcceleratorFreed(freed);
}

}  // namespace gavel
