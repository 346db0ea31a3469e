#include "coordinator/engine/workers/operators.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/operator_rules.h"
#include "coordinator/workload/job_update.h"

namespace gavel::engine {

void Operators::On(Time, const event::PricesChanged& e) {
  for (const auto& [type, price] : e.prices) allocation_.SetPrice(type, price);
  changes_.TouchAll();
  agenda_.SolveSoon();
}

void Operators::Admit(Time now, const event::JobCommanded& e) {
  const Job* job = jobs_.Find(e.job);
  const bool kept_out = job != nullptr && (throughputs_.HasExclusions(e.job) ||
                                           accusations_.IsKeptOut(e.job) ||
                                           checkpoints_.IsStranded(*job));
  std::string error = WhyNot(e, job, kept_out);
  if (error.empty()) return recorder_.Record(now, e);
  outbox_.EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Operators::Admit(Time now, const event::JobUpdated& e) {
  std::string error = WhyNot(e, jobs_.Find(e.job), cluster_);
  if (error.empty()) return recorder_.Record(now, e);
  outbox_.EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Operators::Admit(Time now, const event::ServerForgotten& e) {
  std::string error =
      WhyNot(e, agents_, leases_, jobs_, cluster_, options_.agent_timeout_s);
  if (error.empty()) return recorder_.Record(now, e);
  outbox_.EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

void Operators::Admit(Time now, event::AcceleratorsDrained e) {
  e.scoped = true;
  std::string error = WhyNot(e, cluster_);
  if (error.empty()) return recorder_.Record(now, std::move(e));
  outbox_.EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

void Operators::On(Time now, const event::JobCommanded& e) {
  Job* job = jobs_.Find(e.job);
  outbox_.Emit(action::Reply{e.reply_to, e.job, ""});
  switch (e.kind) {
    case CommandKind::kRelease:
      return Release(now, *job);
    case CommandKind::kHold:
      return endings_.EndJob(now, *job, JobState::kHeld,
                             reason::HeldByUser{e.by, e.job},
                             PauseTier::kEvict);
    case CommandKind::kRequeue:
      assignments_.Assign(now, *job, {}, JobId(), PauseTier::kEvict);
      // Those that have no lease; one that is starting does so anew already.
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.process != ProcessState::kJoined || worker.leaving) continue;
        processes_.Pause(now, *job, rank, PauseTier::kEvict);
      }
      agenda_.FillSoon();
      return;
    case CommandKind::kCheckpoint:
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.held_epoch == 0) continue;
        const WorkerKey key{job->id, rank, worker.incarnation};
        outbox_.Emit(action::SendToWorker{
            key, CheckpointRequest{key, outbox_.position()}});
      }
      return;
    default:
      endings_.EndJob(now, *job, JobState::kCancelled, reason::Cancelled{e.by});
  }
}

void Operators::Release(Time now, Job& job) {
  if (checkpoints_.IsStranded(job)) checkpoints_.ForgoCheckpoints(job);
  throughputs_.Readmit(job.id);
  accusations_.Forgive(job.id);
  std::erase_if(job.profile, [](const ProfiledCell& cell) {
    return !cell.beside.empty() && cell.value == 0;
  });
  isolated_.CountChanged(now);
  jobs_.Release(job);
  changes_.Touch(job);
  job.failures_in_a_row = 0;
  job.failed_starts = 0;
  job.hung_launches = 0;
  agenda_.SolveSoon();
}

void Operators::On(Time now, const event::JobUpdated& e) {
  Job& job = *jobs_.Find(e.job);
  outbox_.Emit(action::Reply{e.reply_to, e.job, ""});
  ApplyUpdate(e.update, &job.spec);
  measurements_.BarTypes(job);
  const int least = job.spec.LeastWorkers();
  const int most = job.spec.MostWorkers();
  job.scale_factor = std::clamp(job.scale_factor, least, most);
  jobs_.NoteElastic(job);
  const int has = static_cast<int>(job.assigned.size());
  if (has > 0 && (has < least || has > most))
    assignments_.Assign(now, job, {}, JobId());
  // In the problem its row may be another one now.
  changes_.TouchAll();
  agenda_.SolveSoon();
  agenda_.FillSoon();
}

void Operators::On(Time now, const event::AcceleratorsDrained& e) {
  outbox_.Emit(action::Reply{e.reply_to, JobId(), ""});
  const std::vector<AcceleratorId> which = AcceleratorsOf(e, cluster_);
  if (e.by_agent) {
    cluster_.SetLeaving(e.server);
  } else {
    for (const AcceleratorId id : which) {
      cluster_.SetDrained(id, e.drained, e.why, e.scoped && !e.uuid.empty());
      if (!e.why.empty()) cluster_.NoteErrors(id, e.errors);
    }
  }
  assigned_.Recount();
  agenda_.SolveSoon();
  agenda_.FillSoon();
  for (const AcceleratorId id : which) operated_.drains.erase(id);
  if (!e.drained) return;
  if (now >= e.until) return Leave(now, e);
  for (const AcceleratorId id : which) operated_.drains[id] = e.until;
  agenda_.Due(e.until);
}

// Whoever is there ends with a checkpoint; where the job goes on is decided as
// ever. An opaque job has none, and stays to its end.
void Operators::Leave(Time now, const event::AcceleratorsDrained& e) {
  const std::vector<AcceleratorId> ids = AcceleratorsOf(e, cluster_);
  const auto is_drained = [&](AcceleratorId id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  const auto must_go = [&](const Worker& worker) {
    if (e.uuid.empty()) return worker.server == e.server;
    return is_drained(worker.held) || is_drained(worker.kept_on) ||
           std::ranges::any_of(worker.contexts, is_drained);
  };
  for (auto& [id, job] : jobs_.live()) {
    if (job->pinned() && !e.by_agent) continue;
    const std::vector<AcceleratorId> places = job->assigned;
    if (std::ranges::any_of(places, is_drained)) {
      assignments_.Assign(now, *job, {}, JobId(), PauseTier::kEvict);
    }
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      const Worker& worker = job->workers[rank];
      // It was to have its first lease there.
      const bool starts = worker.held_epoch == 0 && rank < places.size() &&
                          is_drained(places[rank]);
      if (!worker.is_live() || worker.leaving) continue;
      if (!starts && !must_go(worker)) continue;
      processes_.Pause(now, *job, static_cast<int>(rank), PauseTier::kEvict);
    }
  }
}

void Operators::SweepDrains(Time now) {
  std::vector<event::AcceleratorsDrained> due;
  for (const auto& [id, until] : operated_.drains) {
    if (now < until) {
      agenda_.Due(until);
      continue;
    }
    const Accelerator& accelerator = cluster_.accelerator(id);
    due.push_back({accelerator.server, accelerator.info.uuid});
    due.back().until = until;
  }
  for (event::AcceleratorsDrained& drained : due) {
    recorder_.Record(now, std::move(drained));
  }
}

void Operators::On(Time, const event::ServerForgotten& e) {
  outbox_.Emit(action::Reply{e.reply_to, JobId(), ""});
  for (const AcceleratorId id : AcceleratorsOf({e.server}, cluster_)) {
    operated_.drains.erase(id);
    accusations_.Forget(id);
  }
  agents_.Forget(e.server);
  cluster_.Forget(e.server);
  assigned_.Recount();
  agenda_.SolveSoon();
}

void Operators::On(Time, const event::PolicyChanged& e) {
  outbox_.Emit(action::Reply{e.reply_to, JobId(), ""});
  operated_.policy = {e.policy, e.instead_of, e.packing, e.progress};
  terms_.SetPolicy(e.packing, e.progress);
  // What is being solved is of the policy before. Whoever runs goes on until
  // the new one says otherwise.
  solver_.Abandon(/*answer=*/true);
  problems_.Drop();
  changes_.TouchAll();
  agenda_.SolveSoon();
}

void Operators::TakePolicyOf(const event::CoordinatorStarted& e) {
  DecidingPolicy& policy = operated_.policy;
  if (policy.instead_of.empty() || policy.name != e.policy) {
    policy = {e.policy, ""};
    return;
  }
  terms_.SetPolicy(policy.packing, policy.progress);
}

}  // namespace gavel::engine
