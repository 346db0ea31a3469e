#include "coordinator/engine/workers.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/state.h"
#include "core/error_line.h"
#include "core/text.h"

namespace gavel::engine {

static void AddPlaceInGang(const State& s, const Job& job, int rank,
                           LaunchWorker& launch);
static void Launch(State& s, Time now, Job& job, int rank, AcceleratorId where);
static Message LaunchMessage(State& s, const Job& job, int rank);
static void Notify(State& s, const Job& job, int rank);

void NoteGang(State& s, Job& job, const Worker& worker,
              const LeaseRequest& request) {
  if (!job.is_gang() || !request.holding || request.gang_address.empty() ||
      request.epoch != worker.held_epoch || worker.held_epoch != job.epoch) {
    return;
  }
  if (job.gang_epoch == job.epoch && job.gang_address == request.gang_address) {
    return;
  }
  job.gang_epoch = job.epoch;
  job.gang_address = request.gang_address;
  for (int rank = 1; rank < job.world_size; ++rank) {
    Notify(s, job, rank);
  }
  s.outbox.Flush();
}

bool WaitsForGang(const Job& job, int rank, uint64_t epoch) {
  return rank > 0 && job.gang_epoch != epoch;
}

void RestartGang(State& s, Time now, Job& job) {
  for (Worker& worker : job.workers) {
    if (!worker.is_live()) continue;
    worker.restarting = true;
    TellToStop(s, now, job, worker, s.options.stop_grace_s);
  }
}

// Sets the variables of torchrun: LOCAL_RANK is the rank's index among those on
// its server, LOCAL_WORLD_SIZE the number of ranks there, and GROUP_RANK the
// index of the server, with servers in the order of their first ranks. The
// values hold at the time of the launch; a process that stays while others move
// keeps them.
void AddPlaceInGang(const State& s, const Job& job, int rank,
                    LaunchWorker& launch) {
  auto& environment = launch.environment;
  const std::vector<AcceleratorId>& where =
      job.assigned.empty() ? s.round.PlannedFor(job) : job.assigned;
  // The rank may be placed on another server by now. Then the process is alone
  // on its own.
  const std::string& own = job.workers[static_cast<size_t>(rank)].server;
  int local_rank = 0;
  int local_world_size = 0;
  size_t group = 0;
  std::vector<std::string_view> servers;  // before its own
  for (size_t other = 0; other < where.size(); ++other) {
    const std::string& server = s.cluster.accelerator(where[other]).server;
    if (server == own) {
      if (static_cast<int>(other) < rank) ++local_rank;
      ++local_world_size;
    } else if (local_world_size == 0 &&
               std::ranges::find(servers, server) == servers.end()) {
      servers.push_back(server);
    }
  }
  if (local_world_size > 0) group = servers.size();
  environment.emplace_back("LOCAL_RANK", std::to_string(local_rank));
  environment.emplace_back("LOCAL_WORLD_SIZE",
                           std::to_string(std::max(1, local_world_size)));
  environment.emplace_back("GROUP_RANK", std::to_string(group));
  if (!job.spec.elastic()) return;
  environment.emplace_back("GAVEL_WORLD_SIZE_MIN",
                           std::to_string(job.spec.LeastWorkers()));
  environment.emplace_back("GAVEL_WORLD_SIZE_MAX",
                           std::to_string(job.spec.MostWorkers()));
}

void EnsureProcesses(State& s, Time now, Job& job,
                     const std::vector<AcceleratorId>& where) {
  // All ranks must start from the same generation, and a process that is still
  // ending may be writing one.
  if (IsRestarting(job)) return;
  for (int rank = 0; rank < static_cast<int>(where.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    const AcceleratorId accelerator = where[static_cast<size_t>(rank)];
    if (worker.process == ProcessState::kNone ||
        worker.process == ProcessState::kDone) {
      // A rank that is done starts again with the rest of its gang. It ends at
      // once, since its last generation has all its steps.
      Launch(s, now, job, rank, accelerator);
    } else if (worker.is_live() && !worker.leaving &&
               (worker.server != s.cluster.accelerator(accelerator).server ||
                !worker.Sees(accelerator))) {
      Pause(s, now, job, rank, PauseTier::kEvict);
    }
  }
}

void ReviveDone(State& s, Time now, Job& job) {
  if (!job.active() || job.assigned.empty()) return;
  bool done = false;
  bool stopped = false;
  for (const Worker& worker : job.gang()) {
    done |= worker.process == ProcessState::kDone;
    stopped |= worker.process == ProcessState::kJoined &&
               worker.held_epoch == 0 && !worker.finished;
  }
  if (done && (stopped || !job.AnyLive())) {
    EnsureProcesses(s, now, job, job.assigned);
  }
}

// A new incarnation gets a new epoch before any grant.
void Launch(State& s, Time now, Job& job, int rank, AcceleratorId where) {
  s.changes.Touch(job);
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  assert(!worker.is_live());  // one process a rank
  worker.incarnation = std::max(worker.incarnation + 1, s.jobs.numbers_from());
  worker.process = ProcessState::kLaunching;
  worker.server = s.cluster.accelerator(where).server;
  worker.sees_only = SeesOneOnly(job.spec, s.cluster.accelerator(where).info)
                         ? where
                         : AcceleratorId();
  worker.leaving = false;
  worker.restarting = false;
  worker.finished = false;
  worker.out_of_memory = false;
  worker.unswept = false;
  worker.spoke = false;
  worker.finished_code.reset();
  worker.bytes_moved = 0;
  worker.bytes_at = -kNever;
  worker.parked_at = kNever;
  worker.kept_on = AcceleratorId();
  worker.left_on = AcceleratorId();
  worker.launch_sent_at = kNever;
  worker.launch_repeated_at = kNever;
  worker.launched_on = where;
  s.leases.AddSilent(where, {job.id, rank, worker.incarnation});
  ++job.epoch;
  if (job.spec.opaque()) {
    // The launch of an opaque job begins with its lease (SweepOpaque).
    // It may use all of the memory.
    for (const WorkerKey& parked : s.leases.ParkedOn(where)) {
      Pause(s, now, s.jobs.at(parked.job), parked.rank, PauseTier::kEvict);
    }
    return s.agenda.Due(now);
  }
  if (!s.leases.InTheWay(job, worker)) BeginLaunch(s, now, job, rank);
}

void BeginLaunch(State& s, Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  worker.launch_sent_at = std::max(
      s.launches.Next(now, s.options.launches_per_s), now + RetryDelay(job));
  worker.accrued_at = worker.launch_sent_at;
  if (worker.launch_sent_at > now) return s.agenda.Due(worker.launch_sent_at);
  s.agenda.Due(now + StartTimeout(job, s.options));
  SendLaunch(s, now, job, rank);
}

void EndSilence(State& s, Time now, const WorkerKey& key, Worker& worker) {
  if (!worker.launched_on.valid()) return;
  const AcceleratorId where =
      std::exchange(worker.launched_on, AcceleratorId());
  s.leases.EndSilent(where, key);
  const auto [begin, end] = s.leases.silent().equal_range(where);
  for (auto it = begin; it != end; ++it) {
    const WorkerKey& next = it->second;
    Job& job = s.jobs.at(next.job);
    Worker& waiting = job.workers[static_cast<size_t>(next.rank)];
    if (waiting.launch_sent_at != kNever || waiting.leaving ||
        job.spec.opaque()) {
      continue;
    }
    if (!s.leases.InTheWay(job, waiting)) BeginLaunch(s, now, job, next.rank);
  }
  AcceleratorFreed(s, where);
}

void EndMisplaced(State& s, Time now, Job& job) {
  const std::vector<AcceleratorId>& places =
      job.assigned.empty() ? s.round.PlannedFor(job) : job.assigned;
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const bool in_place =
        rank < places.size() && places[rank] == worker.launched_on;
    if (!worker.launched_on.valid() || worker.leaving || in_place) continue;
    Pause(s, now, job, static_cast<int>(rank), PauseTier::kEvict);
  }
}

void EndMisplaced(State& s, Time now) {
  for (const auto& [where, key] : s.leases.silent()) {
    EndMisplaced(s, now, s.jobs.at(key.job));
  }
}

void HoldLaunches(State& s, Time now, Job& job) {
  for (Worker& worker : job.workers) {
    const bool is_later =
        worker.launch_sent_at != kNever && worker.launch_sent_at > now;
    if (!is_later || !worker.launched_on.valid() || job.spec.opaque()) continue;
    const auto [begin, end] = s.leases.silent().equal_range(worker.launched_on);
    const bool beside = std::any_of(begin, end, [&](const auto& entry) {
      const JobId other = entry.second.job;
      return other != job.id && !s.jobs.Together(job, other);
    });
    if (beside) worker.launch_sent_at = kNever;  // EndSilence begins it
  }
}

void SendLaunch(State& s, Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  worker.launch_repeated_at = now;
  s.checkpoints.OfferCheckpoint(
      job, s.checkpoints.SourceFor(job, worker.server), worker.server);
  s.outbox.Emit(
      action::SendToAgent{worker.server, LaunchMessage(s, job, rank)});
}

Message LaunchMessage(State& s, const Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  Message message = LaunchWorker{};
  LaunchWorker& launch = std::get<LaunchWorker>(message);
  launch.server = worker.server;
  launch.worker = {job.id, rank, worker.incarnation};
  launch.position = s.outbox.position();
  launch.job_name = job.spec.name;
  launch.argv = job.spec.argv;
  launch.working_directory = job.spec.working_directory;
  launch.checkpoint_directory = job.spec.checkpoint_directory;
  constexpr size_t kOwnVariables = 8;  // about: room, not a limit
  launch.environment.reserve(job.spec.environment.size() + kOwnVariables);
  launch.environment.emplace_back(
      "GAVEL_PAUSE_GRACE_S",
      std::to_string(std::llround(PauseGrace(job, s.options))));
  // The job's own value wins.
  launch.environment.emplace_back(
      "GAVEL_FAILURE_INTERVAL_S",
      std::to_string(std::llround(s.ledger.failure_rate().Interval_s())));
  launch.environment.insert(launch.environment.end(),
                            job.spec.environment.begin(),
                            job.spec.environment.end());
  launch.unix_user = job.spec.unix_user;
  launch.env_file = job.spec.env_file;
  launch.terminal = job.spec.interactive() && rank == 0;
  if (job.spec.steps_total > 0) {
    launch.environment.emplace_back("GAVEL_STEPS",
                                    std::to_string(job.spec.steps_total));
  }
  launch.world_size = job.assigned.empty() ? job.scale_factor : job.world_size;
  AddPlaceInGang(s, job, rank, launch);
  // No accelerator is named if the rank has lost its place since, or will have
  // one on another server.
  const auto at = static_cast<size_t>(rank);
  for (const auto* places : {&job.assigned, &s.round.PlannedFor(job)}) {
    if (at >= places->size()) continue;
    const Accelerator& place = s.cluster.accelerator((*places)[at]);
    if (place.server != worker.server) continue;
    launch.accelerator = place.info;
    break;
  }
  if (worker.sees_only.valid()) {
    launch.accelerator = s.cluster.accelerator(worker.sees_only).info;
    launch.accelerator.alone_visible = true;
  }
  launch.source = s.checkpoints.SourceFor(job, worker.server);
  return message;
}

void Pause(State& s, Time now, Job& job, int rank, PauseTier tier) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.launched_on.valid()) {
    return TellToStop(s, now, job, worker,
                      job.spec.opaque() ? PauseGrace(job, s.options)
                                        : s.options.stop_grace_s);
  }
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (StrongerThan(tier, PauseTier::kPark)) worker.leaving = true;
  if (worker.pause_sent_at == kNever || StrongerThan(tier, worker.pause_tier)) {
    worker.pause_tier = tier;
  }
  if (worker.pause_sent_at == kNever) worker.pause_sent_at = now;
  s.agenda.Due(now + PauseGrace(job, s.options));
  const uint64_t epoch = worker.held_epoch != 0 ? worker.held_epoch : job.epoch;
  s.outbox.Emit(action::SendToWorker{
      key, PauseRequest{key, s.outbox.position(), epoch, tier}});
}

void EndWorkers(State& s, Time now, Job& job, PauseTier tier) {
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    const bool told = worker.launched_on.valid() && worker.leaving;
    if (worker.is_live() && !told) Pause(s, now, job, rank, tier);
  }
}

void TellToStop(State& s, Time now, const Job& job, Worker& worker,
                double grace_s) {
  worker.leaving = true;
  worker.stop_sent_at = now;
  if (worker.pause_sent_at == kNever) worker.pause_sent_at = now;
  s.agenda.Due(now + PauseGrace(job, s.options));
  const auto rank = static_cast<int>(&worker - job.workers.data());
  s.outbox.Emit(action::SendToAgent{
      worker.server,
      StopWorker{worker.server, WorkerKey{job.id, rank, worker.incarnation},
                 s.outbox.position(), grace_s}});
}

void NotifyReady(State& s, Job& job) {
  if (!s.leases.CanStart(job)) return;
  for (int rank = 0; rank < job.world_size; ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch != 0 || WaitsForGang(job, rank, job.epoch)) continue;
    Notify(s, job, rank);
  }
}

void Notify(State& s, const Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const WorkerKey key{job.id, rank, worker.incarnation};
  s.outbox.Emit(action::SendToWorker{
      key, LeaseNotice{key, s.outbox.position(), job.epoch}});
}

void AcceleratorFreed(State& s, AcceleratorId accelerator) {
  for (const JobId id : s.assigned.JobsOn(accelerator)) {
    Job& job = *s.jobs.Find(id);
    if (job.spec.opaque()) s.agenda.Due(0);  // the next sweep may start it
    NotifyReady(s, job);
  }
}

void NoticeHolders(State& s, Job& job) {
  if (!s.options.renewals) return;
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    if (job.workers[static_cast<size_t>(rank)].held_epoch != 0) {
      Notify(s, job, rank);
    }
  }
}

Time NextLaunch(State& s, Time now) {
  return s.launches.Next(now, s.options.launches_per_s);
}

void RestartPace(State& s) { s.launches = {}; }

// Changes the size of a gang that is assigned anew. If it grows, all processes
// end with a checkpoint and start again; if it shrinks, those of the ranks
// beyond the new size end. A worker that was done, though its gang had not come
// to its end, starts again with the new gang.
static void ChangeWorldSize(State& s, Time now, Job& job, int world_size);

void ChangeWorldSize(State& s, Time now, Job& job, int world_size) {
  const bool grows = world_size > job.world_size;
  job.world_size = world_size;
  job.resizing_since = job.HoldsAny() ? now : kNever;
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.process == ProcessState::kDone) {
      worker.process = ProcessState::kNone;
    }
    if (!worker.is_live()) continue;
    if (!grows && rank < world_size) continue;
    worker.restarting |= grows;
    Pause(s, now, job, rank, PauseTier::kEvict);
  }
}

void NoteResized(Time now, Job& job) {
  if (job.resizing_since == kNever) return;
  const bool all = std::ranges::all_of(job.gang(), [&](const Worker& worker) {
    return worker.held_epoch == job.epoch;
  });
  if (!all) return;
  job.resize_s = now - job.resizing_since;
  job.resizing_since = kNever;
}

void Assign(State& s, Time now, Job& job,
            const std::vector<AcceleratorId>& next, JobId partner,
            PauseTier tier) {
  if (s.jobs.Unchanged(job, next, partner)) return;
  s.agenda.MakeRoomSoon();
  s.changes.Touch(job);
  Job* const other = s.jobs.FindLive(job.partner);
  if (other != nullptr) s.changes.Touch(*other);
  if (s.allocation.result().is_assignment) {
    // Books the job and its partner as the unit that they were until now.
    s.ledger.BookJob(now, job);
    if (other != nullptr) s.ledger.BookJob(now, *other);
  }
  for (Worker& worker : job.workers) s.ledger.BookStart(now, job, worker);
  for (AcceleratorId old : job.assigned) {
    s.assigned.Remove(old, job.id);
    if (job.spec.opaque()) s.cluster.SetReserved(old, false);
  }
  const bool resized =
      !next.empty() && static_cast<int>(next.size()) != job.world_size;
  if (next.empty()) job.resizing_since = kNever;
  if (resized) ChangeWorldSize(s, now, job, static_cast<int>(next.size()));
  s.jobs.SetAssigned(job, next);
  job.partner = next.empty() ? JobId() : partner;
  for (AcceleratorId accelerator : next) {
    s.assigned.Add(accelerator, job.id);
    if (job.spec.opaque()) s.cluster.SetReserved(accelerator, true);
  }
  if (job.spec.opaque()) {
    s.assigned.Recount();
    s.agenda.SolveSoon();
  }
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch == 0 || (resized && worker.leaving)) continue;
    const bool goes = static_cast<size_t>(rank) < next.size();
    const bool stays =
        next.empty() ? MayStayParked(worker, s.cluster)
                     : goes && MayMove(worker, next[static_cast<size_t>(rank)],
                                       s.cluster);
    Pause(s, now, job, rank, stays ? tier : PauseTier::kEvict);
  }
  EndMisplaced(s, now, job);
  HoldLaunches(s, now, job);
  if (other != nullptr) HoldLaunches(s, now, *other);
  if (next.empty()) return;
  ++job.epoch;
  EnsureProcesses(s, now, job, next);
  NotifyReady(s, job);
}

namespace {

// A loop may stand still for this many of its steps, however long they take.
constexpr double kHangSteps = 100;

// `gavel why` and `gavel nodes` show a standstill from this fraction of the
// hang timeout on.
constexpr double kToldFraction = 0.25;

}  // namespace

void NoteSteps(Time now, Worker& worker, const Progress& told) {
  const Progress& before = worker.progress;
  if (told.steps_done != before.steps_done ||
      told.boundaries != before.boundaries ||
      told.last_generation != before.last_generation) {
    worker.stepped_at = now;
  }
  worker.progress = told;
  worker.progress_at = now;
}

double HangTimeout(const State& s, const Job& job, const Worker& worker) {
  const double seconds =
      job.spec.hang_timeout_s.value_or(s.options.hang_timeout_s);
  if (seconds <= 0 || worker.held_epoch == 0) return kNever;
  if (job.spec.hang_timeout_s.has_value()) return seconds;
  const std::string& type = s.cluster.accelerator(worker.held).info.type;
  const Throughput speed = s.throughputs.Get(job.id, type);
  const bool known =
      speed.source != ThroughputSource::kGuessed && speed.steps_per_s > 0;
  return known ? std::max(seconds, kHangSteps / speed.steps_per_s) : seconds;
}

std::optional<Standstill> StandstillOf(const State& s, const Job& job) {
  std::optional<Standstill> longest;
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const double allowed_s = HangTimeout(s, job, worker);
    const double seconds = StandsStill(worker);
    if (seconds < kToldFraction * allowed_s) continue;
    if (longest && seconds <= longest->seconds) continue;
    longest = {static_cast<int>(rank), seconds, allowed_s};
  }
  return longest;
}

double StandsStill(const Worker& worker) {
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
  // Whatever its exit code: that is the one of the last command.
  if (job.spec.interactive() && by_itself && !exit.stopped && !worker.leaving) {
    return ProcessEnd::kDone;
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

// Evicts the processes of all jobs except `but` that are parked there.
// Returns whether there were any.
static bool EvictParkedOn(State& s, Time now, AcceleratorId where, JobId but);
static bool GiveUpSize(State& s, Time now, Job& job);
static void LoseForAll(State& s, Time now, AcceleratorId lost);
static void KeepOut(State& s, Time now, Job& job, AcceleratorId lost);
static bool CanUseNone(const State& s, JobId accuser, AcceleratorId last);
static bool GiveUpLaunching(State& s, Time now, Job& job,
                            const WorkerExited& exit);
static void CountFailure(State& s, Time now, Job& job, const FailedEnd& end);
static void AvoidPlace(State& s, Time now, JobId job, AcceleratorId where,
                       bool leased);
static void TryElsewhere(State& s, Time now, Job& job);
static bool GiveUpFetching(State& s, Time now, Job& job,
                           const std::string& server);

void On(State& s, Time now, const event::WorkerGone& e) {
  const WorkerKey& key = e.exit.worker;
  while (const auto freed = s.leases.EndQuarantine(key)) {
    AcceleratorFreed(s, *freed);
    s.agenda.SeatSoon();
  }
  if (Worker* worker = s.jobs.Find(key)) {
    worker->hung_s = e.hung_s;
    Job& job = *s.jobs.Find(key.job);
    const event::ProcessEnd end = e.end == event::ProcessEnd::kUntold
                                      ? EndByCode(job, *worker, e.exit)
                                      : e.end;
    ProcessEnded(s, now, job, key.rank, e.exit, end);
  }
}

void On(State& s, Time now, const event::WorkerAbandoned& e) {
  Worker* worker = s.jobs.Find(e.worker);
  Job* job = s.jobs.Find(e.worker.job);
  if (worker == nullptr) return;
  s.leases.Quarantine(*worker, e.worker);
  const WorkerExited exit = EndedWithAgent(worker->server, *worker, e.worker);
  Assign(s, now, *job, {}, JobId());
  ProcessEnded(s, now, *job, e.worker.rank, exit);
  s.agenda.FillSoon();
}

// A job that has grown, and whose gang does not come together however often it
// is tried (a step may have too few samples for so many workers), goes back to
// the size that it asked for. It does not try the larger size on that type
// again. False: the job has not grown.
bool GiveUpSize(State& s, Time now, Job& job) {
  const int size = job.world_size;
  if (size <= job.spec.scale_factor || job.assigned.empty()) return false;
  const std::string type =
      s.cluster.accelerator(job.assigned.front()).info.type;
  s.throughputs.ExcludeSize(job.id, type, size);
  job.scale_factor = job.spec.scale_factor;
  job.failed_starts = 0;
  job.resized_at = now;
  job.resize_reason = reason::ShrunkFailed{type, size};
  s.round.ForgetPlan(job);
  Assign(s, now, job, {}, JobId());
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
  return true;
}

static Reason FinishOf(const Job& job, const WorkerExited& exit) {
  if (!job.spec.interactive() || exit.exit_code == 0) {
    return reason::Finished();
  }
  return reason::FinishedWith{exit.exit_code};
}

void ProcessEnded(State& s, Time now, Job& job, int rank,
                  const WorkerExited& exit, event::ProcessEnd read) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  // A person left the shell, whatever its exit code.
  const bool by_person =
      job.spec.interactive() && read == event::ProcessEnd::kDone;
  if (!by_person && IsLoss(worker, exit)) s.ledger.AddLoss();
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
      overdue && worker.spoke ? StartTimeout(job, s.options) : 0;
  // A process that was stopped and never held a lease counts as starting until
  // its end.
  if (exit.stopped && worker.held_epoch == 0 && worker.parked_at == kNever) {
    worker.process = ProcessState::kLaunching;
  }
  s.ledger.BookStart(now, job, worker);
  // The worker that ran out of memory may start again elsewhere.
  if (worker.out_of_memory) s.agenda.FillSoon();
  const AcceleratorId where = PlaceOf(job, rank, s.cluster);
  const bool leased = worker.held_epoch != 0 || worker.left_on.valid();
  const std::set<AcceleratorId> contexts = std::move(worker.contexts);
  worker.contexts.clear();
  worker.parked_at = kNever;
  worker.kept_on = AcceleratorId();
  worker.left_on = AcceleratorId();
  worker.out_of_memory = false;
  s.jobs.MayBeOver(job);
  if (job.spec.interactive()) s.agenda.SeatSoon();
  s.changes.Touch(job);
  worker.process = ProcessState::kNone;
  worker.leaving = false;
  worker.restarting = false;
  worker.finished = false;
  worker.finished_code.reset();
  worker.unswept = false;
  const FailedEnd end{exit, std::exchange(worker.hung_s, 0), silent, unready_s};
  EndLease(s, now, job, worker);
  worker.pause_sent_at = kNever;
  worker.stop_sent_at = kNever;
  worker.launch_sent_at = kNever;
  worker.last_nonce = 0;
  const WorkerKey key{job.id, rank, worker.incarnation};
  s.checkpoints.EndFetch(key);
  EndSilence(s, now, key, worker);
  if (!contexts.empty()) s.leases.EndContexts(key);
  for (const AcceleratorId freed : contexts) AcceleratorFreed(s, freed);
  const bool of_gang = rank < job.world_size;
  if (read == event::ProcessEnd::kDone && job.active() && of_gang) {
    worker.process = ProcessState::kDone;
    if (leased) s.accusations.NoteGoodEnd(job.id, where);
    // Rank 0 of an interactive job is its shell. The other ranks end with it.
    if (job.AllDone() || (job.spec.interactive() && rank == 0)) {
      EndJob(s, now, job, JobState::kFinished, FinishOf(job, exit));
    }
    ReviveDone(s, now, job);
    return;
  }
  if (!job.active()) return;
  if (read == event::ProcessEnd::kTimeLimit) {
    return EndJob(
        s, now, job, JobState::kHeld,
        reason::HeldTimeLimit{job.id, job.spec.time_limit_s.value_or(0)});
  }
  if (fetched_nothing && GiveUpFetching(s, now, job, worker.server)) return;
  if (exit.launch_hung && GiveUpLaunching(s, now, job, exit)) return;
  const bool failed = read == event::ProcessEnd::kFailed;
  // The first rank to notice a broken gang exits with kExitEvicted. Its exit is
  // counted as a failure only when the other ranks are gone too, and only if
  // none of them had broken the gang.
  const bool noticed = failed && !exit.stopped && EndedByItself(exit) &&
                       exit.exit_code == kExitEvicted && job.HoldsAny();
  job.left_unasked = (job.left_unasked || noticed) && !exit.no_failure;
  if (failed && !noticed) {
    if (where.valid()) AvoidPlace(s, now, job.id, where, leased);
    CountFailure(s, now, job, end);
    if (job.active()) TryElsewhere(s, now, job);
  } else if (restarts || (of_gang && !leaving && job.HoldsAny())) {
    // This is no failure, but the other ranks can't continue alone.
    RestartGang(s, now, job);
  } else if (job.left_unasked && !job.AnyLive()) {
    WorkerExited left;
    left.exit_code = kExitEvicted;
    CountFailure(s, now, job, {left});
  }
  if (job.active() && !job.assigned.empty()) {
    EnsureProcesses(s, now, job, job.assigned);
  }
}

// Counts a launch that came to nothing: it did not get to exec, or its agent
// was lost meanwhile. After kHungLaunchesMax of them in a row the job is held,
// so that a job whose directory hangs does not occupy, or take down, one server
// after the other. True: the job is held.
bool GiveUpLaunching(State& s, Time now, Job& job, const WorkerExited& exit) {
  if (++job.hung_launches < kHungLaunchesMax) return false;
  const std::string why = exit.launch_error.empty()
                              ? "its agent was lost meanwhile"
                              : exit.launch_error;
  EndJob(s, now, job, JobState::kHeld,
         reason::HeldHungLaunch{StrCat("on ", exit.server), job.id,
                                job.hung_launches, why});
  return true;
}

void CountFailure(State& s, Time now, Job& job, const FailedEnd& end) {
  const WorkerExited& exit = end.exit;
  ++job.failures_in_a_row;
  job.failure_counted = true;
  job.left_unasked = false;
  job.last_error = exit.error_line;
  job.last_end = exit.signal != 0 ? -exit.signal : exit.exit_code;
  if (!exit.launch_error.empty()) {
    // Another launch would fail in the same way.
    return EndJob(s, now, job, JobState::kHeld,
                  reason::HeldLaunch{exit.launch_error});
  }
  const int failures = job.failures_in_a_row;
  // A program that never spoke would be silent the next time, too.
  if (end.silent) {
    return EndJob(s, now, job, JobState::kHeld,
                  reason::HeldSilent{job.id, failures});
  }
  // A person worked in the lost process, and a new one does not have that work.
  if (failures < job.spec.retries_max && !job.spec.interactive()) {
    return RestartGang(s, now, job);
  }
  if (end.hung_s > 0) {
    return EndJob(s, now, job, JobState::kHeld,
                  reason::HeldHung{job.id, failures, end.hung_s});
  }
  if (end.unready_s > 0) {
    return EndJob(s, now, job, JobState::kHeld,
                  reason::HeldUnready{job.id, failures, end.unready_s});
  }
  EndJob(s, now, job, JobState::kHeld,
         reason::HeldFailures{job.id, failures, job.last_end, job.last_error});
}

// Makes the job avoid the accelerator where its process failed. The job avoids
// the whole server if the process had no lease yet, or if the job already
// avoids another accelerator of that server.
void AvoidPlace(State& s, Time now, JobId job, AcceleratorId where,
                bool leased) {
  const auto server =
      s.cluster.servers().find(s.cluster.accelerator(where).server);
  if (server == s.cluster.servers().end()) return;
  const std::vector<AcceleratorId>& ids = server->second;
  const bool all = !leased || std::ranges::any_of(ids, [&](AcceleratorId id) {
    return id != where && s.avoidance.Avoids(now, job, id);
  });
  for (const AcceleratorId id : ids) {
    if (all || id == where) s.avoidance.Avoid(now, job, id);
  }
}

// Moves the job away from its accelerators if it avoids some of them, and at
// least as many others of the type are free.
void TryElsewhere(State& s, Time now, Job& job) {
  const auto avoids = [&](AcceleratorId id) {
    return s.avoidance.Avoids(now, job.id, id);
  };
  const auto avoided = std::ranges::count_if(job.assigned, avoids);
  if (avoided == 0) return;
  const std::span<const uint32_t> types = s.cluster.usable_types();
  const uint32_t type = types[job.assigned.front().value() - 1];
  std::ptrdiff_t others = 0;
  for (const Accelerator& other : s.cluster.accelerators()) {
    others += types[other.id.value() - 1] == type && other.usable() &&
              s.assigned.IsFree(other.id) && !avoids(other.id);
  }
  if (others < avoided) return;
  s.round.ForgetPlan(job);
  Assign(s, now, job, {}, JobId());
  s.agenda.FillSoon();
}

// The parts that schedule a job forget it. They have never known one that was
// not in the queue.
static void ForgetJob(State& s, JobId job) {
  s.avoidance.Forget(job);
  s.avoidance.SetBarred(job, {});
  s.throughputs.RemoveJob(job);
  s.speeds.RemoveJob(job);
  s.ledger.RemoveJob(job);
  s.trials.ForgetJob(job);
  s.introspection.ForgetJob(job);
}

void EndJob(State& s, Time now, Job& job, JobState state, Reason reason,
            PauseTier tier) {
  s.ledger.BookAll(now);
  s.ledger.BookTarget(now, job);
  s.isolated.End(now, job);
  Assign(s, now, job, {}, JobId());
  s.round.ForgetPlan(job);
  s.changes.Touch(job);
  const bool was_queued = job.active();
  s.jobs.End(job, state);
  job.reason = std::move(reason);
  job.ended_at = now;
  job.ended_wall_s = now + s.options.wall_offset_s;
  EndWorkers(s, now, job, tier);
  // A job that finished could use other accelerators, so its word counts.
  if (state != JobState::kFinished) s.accusations.WithdrawAccusations(job.id);
  if (job.array.valid()) s.arrays.NoteGone(job, was_queued);
  if (state != JobState::kHeld) {
    TellChildren(s, job);
    double alone_s = 0;
    if (!job.unqueued) {
      alone_s = s.figures.AloneSeconds(job, s.figures.StepsDone(job, now));
    }
    s.apps.End(now, job, alone_s, s.arrays.Find(job.array) != nullptr);
    if (const App* app = s.apps.Find(job); app != nullptr) {
      s.agenda.Due(app->idle_since + s.options.app_timeout_s);
    }
    if (!job.unqueued) ForgetJob(s, job.id);
  }
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
}

void GiveUpEpoch(State& s, Time now, Job& job, ReleaseCause cause) {
  ++job.epoch;
  if (job.is_gang() && cause == ReleaseCause::kResumeFailed &&
      ++job.failed_starts >= StartsMax(job)) {
    if (GiveUpSize(s, now, job)) return;
    return EndJob(s, now, job, JobState::kHeld,
                  reason::HeldGang{job.id, job.failed_starts});
  }
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) {
      Pause(s, now, job, static_cast<int>(rank), PauseTier::kPark);
    }
  }
}

void EndLease(State& s, Time now, Job& job, Worker& worker) {
  if (worker.held_epoch == 0) return;
  s.ledger.BookWorker(now, job, worker);
  s.trials.CountTrial(now, worker);
  const AcceleratorId freed = worker.held;
  s.leases.End(freed, job.id);
  worker.asked_at = now;
  s.agenda.Due(now + StartTimeout(job, s.options));
  worker.held_epoch = 0;
  worker.held = AcceleratorId();
  worker.hung_s = 0;
  s.agenda.MakeRoomSoon();
  if (!worker.leaving) {
    worker.pause_sent_at = kNever;
    worker.stop_sent_at = kNever;
  }
  AcceleratorFreed(s, freed);
}

void On(State& s, Time now, const event::AcceleratorLost& e) {
  const AcceleratorId lost = s.cluster.Find(e.server, e.uuid);
  if (!lost.valid()) return;
  if (!e.job.valid()) return LoseForAll(s, now, lost);
  Job* accuser = s.jobs.Find(e.job);
  if (accuser == nullptr || !accuser->active()) return;
  if (s.accusations.Accuse(lost, *accuser)) LoseForAll(s, now, lost);
  KeepOut(s, now, *accuser, lost);
  if (!CanUseNone(s, e.job, lost)) return;
  std::vector<std::string> accused;
  for (const AcceleratorId id : s.avoidance.KeptOutOf(e.job)) {
    accused.push_back(s.cluster.accelerator(id).info.uuid);
  }
  EndJob(s, now, *accuser, JobState::kHeld,
         reason::HeldDevice{absl::StrJoin(accused, " nor "), e.job});
}

void LoseForAll(State& s, Time now, AcceleratorId lost) {
  s.cluster.MarkLost(lost);
  s.assigned.Recount();
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
  while (!s.assigned.JobsOn(lost).empty()) {
    Assign(s, now, s.jobs.at(s.assigned.JobsOn(lost).front()), {}, JobId());
  }
}

// Makes the job start elsewhere. An elastic job shrinks to at most the number
// of accelerators of the type that are left to it, if those are enough for it.
void KeepOut(State& s, Time now, Job& job, AcceleratorId lost) {
  const int left = s.avoidance.CountLeft(
      job.id, static_cast<size_t>(s.cluster.TypeOf(lost)));
  if (job.spec.elastic() && left >= job.spec.LeastWorkers()) {
    s.throughputs.ExcludeSize(job.id, s.cluster.accelerator(lost).info.type,
                              left + 1);
    job.scale_factor = std::min(job.scale_factor, left);
  }
  s.round.ForgetPlan(job);
  Assign(s, now, job, {}, JobId());
  // The accelerators that the job can use have changed, and so has the problem
  // for the policy.
  s.changes.TouchAll();
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
}

bool CanUseNone(const State& s, JobId accuser, AcceleratorId last) {
  const std::vector<AcceleratorId> accused = s.avoidance.KeptOutOf(accuser);
  std::set<std::string> servers;
  for (const AcceleratorId id : accused) {
    servers.insert(s.cluster.accelerator(id).server);
  }
  const std::string& type = s.cluster.accelerator(last).info.type;
  const bool others =
      std::ranges::any_of(s.cluster.accelerators(), [&](const auto& other) {
        return other.usable() && other.info.type == type &&
               !servers.contains(other.server);
      });
  return (others ? servers.size() : accused.size()) >= kAccusedMax;
}

bool EvictParkedOn(State& s, Time now, AcceleratorId where, JobId but) {
  bool some = false;
  for (const WorkerKey& key : s.leases.ParkedOn(where)) {
    if (key.job == but) continue;
    Pause(s, now, *s.jobs.Find(key.job), key.rank, PauseTier::kEvict);
    some = true;
  }
  return some;
}

void OutOfMemory(State& s, Job& job, AcceleratorId where, JobId partner,
                 ReleaseCause cause, Time now) {
  const bool shared = EvictParkedOn(s, now, where, job.id);
  if (!job.active()) return;
  const std::string& type = s.cluster.accelerator(where).info.type;
  if (partner.valid()) {
    s.throughputs.ExcludePair(job.id, partner, type);
    if (Job* other = s.jobs.Find(partner)) {
      KeepPairCell(s, job, *other, type);
      KeepPairCell(s, *other, job, type);
    }
  } else if (!shared && cause == ReleaseCause::kOutOfMemory) {
    s.throughputs.Exclude(job.id, type);
  } else if (!shared) {
    s.avoidance.Avoid(now, job.id, where);
  }
  s.round.ForgetPlan(job);
  Assign(s, now, job, {}, JobId());
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
}

void GiveUpFetches(State& s, Time now) {
  for (auto& [id, live] : s.jobs.live()) {
    Job& job = *live;
    if (!job.active() || !s.checkpoints.IsStranded(job)) continue;
    const bool waits = std::ranges::any_of(job.workers, [](const Worker& w) {
      return w.process == ProcessState::kLaunching;
    });
    if (!waits) continue;
    Assign(s, now, job, {}, JobId());
    for (Worker& worker : job.workers) {
      if (worker.process != ProcessState::kLaunching) continue;
      TellToStop(s, now, job, worker, /*grace_s=*/0);
    }
  }
}

// The launch of a process on `server` was ended because no more bytes of its
// checkpoint arrived. It is tried again, but not forever, as other jobs could
// use its accelerators meanwhile. Then the job is held: both agents are there,
// so only a person can find out why they do not reach each other. True: the job
// is held.
bool GiveUpFetching(State& s, Time now, Job& job, const std::string& server) {
  if (++job.failed_starts < StartsMax(job)) return false;
  EndJob(s, now, job, JobState::kHeld,
         reason::HeldFetch{
             {job.id, StrCat(s.checkpoints.SourceFor(job, server).server,
                             " to ", server)},
             StartTimeout(job, s.options),
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
