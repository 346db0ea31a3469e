#include "coordinator/engine/operators.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/agents.h"
#include "coordinator/engine/interactive.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/leases.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/engine/workers.h"
#include "coordinator/workload/job_array.h"
#include "coordinator/workload/job_spec.h"
#include "core/text.h"

namespace gavel {

namespace {

std::string Unknown(JobId job) {
  return StrCat("there is no job ", job.value(), "; `gavel queue` lists them");
}

std::string Ended(const Job& job) {
  return StrCat("job ", ShownId(job),
                " has already ended: ", JobStateName(job.state));
}

std::string Held(const Job& job) {
  const std::string id = ShownId(job);
  if (engine::WaitsForArray(job)) {
    return StrCat("job ", id, " waits for other elements of array ",
                  job.array.value());
  }
  if (WaitsByItself(job)) {
    return StrCat("job ", id, " waits for ",
                  engine::IsAhead(job) ? "its time" : "other jobs",
                  " and does not run; there is nothing to do");
  }
  return StrCat("job ", id, " is held; `gavel release ", id, "` lets it go on");
}

bool MayRelease(const Job& job, bool kept_out) {
  return (job.state == JobState::kHeld && !engine::WaitsForArray(job)) ||
         (job.active() && kept_out);
}

std::string WhyNotRequeued(const Job& job) {
  if (job.state == JobState::kHeld) return Held(job);
  if (!job.active()) return StrCat(Ended(job), "; submit it again");
  if (job.AnyLive()) return "";
  return StrCat("job ", ShownId(job),
                " has no process that could end: it waits in the queue");
}

std::string WhyNoCheckpoint(const Job& job) {
  if (job.state == JobState::kHeld) return Held(job);
  if (!job.active()) return Ended(job);
  if (job.HoldsAny()) return "";
  Generation last = job.restored;
  uint64_t steps = 0;
  for (const Worker& worker : job.workers) {
    last = std::max(last, worker.progress.last_generation);
    steps = std::max(steps, worker.progress.steps_done);
  }
  // A process writes its checkpoint after it has released its accelerator, or
  // as it ends, so the last reported one may be older.
  return StrCat(
      "job ", ShownId(job), " does not run now",
      steps > last.step
          ? StrCat(", it stopped at step ", steps,
                   "; the last checkpoint that it told of is of step ",
                   last.step)
          : StrCat(", and its checkpoint is of step ", last.step));
}

// Whether `names` contains the type, under any name that it has here.
bool IsNamed(std::string_view type, const std::vector<std::string>& names,
             const Cluster& cluster) {
  return std::ranges::any_of(
      NamesOfType(type, cluster.types()), [&](const std::string& name) {
        return std::ranges::find(names, name) != names.end();
      });
}

std::string Types(const Cluster& cluster) {
  std::vector<std::string> types;
  for (size_t type = 0; type < cluster.types().size(); ++type) {
    if (cluster.HasType(type)) types.push_back(cluster.types()[type]);
  }
  return absl::StrJoin(types, ", ");
}

// A job that may still have a process on that server; invalid if none.
JobId JobOn(const std::string& server, const engine::LeaseBook& leases,
            const engine::JobTable& jobs, const Cluster& cluster) {
  for (const auto& [accelerator, worker] : leases.quarantined()) {
    if (cluster.accelerator(accelerator).server == server) {
      return worker.job;
    }
  }
  for (const auto& [id, job] : jobs.all()) {
    for (const AcceleratorId place : job.assigned) {
      if (cluster.accelerator(place).server == server) return id;
    }
    for (const Worker& worker : job.workers) {
      if (worker.is_live() && worker.server == server) return id;
    }
  }
  return {};
}

// One sentence names at most this many drained targets, each with its reason.
constexpr size_t kDrainedMax = 3;

// Why no process may start on an accelerator that is drained, or whose agent is
// ending.
std::string WhyOff(const Accelerator& accelerator) {
  if (!accelerator.drained) return "its agent ends";
  if (accelerator.drained_for.empty()) return "by `gavel drain`";
  return accelerator.drained_for;
}

std::string WhyNotResumed(const std::string& target,
                          const event::AcceleratorsDrained& e,
                          const Cluster& cluster) {
  std::vector<std::string> alone;
  for (const AcceleratorId id : AcceleratorsOf({e.server}, cluster)) {
    const Accelerator& accelerator = cluster.accelerator(id);
    if (!accelerator.drained_alone) continue;
    alone.push_back(StrCat("`gavel resume ", e.server, "/",
                           accelerator.info.uuid,
                           "` (drained: ", WhyOff(accelerator), ")"));
  }
  if (e.uuid.empty() && !alone.empty()) {
    const size_t more = alone.size() - std::min(alone.size(), kDrainedMax);
    alone.resize(alone.size() - more);
    return StrCat(
        "server ", target,
        " is not drained as a whole, but accelerators of it by "
        "themselves: ",
        absl::StrJoin(alone, ", "),
        more > 0 ? StrCat(" and ", more, " more, see `gavel nodes`") : "");
  }
  for (const AcceleratorId id : AcceleratorsOf(e, cluster)) {
    const Accelerator& accelerator = cluster.accelerator(id);
    if (accelerator.state != AcceleratorState::kLost) continue;
    return StrCat(target, " is not drained: ", accelerator.info.uuid,
                  " is lost, as `gavel nodes` tells; once it works, restart "
                  "the agent of ",
                  accelerator.server);
  }
  return StrCat(target, " is not drained");
}

}  // namespace

std::string NameOf(std::string_view owner, std::string_view name) {
  return owner.empty() ? std::string(name) : StrCat(owner, "/", name);
}

std::string NameOf(const JobSpec& spec) {
  return NameOf(spec.owner, spec.name);
}

bool HasName(const Job& job) {
  return job.active() || job.state == JobState::kHeld;
}

bool WaitsByItself(const Job& job) {
  return engine::IsAhead(job) || engine::AwaitsJobs(job) ||
         engine::WaitsForArray(job);
}

std::string WhyNot(const event::JobCommanded& e, const Job* job,
                   bool kept_out) {
  if (job == nullptr) return Unknown(e.job);
  const bool over = !HasName(*job);
  switch (e.kind) {
    case CommandKind::kCancel:
      return over ? Ended(*job) : "";
    case CommandKind::kRelease:
      if (MayRelease(*job, kept_out)) return "";
      if (engine::WaitsForArray(*job)) return Held(*job);
      return StrCat("job ", ShownId(*job), " is not held, it is ",
                    JobStateName(job->state));
    case CommandKind::kHold:
      if (WaitsByItself(*job)) return "";
      if (job->state == JobState::kHeld) return Held(*job);
      return over ? Ended(*job) : "";
    case CommandKind::kRequeue:
      return WhyNotRequeued(*job);
    case CommandKind::kCheckpoint:
      return WhyNoCheckpoint(*job);
    default:
      return "this is nothing to be done to a job; is the client newer?";
  }
}

std::string WhyNoEntity(const std::vector<PolicyEntity>& entities,
                        const std::string& name) {
  if (name.empty() || entities.empty()) return "";
  std::vector<std::string> names;
  for (const PolicyEntity& one : entities) names.push_back(one.name);
  if (std::ranges::find(names, name) != names.end()) return "";
  return StrCat("there is no entity \"", name,
                "\" in the cluster's file, which has ",
                absl::StrJoin(names, ", "));
}

std::string WhyNot(const event::JobUpdated& e, const Job* job,
                   const Cluster& cluster) {
  if (job == nullptr) return Unknown(e.job);
  if (!HasName(*job)) return Ended(*job);
  if (!e.update.types || cluster.types().empty()) return "";
  for (const std::string& name : *e.update.types) {
    const bool known =
        std::ranges::any_of(cluster.types(), [&](const std::string& type) {
          return IsNamed(type, {name}, cluster);
        });
    if (known) continue;
    return StrCat("job ", ShownId(*job), ": the cluster has no type \"", name,
                  "\"; it has ", Types(cluster));
  }
  return "";
}

std::string WhyNot(const event::ServerForgotten& e,
                   const engine::Agents& agents,
                   const engine::LeaseBook& leases,
                   const engine::JobTable& jobs, const Cluster& cluster,
                   double agent_timeout_s) {
  const Agent* agent = agents.Find(e.server);
  if (agent == nullptr) {
    return StrCat("there is no server \"", e.server,
                  "\"; `gavel nodes` lists them");
  }
  if (agent->reachable) {
    return StrCat("server ", e.server,
                  " is there; end its agent first, or `gavel drain ", e.server,
                  "`; an agent that was killed, or ended while the coordinator "
                  "was down, is given up after ",
                  agent_timeout_s, " s of silence");
  }
  if (const JobId job = JobOn(e.server, leases, jobs, cluster); job.valid()) {
    return StrCat("a process of job ", job.value(), " may still run on server ",
                  e.server,
                  "; start its agent once more, so that it ends the process");
  }
  return "";
}

std::string WhyNot(event::AcceleratorsDrained& e, const Cluster& cluster) {
  const std::string target = e.server;
  std::vector<std::string> found;
  if (!cluster.servers().contains(target)) {
    for (const auto& [server, accelerators] : cluster.servers()) {
      for (const AcceleratorId id : accelerators) {
        const std::string& uuid = cluster.accelerator(id).info.uuid;
        const std::string whole = StrCat(server, "/", uuid);
        if (target != uuid && target != whole) continue;
        found.push_back(whole);
        e.server = server;
        e.uuid = uuid;
      }
    }
    if (found.empty()) {
      return StrCat("there is no server or accelerator \"", target,
                    "\"; `gavel nodes --json` lists them");
    }
    if (found.size() > 1) {
      return StrCat("\"", target, "\" is on several servers; name one of ",
                    absl::StrJoin(found, ", "));
    }
  }
  const std::vector<AcceleratorId> which = AcceleratorsOf(e, cluster);
  const bool any = std::ranges::any_of(
      which, [&](AcceleratorId id) { return cluster.accelerator(id).drained; });
  if (!e.drained && !any) return WhyNotResumed(target, e, cluster);
  if (which.empty()) return StrCat("server ", target, " has no accelerators");
  return "";
}

std::vector<AcceleratorId> AcceleratorsOf(const event::AcceleratorsDrained& e,
                                          const Cluster& cluster) {
  const auto server = cluster.servers().find(e.server);
  if (server == cluster.servers().end()) return {};
  if (e.uuid.empty()) {
    std::vector<AcceleratorId> all = server->second;
    if (!e.drained && e.scoped) {
      std::erase_if(all, [&](AcceleratorId id) {
        return cluster.accelerator(id).drained_alone;
      });
    }
    return all;
  }
  const AcceleratorId id = cluster.Find(e.server, e.uuid);
  return id.valid() ? std::vector{id} : std::vector<AcceleratorId>();
}

}  // namespace gavel

namespace gavel::engine {

static void Leave(State& s, Time now, const event::AcceleratorsDrained& e);
static void CarryOut(State& s, Time now, const event::JobCommanded& e,
                     Job* job);
static void Enqueue(State& s, Time now, Job& job);

std::optional<reason::Drained> WhyDrained(const State& s, const Job& job) {
  std::map<std::string, int> count;  // by type, if none were drained
  // By type and why: servers.
  std::map<std::pair<std::string, std::string>, std::set<std::string>> drained;
  for (const Accelerator& accelerator : s.cluster.accelerators()) {
    if (accelerator.forgotten || s.avoidance.Bars(job.id, accelerator.id)) {
      continue;
    }
    const std::string& type = accelerator.info.type;
    const bool off = accelerator.drained || accelerator.leaving;
    if (accelerator.usable() || off) ++count[type];
    if (off) drained[{type, WhyOff(accelerator)}].insert(accelerator.server);
  }
  std::vector<std::string> texts;
  for (const auto& [type_and_why, servers] : drained) {
    const auto& [type, why] = type_and_why;
    const bool usable = s.throughputs.Get(job.id, type).steps_per_s > 0;
    if (!usable || count[type] < job.spec.LeastWorkers()) continue;
    texts.push_back(
        StrCat(type, " of ", absl::StrJoin(servers, " and "), ": ", why));
  }
  if (texts.empty()) return std::nullopt;
  if (texts.size() > kDrainedMax) {
    const size_t more = texts.size() - kDrainedMax;
    texts.resize(kDrainedMax);
    texts.push_back(StrCat(more, " more, see `gavel nodes`"));
  }
  return reason::Drained{absl::StrJoin(texts, "; ")};
}

void On(State& s, Time, const event::PricesChanged& e) {
  for (const auto& [type, price] : e.prices) s.allocation.SetPrice(type, price);
  s.changes.TouchAll();
  s.agenda.SolveSoon();
}

void Admit(State& s, Time now, const event::JobCommanded& e) {
  const Job* job = s.jobs.Find(e.job);
  const bool is_array = FirstElement(s.jobs.all(), e.job) != nullptr;
  std::string error =
      is_array ? WhyNoElement(s, e)
               : WhyNot(e, job, job != nullptr && IsKeptOut(s, *job));
  if (error.empty()) {
    // The row names those that it changes: a replay looks at no others.
    event::JobCommanded fitting = e;
    if (is_array) fitting.elements = FittingElements(s, e);
    return Record(s, now, std::move(fitting));
  }
  s.outbox.EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Admit(State& s, Time now, event::JobUpdated e) {
  const Job* const job = s.jobs.Find(e.job);
  const bool is_array = FirstElement(s.jobs.all(), e.job) != nullptr;
  std::string error =
      is_array ? ArrayInstead(s.jobs.all(), e.job) : WhyNot(e, job, s.cluster);
  if (error.empty() && NamesParents(e.update)) {
    error = FindNewParents(s, *job, &e);
  }
  if (error.empty()) return Record(s, now, std::move(e));
  s.outbox.EmitNow(action::Reply{e.reply_to, e.job, std::move(error)});
}

void Admit(State& s, Time now, const event::ServerForgotten& e) {
  std::string error = WhyNot(e, s.agents, s.leases, s.jobs, s.cluster,
                             s.options.agent_timeout_s);
  if (error.empty()) return Record(s, now, e);
  s.outbox.EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

void Admit(State& s, Time now, event::AcceleratorsDrained e) {
  e.scoped = true;
  std::string error = WhyNot(e, s.cluster);
  if (error.empty()) return Record(s, now, std::move(e));
  s.outbox.EmitNow(action::Reply{e.reply_to, JobId(), std::move(error)});
}

void On(State& s, Time now, const event::JobCommanded& e) {
  s.outbox.Emit(action::Reply{e.reply_to, e.job, ""});
  for (const JobId id : NamedJobs(s.jobs.all(), e)) {
    if (Job* job = s.jobs.Find(id)) CarryOut(s, now, e, job);
  }
}

void CarryOut(State& s, Time now, const event::JobCommanded& e, Job* job) {
  switch (e.kind) {
    case CommandKind::kRelease:
      if (AwaitAgain(s, now, *job) || HoldUntilDueAgain(s, now, *job)) return;
      ForgetParents(s, *job);
      return Release(s, now, *job);
    case CommandKind::kHold:
      return EndJob(s, now, *job, JobState::kHeld,
                    reason::HeldByUser{e.by, job->id}, PauseTier::kEvict);
    case CommandKind::kRequeue:
      Assign(s, now, *job, {}, JobId(), PauseTier::kEvict);
      // Evict the processes without a lease too. A process that is still
      // starting stays: it starts anew anyway.
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.process != ProcessState::kJoined || worker.leaving) continue;
        Pause(s, now, *job, rank, PauseTier::kEvict);
      }
      s.agenda.FillSoon();
      return;
    case CommandKind::kCheckpoint:
      for (int rank = 0; rank < job->world_size; ++rank) {
        const Worker& worker = job->workers[static_cast<size_t>(rank)];
        if (worker.held_epoch == 0) continue;
        const WorkerKey key{job->id, rank, worker.incarnation};
        s.outbox.Emit(action::SendToWorker{
            key, CheckpointRequest{key, s.outbox.position()}});
      }
      return;
    default:
      EndJob(s, now, *job, JobState::kCancelled, reason::Cancelled{e.by});
  }
}

bool IsKeptOut(const State& s, const Job& job) {
  return s.throughputs.HasExclusions(job.id) ||
         s.accusations.IsKeptOut(job.id) || s.checkpoints.IsStranded(job);
}

void Release(State& s, Time now, Job& job) {
  job.failures_in_a_row = 0;
  job.failed_starts = 0;
  job.hung_launches = 0;
  if (std::holds_alternative<reason::HeldTimeLimit>(job.reason)) {
    job.limited_from_s = job.received_s;
  }
  if (job.array.valid() && !job.active()) return WaitForTurn(s, job);
  EnterQueue(s, now, job);
}

void EnterQueue(State& s, Time now, Job& job) {
  if (job.unqueued) {
    s.isolated.CountChanged(now);
    s.jobs.Release(job);
    job.unqueued = false;
    NameInFull(s.cluster.types(), &job.spec.throughputs);
    return Enqueue(s, now, job);
  }
  // Until now it did not wait for accelerators.
  if (!job.active() && job.received_s == 0) s.apps.NoteQueued(now, job);
  if (s.checkpoints.IsStranded(job)) s.checkpoints.ForgoCheckpoints(job);
  s.throughputs.Readmit(job.id);
  s.accusations.Forgive(job.id);
  std::erase_if(job.profile, [](const ProfiledCell& cell) {
    return !cell.beside.empty() && cell.value == 0;
  });
  s.isolated.CountChanged(now);
  s.jobs.Release(job);
  LearnTypes(s, job);  // servers may have joined while it was held
  BarServers(s, job);
  s.changes.Touch(job);
  if (job.spec.interactive()) s.agenda.SeatSoon();
  s.agenda.SolveSoon();
}

void On(State& s, Time now, const event::JobUpdated& e) {
  Job& job = *s.jobs.Find(e.job);
  s.outbox.Emit(action::Reply{e.reply_to, e.job, ""});
  ApplyUpdate(e.update, &job.spec);
  if (NamesParents(e.update)) SetParents(s, now, job, e.parents);
  if (!job.unqueued) BarTypes(s, job);
  const int least = job.spec.LeastWorkers();
  const int most = job.spec.MostWorkers();
  job.scale_factor = std::clamp(job.scale_factor, least, most);
  s.jobs.NoteElastic(job);
  const int has = static_cast<int>(job.assigned.size());
  if (has > 0 && (has < least || has > most)) Assign(s, now, job, {}, JobId());
  // Its row in the policy's problem may have changed, and its time_limit.
  s.changes.TouchAll();
  s.agenda.Due(now);
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
}

void On(State& s, Time now, const event::AcceleratorsDrained& e) {
  s.outbox.Emit(action::Reply{e.reply_to, JobId(), ""});
  const std::vector<AcceleratorId> which = AcceleratorsOf(e, s.cluster);
  if (e.by_agent) {
    s.cluster.SetLeaving(e.server);
  } else {
    for (const AcceleratorId id : which) {
      s.cluster.SetDrained(id, e.drained, e.why, e.scoped && !e.uuid.empty());
      if (!e.why.empty()) s.cluster.NoteErrors(id, e.errors);
    }
  }
  s.assigned.Recount();
  s.agenda.SolveSoon();
  s.agenda.FillSoon();
  for (const AcceleratorId id : which) s.operated.drains.erase(id);
  if (!e.drained) return;
  if (now >= e.until) return Leave(s, now, e);
  for (const AcceleratorId id : which) s.operated.drains[id] = e.until;
  s.agenda.Due(e.until);
}

// Evicts the processes on these accelerators. Each one ends with a checkpoint,
// and the next plan decides where its job resumes. An opaque job has no
// checkpoint: once it has started it stays to its end, unless the agent itself
// ends.
void Leave(State& s, Time now, const event::AcceleratorsDrained& e) {
  const std::vector<AcceleratorId> ids = AcceleratorsOf(e, s.cluster);
  const auto is_drained = [&](AcceleratorId id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  const auto must_go = [&](const Worker& worker) {
    if (e.uuid.empty()) return worker.server == e.server;
    return is_drained(worker.held) || is_drained(worker.kept_on) ||
           std::ranges::any_of(worker.contexts, is_drained);
  };
  for (auto& [id, job] : s.jobs.live()) {
    if (job->pinned() && job->HoldsAny() && !e.by_agent) continue;
    const std::vector<AcceleratorId> places = job->assigned;
    if (std::ranges::any_of(places, is_drained)) {
      Assign(s, now, *job, {}, JobId(), PauseTier::kEvict);
    }
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      const Worker& worker = job->workers[rank];
      // The rank was about to get its first lease there.
      const bool starts = worker.held_epoch == 0 && rank < places.size() &&
                          is_drained(places[rank]);
      if (!worker.is_live() || worker.leaving) continue;
      if (!starts && !must_go(worker)) continue;
      Pause(s, now, *job, static_cast<int>(rank), PauseTier::kEvict);
    }
  }
}

void SweepDrains(State& s, Time now) {
  std::vector<event::AcceleratorsDrained> due;
  for (const auto& [id, until] : s.operated.drains) {
    if (now < until) {
      s.agenda.Due(until);
      continue;
    }
    const Accelerator& accelerator = s.cluster.accelerator(id);
    due.push_back({accelerator.server, accelerator.info.uuid});
    due.back().until = until;
  }
  for (event::AcceleratorsDrained& drained : due) {
    Record(s, now, std::move(drained));
  }
}

void On(State& s, Time, const event::ServerForgotten& e) {
  s.outbox.Emit(action::Reply{e.reply_to, JobId(), ""});
  for (const AcceleratorId id : AcceleratorsOf({e.server}, s.cluster)) {
    s.operated.drains.erase(id);
    s.accusations.Forget(id);
  }
  s.agents.Forget(e.server);
  s.cluster.Forget(e.server);
  s.assigned.Recount();
  s.agenda.SolveSoon();
}

void On(State& s, Time, const event::PolicyChanged& e) {
  s.outbox.Emit(action::Reply{e.reply_to, JobId(), ""});
  DecidingPolicy& policy = s.operated.policy;
  policy = {e.policy, e.instead_of, e.packing, e.progress,
            policy.introspection};
  s.terms.SetPolicy(e.packing, e.progress);
  if (e.introspection.has_value()) {
    policy.introspection =
        e.introspection_is_own ? std::nullopt : e.introspection;
    s.terms.SetIntrospection(*e.introspection);
    if (!*e.introspection) s.introspection.ForgetTrials();
  }
  // The solve in progress is for the previous policy. Running jobs continue
  // until the new policy's allocation is in force.
  Abandon(s, /*answer=*/true);
  Drop(s);
  s.changes.TouchAll();
  s.agenda.SolveSoon();
}

void TakePolicyOf(State& s, const event::CoordinatorStarted& e) {
  DecidingPolicy& policy = s.operated.policy;
  if (e.settings.told && policy.introspection == e.settings.introspection) {
    policy.introspection.reset();
  }
  if (policy.introspection.has_value()) {
    s.terms.SetIntrospection(*policy.introspection);
  }
  if (policy.instead_of.empty() || policy.name != e.policy) {
    policy = {e.policy, "", false, true, policy.introspection};
    return;
  }
  s.terms.SetPolicy(policy.packing, policy.progress);
}

}  // namespace gavel::engine

namespace gavel::engine {
namespace {

// By type. Accelerators that opaque jobs hold become free again, so they count.
std::vector<int> CountStartable(const Cluster& cluster) {
  std::vector<int> counts(cluster.types().size());
  for (const Accelerator& accelerator : cluster.accelerators()) {
    if (accelerator.forgotten || !accelerator.may_start()) continue;
    ++counts[static_cast<size_t>(cluster.TypeOf(accelerator.id))];
  }
  return counts;
}

std::string CountsText(const Cluster& cluster, std::span<const int> counts) {
  std::vector<std::string> parts;
  for (size_t type = 0; type < counts.size(); ++type) {
    if (!cluster.HasType(type)) continue;
    parts.push_back(StrCat(counts[type], " ", cluster.types()[type]));
  }
  return absl::StrJoin(parts, ", ");
}

// Why the job fits on no type of the cluster; empty: it fits, or nothing is
// known yet, as no server has joined.
std::string WhyTooLarge(const Cluster& cluster, const JobSpec& spec) {
  const auto fits = [&](std::span<const int> counts) {
    return std::ranges::any_of(
        counts, [&](int count) { return count >= spec.LeastWorkers(); });
  };
  // Capacity() is at most what can be started, and is known without a look at
  // each accelerator.
  if (fits(cluster.Capacity())) return "";
  const std::vector<int> counts = CountStartable(cluster);
  const bool any = std::ranges::any_of(counts, std::identity());
  if (!any || fits(counts)) return "";
  return StrCat("job \"", spec.name, "\": scale factor ", spec.LeastWorkers(),
                " fits on no accelerator type of the cluster (",
                CountsText(cluster, counts), "); lower it or add accelerators");
}

}  // namespace

// Why a job with this name and checkpoint directory can't be; empty: it can.
static std::string WhyTaken(const JobTable& jobs, const JobSpec& spec) {
  if (const JobId taken = jobs.Named(spec); taken.valid()) {
    return StrCat(
        "job \"", spec.name, "\": the name is taken by job ",
        ShownId(jobs.at(taken)),
        ", which has not ended; choose another name or cancel that one");
  }
  // Each would resume from what the other saved.
  if (const JobId other = jobs.SavingIn(spec); other.valid()) {
    return StrCat(
        "job \"", spec.name, "\": its checkpoint_directory ",
        spec.checkpoint_directory, " is that of job ", ShownId(jobs.at(other)),
        " (\"", jobs.at(other).spec.name,
        "\"), which has not ended; give it one of its own or cancel that one");
  }
  return "";
}

absl::StatusOr<std::vector<Parent>> FindParentsIfAdmitted(const State& s,
                                                          const JobSpec& spec) {
  const auto refuse = [](const std::string& why) {
    return absl::InvalidArgumentError(why);
  };
  std::string taken = WhyTaken(s.jobs, spec);
  for (const int index : IndicesOf(spec)) {
    if (!taken.empty()) break;
    taken = WhyTaken(s.jobs, ElementIdentity(spec, index));
  }
  if (!taken.empty()) return refuse(taken);
  const std::string no_entity = WhyNoEntity(s.options.entities, spec.entity);
  if (!no_entity.empty()) {
    return refuse(StrCat("job \"", spec.name, "\": ", no_entity));
  }
  std::string why = WhyTooLarge(s.cluster, spec);
  if (!why.empty()) return refuse(why);
  absl::StatusOr<std::vector<Parent>> parents = FindParents(s, spec);
  if (!parents.ok()) {
    return refuse(
        StrCat("job \"", spec.name, "\": ", ToStd(parents.status().message())));
  }
  why = WhyNotInteractive(s, spec);
  if (!why.empty()) return refuse(why);
  return parents;
}

void Admit(State& s, Time now, event::JobSubmitted e) {
  absl::StatusOr<std::vector<Parent>> parents =
      FindParentsIfAdmitted(s, e.spec);
  if (!parents.ok()) {
    // It may tell of a job whose row is not yet on disk.
    s.outbox.Emit(action::Reply{e.reply_to, JobId(),
                                std::string(parents.status().message())});
    return s.outbox.Flush();
  }
  e.parents = *std::move(parents);
  FillThroughputs(s, e.spec);
  Record(s, now, std::move(e));
}

void On(State& s, Time now, const event::JobSubmitted& e) {
  if (!IndicesOf(e.spec).empty()) return SubmitArray(s, now, e);
  if (e.element.has_value()) return SubmitElement(s, now, e);
  s.isolated.CountChanged(now);
  Job& job = s.jobs.Add(now, e.spec);
  job.submitted_wall_s = now + s.options.wall_offset_s;
  job.profile = e.profile;
  Enqueue(s, now, job);
  s.outbox.Emit(action::Reply{e.reply_to, job.id, ""});
  s.ledger.TakeReceived(job.id, e.received);
  SetParents(s, now, job, e.parents);
  if (job.active()) HoldUntilDue(s, now, job);
}

// Makes a job that was added known to the parts that schedule it.
void Enqueue(State& s, Time now, Job& job) {
  s.apps.Add(now, job);
  s.throughputs.AddJob(job.id, job.spec.throughputs, job.spec.scale_factor);
  BarTypes(s, job);
  BarServers(s, job);
  FindTableRow(s, job);
  if (s.options.reset_interval_s > 0) s.agenda.FillSoon();
  if (job.spec.interactive()) s.agenda.SeatSoon();
  s.changes.Touch(job);
  s.agenda.SolveSoon();
}

}  // namespace gavel::engine
