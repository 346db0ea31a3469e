// What operators do to the cluster while it runs, and owners to their jobs:
// each is one event, undone by another.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/workload/job_update.h"

namespace gavel {

// ---- what is let in

void Engine::Admit(Time now, const event::JobCommanded& e) {
  std::string error = WhyNot(e, *this);
  if (error.empty()) return Record(now, e);
  EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Engine::Admit(Time now, const event::JobUpdated& e) {
  std::string error = WhyNot(e, *this);
  if (error.empty()) return Record(now, e);
  EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Engine::Admit(Time now, const event::ServerForgotten& e) {
  std::string error = WhyNot(e, *this);
  if (error.empty()) return Record(now, e);
  EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

void Engine::Admit(Time now, event::AcceleratorsDrained e) {
  std::string error = WhyNot(e, cluster_);
  if (error.empty()) return Record(now, std::move(e));
  EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

// Once: it repeats what it says.
void Engine::Admit(Time now, const event::AgentLeaves& e) {
  const AgentLeaving& message = e.message;
  const auto agent = agents_.find(message.server);
  if (agent == agents_.end() || !agent->second.reachable ||
      agent->second.incarnation != message.incarnation) {
    return;
  }
  agent->second.heard_at = now;
  if (message.gone) return Record(now, event::ServerLost{message.server, true});
  const std::vector<AcceleratorId>& ids = cluster_.servers().at(message.server);
  const bool told = std::ranges::all_of(
      ids, [&](AcceleratorId id) { return cluster_.accelerator(id).leaving; });
  if (told) return;
  event::AcceleratorsDrained drained{message.server};
  drained.by_agent = true;
  drained.until = now;
  Record(now, std::move(drained));
}

// ---- jobs

void Engine::On(Time now, const event::JobCommanded& e) {
  Job* job = Find(e.job);
  Emit(action::Reply{e.reply_to, e.job, ""});
  switch (e.kind) {
    case CommandKind::kRelease:
      return Release(*job);
    case CommandKind::kHold:
      return EndJob(now, *job, JobState::kHeld,
                    Reason{ReasonCode::kHeldByUser, "",
                           static_cast<double>(e.job.value()), 0},
                    PauseTier::kEvict);
    case CommandKind::kRequeue:
      Assign(now, *job, {}, JobId(), PauseTier::kEvict);
      // Those that have no lease; one that is starting does so anew already.
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.process != ProcessState::kJoined || worker.leaving) continue;
        Pause(now, *job, rank, PauseTier::kEvict);
      }
      fill_due_ = true;
      return;
    case CommandKind::kCheckpoint:
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.held_epoch == 0) continue;
        const WorkerKey key{job->id, rank, worker.incarnation};
        Emit(action::SendToWorker{key, CheckpointRequest{key, position()}});
      }
      return;
    default:
      EndJob(now, *job, JobState::kCancelled,
             Reason{ReasonCode::kCancelled, "", 0, 0});
  }
}

void Engine::Release(Job& job) {
  if (IsStranded(job)) ForgoCheckpoints(job);
  throughputs_.Readmit(job.id);
  std::erase_if(job.profile, [](const ProfiledCell& cell) {
    return !cell.beside.empty() && cell.value == 0;
  });
  if (!job.active()) ++active_jobs_;
  job.state = JobState::kActive;
  uncounted_.push_back(job.id);
  Touch(job);
  job.failures_in_a_row = 0;
  job.failed_starts = 0;
  job.hung_launches = 0;
  live_[job.id] = &job;
  job.live = true;
  NoteWaiting(job);
  unsolved_ = true;
}

void Engine::On(Time now, const event::JobUpdated& e) {
  Job& job = *Find(e.job);
  Emit(action::Reply{e.reply_to, e.job, ""});
  ApplyUpdate(e.update, &job.spec);
  BarTypes(job);
  const int least = job.spec.LeastWorkers();
  const int most = job.spec.MostWorkers();
  job.scale_factor = std::clamp(job.scale_factor, least, most);
  elastic_ |= job.spec.elastic();
  const int has = static_cast<int>(job.assigned.size());
  if (has > 0 && (has < least || has > most)) Assign(now, job, {}, JobId());
  // In the problem its row may be another one now.
  TouchAll();
  unsolved_ = true;
  fill_due_ = true;
}

// Of the types that are there: once more when another one comes.
void Engine::BarTypes(const Job& job) {
  std::set<std::string, std::less<>> barred;
  const std::vector<std::string>& wanted = job.spec.types;
  for (const std::string& type : cluster_.types()) {
    if (wanted.empty()) break;
    const std::vector<std::string> names = NamesOfType(type, cluster_.types());
    const bool is_wanted =
        std::ranges::any_of(names, [&](const std::string& name) {
          return std::ranges::find(wanted, name) != wanted.end();
        });
    if (!is_wanted) barred.insert(type);
  }
  throughputs_.SetBarred(job.id, std::move(barred));
}

// ---- servers and accelerators

void Engine::On(Time now, const event::AcceleratorsDrained& e) {
  Emit(action::Reply{e.reply_to, JobId(), ""});
  const std::vector<AcceleratorId> which = AcceleratorsOf(e, cluster_);
  if (e.by_agent) {
    cluster_.SetLeaving(e.server);
  } else {
    for (const AcceleratorId id : which) cluster_.SetDrained(id, e.drained);
  }
  CountAssigned();
  unsolved_ = true;
  fill_due_ = true;
  for (const AcceleratorId id : which) operated_.drains.erase(id);
  if (!e.drained) return;
  if (now >= e.until) return Leave(now, e);
  for (const AcceleratorId id : which) operated_.drains[id] = e.until;
  Due(e.until);
}

// Whoever is there ends with a checkpoint; where the job goes on is decided as
// ever. What never spoke has nothing to save.
void Engine::Leave(Time now, const event::AcceleratorsDrained& e) {
  const std::vector<AcceleratorId> ids = AcceleratorsOf(e, cluster_);
  const auto is_drained = [&](AcceleratorId id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  const auto must_go = [&](const Worker& worker) {
    if (e.uuid.empty()) return worker.server == e.server;
    return is_drained(worker.held) || is_drained(worker.kept_on) ||
           std::ranges::any_of(worker.contexts, is_drained);
  };
  for (auto& [id, job] : live_) {
    const std::vector<AcceleratorId> places = job->assigned;
    if (std::ranges::any_of(places, is_drained)) {
      Assign(now, *job, {}, JobId(), PauseTier::kEvict);
    }
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      Worker& worker = job->workers[rank];
      // It was to have its first lease there.
      const bool starts = worker.held_epoch == 0 && rank < places.size() &&
                          is_drained(places[rank]);
      if (!worker.is_live() || worker.leaving) continue;
      if (!starts && !must_go(worker)) continue;
      if (worker.process == ProcessState::kLaunching && !worker.spoke) {
        TellToStop(now, *job, worker, options_.stop_grace_s);
      } else {
        Pause(now, *job, static_cast<int>(rank), PauseTier::kEvict);
      }
    }
  }
}

void Engine::SweepDrains(Time now) {
  std::vector<event::AcceleratorsDrained> due;
  for (const auto& [id, until] : operated_.drains) {
    if (now < until) {
      Due(until);
      continue;
    }
    const Accelerator& accelerator = cluster_.accelerator(id);
    due.push_back({accelerator.server, accelerator.info.uuid});
    due.back().until = until;
  }
  for (event::AcceleratorsDrained& drained : due) {
    Record(now, std::move(drained));
  }
}

void Engine::On(Time, const event::ServerForgotten& e) {
  Emit(action::Reply{e.reply_to, JobId(), ""});
  for (const AcceleratorId id : AcceleratorsOf({e.server}, cluster_)) {
    operated_.drains.erase(id);
    accused_.erase(id);
  }
  agents_.erase(e.server);
  cluster_.Forget(e.server);
  CountAssigned();
  unsolved_ = true;
}

// ---- the policy

void Engine::On(Time, const event::PolicyChanged& e) {
  Emit(action::Reply{e.reply_to, JobId(), ""});
  operated_.policy = {e.policy, e.instead_of, e.packing, e.progress};
  options_.packing = options_.pair_trials = e.packing;
  options_.progress = e.progress;
  // What is being solved is of the policy before. Whoever runs goes on until
  // the new one says otherwise.
  ++solve_epoch_;
  solving_ = false;
  problem_ = nullptr;
  TouchAll();
  unsolved_ = true;
}

// One that was set stays set where the coordinator says that it decides.
void Engine::TakePolicyOf(const event::CoordinatorStarted& e) {
  DecidingPolicy& policy = operated_.policy;
  if (policy.instead_of.empty() || policy.name != e.policy) {
    policy = {e.policy, ""};
    return;
  }
  options_.packing = options_.pair_trials = policy.packing;
  options_.progress = policy.progress;
}

}  // namespace gavel
