#include "coordinator/engine/processes.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/state.h"

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
    // The launch of an opaque job begins with its lease (Sweeper::SweepOpaque).
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

}  // namespace gavel::engine
