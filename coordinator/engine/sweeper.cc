#include "coordinator/engine/sweeper.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/civil_time.h"
#include "coordinator/engine/apps.h"
#include "coordinator/engine/interactive.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/workers.h"

namespace gavel::engine {
namespace {

// The shortest time before a worker is checked for a standstill again. Its last
// report may be so old that it does not show one yet.
constexpr double kLookAgain_s = 5;

// StopWorker and LaunchWorker are repeated this often until answered.
constexpr double kRepeatInterval_s = 5;

// The time that a release has to arrive, after its lease has run out by every
// clock.
constexpr double kReleaseMargin_s = 1;

}  // namespace

// Ends the process of a worker that stands still, which counts as a failure of
// the job; meanwhile the lease is not renewed. A worker that was asked to pause
// is left alone, as the pause has a grace of its own.
static void SweepHung(State& s, Time now, const Job& job, int rank,
                      Worker& worker);
static void SweepAgents(State& s, Time now);
static void SweepQuarantine(State& s, Time now);
static void SweepStrangers(State& s, Time now);
static void SweepWorker(State& s, Time now, Job& job, int rank);
static void SweepOpaque(State& s, Time now, Job& job, int rank, Worker& worker);
static bool SweepUnswept(State& s, Time now, Worker& worker,
                         const WorkerKey& key);
static void SweepGang(State& s, Time now, const Job& job, Worker& worker);
static void RepeatLaunch(State& s, Time now, Job& job, int rank);
static void SweepLease(State& s, Time now, const Job& job, int rank,
                       Worker& worker);
static void Stop(State& s, Time now, Worker& worker, const WorkerKey& key,
                 double grace_s);

void SweepHung(State& s, Time now, const Job& job, int rank, Worker& worker) {
  if (worker.held_epoch == 0 || worker.pause_sent_at != kNever) return;
  const double allowed_s = HangTimeout(s, job, worker);
  if (allowed_s == kNever) return;
  if (StandsStill(worker) < allowed_s && worker.hung_s == 0) {
    return s.agenda.Due(
        std::max(worker.stepped_at + allowed_s, now + kLookAgain_s));
  }
  worker.hung_s = std::max(worker.hung_s, StandsStill(worker));
  Stop(s, now, worker, {job.id, rank, worker.incarnation},
       s.options.stop_grace_s);
}

void Sweep(State& s, Time now) {
  s.agenda.BeginSweep();
  SweepAgents(s, now);
  SweepDrains(s, now);
  SweepQuarantine(s, now);
  SweepStrangers(s, now);
  SweepTrials(s, now);
  SweepTimes(s, now);
  SweepApps(s, now);
  for (auto& [id, job] : s.jobs.live()) {
    for (int rank = 0; rank < static_cast<int>(job->workers.size()); ++rank) {
      SweepWorker(s, now, *job, rank);
    }
  }
}

void SweepAgents(State& s, Time now) {
  std::vector<std::string> silent;
  std::vector<std::string> gone;
  for (const auto& [name, agent] : s.agents.all()) {
    const Time timeout =
        agent.heard_at + (agent.reachable ? s.options.agent_timeout_s
                                          : s.options.forget_after_s);
    if (now < timeout) {
      s.agenda.Due(timeout);
    } else if (agent.reachable) {
      silent.push_back(name);
    } else if (WhyNot(event::ServerForgotten{name}, s.agents, s.leases, s.jobs,
                      s.cluster, s.options.agent_timeout_s)
                   .empty()) {
      gone.push_back(name);
    }
  }
  for (const std::string& name : silent) {
    Record(s, now, event::ServerLost{name});
  }
  for (const std::string& name : gone) {
    Record(s, now, event::ServerForgotten{name});
  }
}

// Stops quarantined processes on servers whose agent has come back. Their exit
// frees the accelerator.
void SweepQuarantine(State& s, Time now) {
  for (const auto& [accelerator, holder] : s.leases.quarantined()) {
    const std::string& server = s.cluster.accelerator(accelerator).server;
    const Agent* agent = s.agents.Find(server);
    if (agent == nullptr || !agent->reachable) continue;
    if (now < agent->swept_at) {
      s.agenda.Due(agent->swept_at);
      continue;
    }
    s.outbox.EmitNow(action::SendToAgent{
        server, StopWorker{server, holder, s.outbox.durable_position(), 0}});
    s.agenda.Due(now + kRepeatInterval_s);
  }
}

// Repeats the stop of processes that nobody wants: the first one may be lost,
// and their agent does not say hello again.
void SweepStrangers(State& s, Time now) {
  for (const auto& [worker, server] : s.agents.strangers()) {
    s.outbox.EmitNow(action::SendToAgent{
        server, StopWorker{server, worker, s.outbox.durable_position(), 0}});
    s.agenda.Due(now + kRepeatInterval_s);
  }
}

void SweepWorker(State& s, Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.process != ProcessState::kLaunching &&
      worker.process != ProcessState::kJoined) {
    return;
  }
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (worker.unswept && SweepUnswept(s, now, worker, key)) return;
  if (job.spec.opaque()) return SweepOpaque(s, now, job, rank, worker);
  const double start_s = StartTimeout(job, s.options);
  if (worker.process == ProcessState::kLaunching) {
    const Time timeout = OverdueAt(worker.launch_sent_at, start_s, worker);
    if (now >= timeout) {
      Stop(s, now, worker, key, s.options.stop_grace_s);
    } else {
      RepeatLaunch(s, now, job, rank);
      s.agenda.Due(timeout);
    }
  }
  if (worker.pause_sent_at != kNever) {
    const Time timeout =
        OverdueAt(worker.pause_sent_at, PauseGrace(job, s.options), worker);
    if (now >= timeout) {
      Stop(s, now, worker, key, s.options.stop_grace_s);
    } else {
      s.agenda.Due(timeout);
    }
  }
  // A paused worker asks for a lease every few seconds, and a worker whose loop
  // is over exits. A process that does neither is stuck.
  if (worker.process == ProcessState::kJoined && worker.held_epoch == 0) {
    const Time timeout = OverdueAt(worker.asked_at, start_s, worker);
    if (now >= timeout) {
      Stop(s, now, worker, key, s.options.stop_grace_s);
    } else {
      s.agenda.Due(timeout);
    }
  }
  if (rank == 0 && job.is_gang()) SweepGang(s, now, job, worker);
  SweepHung(s, now, job, rank, worker);
  SweepLease(s, now, job, rank, worker);
}

// An opaque process holds its lease from its launch to its end, and sends no
// messages.
void SweepOpaque(State& s, Time now, Job& job, int rank, Worker& worker) {
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (worker.held_epoch == 0 && rank == 0 && s.leases.CanLaunch(job)) {
    for (size_t each = 0; each < job.assigned.size(); ++each) {
      const WorkerKey begins{job.id, static_cast<int>(each),
                             job.workers[each].incarnation};
      Record(s, now,
             event::LeaseStarted{begins, job.epoch, job.assigned[each]});
    }
    s.agenda.Due(now);  // for its time limit
    return s.outbox.Flush();
  }
  const Time stops = worker.leaving ? worker.pause_sent_at
                     : worker.held_epoch != 0 && job.spec.time_limit_s
                         ? worker.leased_at + *job.spec.time_limit_s
                         : kNever;
  if (now >= stops) {
    Stop(s, now, worker, key, PauseGrace(job, s.options));
  } else {
    s.agenda.Due(stops);
    if (worker.launch_sent_at != kNever) RepeatLaunch(s, now, job, rank);
  }
  SweepLease(s, now, job, rank, worker);
}

// The agent does not know this process, and will say so when asked to stop it.
// It is asked only after the process must have ended by itself, with its lease.
// True: that time has not come yet.
bool SweepUnswept(State& s, Time now, Worker& worker, const WorkerKey& key) {
  if (const Time swept_at = s.agents.SweptAt(worker.server);
      worker.held_epoch != 0 && now < swept_at) {
    s.agenda.Due(swept_at);
    return true;
  }
  Stop(s, now, worker, key, 0);
  return false;
}

// A rank 0 that trains nowhere and opens no store keeps the whole gang's
// accelerators for nothing. It is stuck before its first step, so nothing is
// lost when it is killed at once.
void SweepGang(State& s, Time now, const Job& job, Worker& worker) {
  const bool opening =
      worker.held_epoch == job.epoch && job.gang_epoch != job.epoch;
  if (!opening) return;
  const Time timeout = std::max(worker.leased_at, s.outbox.term_began_at()) +
                       s.options.gang_timeout_s;
  if (now < timeout) return s.agenda.Due(timeout);
  Stop(s, now, worker, {job.id, 0, worker.incarnation}, 0);
}

void RepeatLaunch(State& s, Time now, Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.spoke || worker.leaving) return;
  const Time next = worker.launch_repeated_at == kNever
                        ? worker.launch_sent_at  // not sent yet
                        : worker.launch_repeated_at + kRepeatInterval_s;
  if (now < next) return s.agenda.Due(next);
  // Like a first launch, this one waits for the rows that are not on disk yet.
  SendLaunch(s, now, job, rank);
  s.outbox.Flush();
  s.agenda.Due(now + kRepeatInterval_s);
}

// Handles a lease that ran out unrenewed: its worker is dead, cut off, or
// stuck. If the agent can be reached, it ends the process and confirms that. If
// not, the job may continue elsewhere, and the accelerator is quarantined.
void SweepLease(State& s, Time now, const Job& job, int rank, Worker& worker) {
  const WorkerKey key{job.id, rank, worker.incarnation};
  const bool reachable = s.agents.IsReachable(worker.server);
  const bool holding = worker.held_epoch != 0;
  const Time over = worker.lease_expires + kReleaseMargin_s;
  if (!reachable) {
    if (holding && now < over) return s.agenda.Due(over);
    return Record(s, now, event::WorkerAbandoned{key});
  }
  if (!holding) return;
  const bool wanted = MustGo(job, rank);
  const Time timeout = wanted ? over : over + s.options.pause_grace_s;
  if (now < timeout) return s.agenda.Due(timeout);
  Stop(s, now, worker, key, s.options.stop_grace_s);
}

void Stop(State& s, Time now, Worker& worker, const WorkerKey& key,
          double grace_s) {
  if (worker.stop_sent_at == kNever ||
      now >= worker.stop_sent_at + kRepeatInterval_s) {
    worker.stop_sent_at = now;
    s.outbox.EmitNow(action::SendToAgent{
        worker.server,
        StopWorker{worker.server, key, s.outbox.durable_position(), grace_s}});
  }
  s.agenda.Due(worker.stop_sent_at + kRepeatInterval_s);
}

// ---- the times of job files

std::string UtcText(double wall_s) {
  constexpr double kEndOfYear9999_s = 253402300799;
  const absl::CivilSecond epoch(1970);
  const double shown_s = std::clamp(wall_s, 0.0, kEndOfYear9999_s);
  return absl::FormatCivilTime(epoch + static_cast<int64_t>(shown_s)) + "Z";
}

Time NotBefore(const Job& job, double wall_offset_s) {
  const bool has_wall = job.submitted_wall_s > 0 && wall_offset_s > 0;
  const Time submitted_at =
      has_wall ? job.submitted_wall_s - wall_offset_s : job.submitted_at;
  return submitted_at + job.spec.not_before_s.value_or(0);
}

namespace {

// So that rounding brings no deadline that has passed already.
constexpr double kLater_s = 1e-3;

Time DueAt(const State& s, const Job& job) {
  return NotBefore(job, s.options.wall_offset_s);
}

// All elements of an array are due at once.
JobId AheadId(const Job& job) { return job.array.valid() ? job.array : job.id; }

// The time that the job may still run. The lease of an opaque job limits it
// instead (SweepOpaque).
double SecondsLeft(const State& s, const Job& job, Time now) {
  if (!job.active() || job.spec.opaque() || !job.spec.time_limit_s) {
    return kNever;
  }
  return *job.spec.time_limit_s -
         (s.ledger.SecondsReceived(job, now) - job.limited_from_s);
}

}  // namespace

bool IsAhead(const Job& job) {
  return job.state == JobState::kHeld &&
         std::holds_alternative<reason::NotBefore>(job.reason);
}

static reason::NotBefore NoteAhead(State& s, const Job& job) {
  const Time due = DueAt(s, job);
  s.ahead.insert({due, AheadId(job)});
  s.agenda.Due(due);
  return {UtcText(due + s.options.wall_offset_s), job.id};
}

void HoldUntilDue(State& s, Time now, Job& job) {
  if (!job.spec.not_before_s) return;
  if (DueAt(s, job) <= now) return;
  EndJob(s, now, job, JobState::kHeld, NoteAhead(s, job));
}

bool HoldElementUntilDue(State& s, Job& job) {
  if (!job.spec.not_before_s) return false;
  job.reason = NoteAhead(s, job);
  return true;
}

bool HoldUntilDueAgain(State& s, Time now, Job& job) {
  const bool has_begun = job.active() || job.received_s > 0 || job.AnyLive();
  if (!job.spec.not_before_s || WaitsByItself(job) || has_begun ||
      DueAt(s, job) <= now) {
    return false;
  }
  job.reason = NoteAhead(s, job);
  return true;
}

void RebuildTimes(State& s) {
  s.ahead.clear();
  for (const auto& [id, job] : s.jobs.all()) {
    if (IsAhead(job)) s.ahead.insert({DueAt(s, job), AheadId(job)});
  }
}

static void SweepIdle(State& s, Time now) {
  std::vector<JobId> idle;
  for (const auto& [id, job] : s.jobs.interactive()) {
    if (IsIdleTooLong(s, now, *job)) {
      idle.push_back(id);
    } else if (const Time due = IdleDue(*job); due != kNever) {
      s.agenda.Due(std::max(due, now + kLater_s));
    }
  }
  for (const JobId id : idle) Record(s, now, event::TimeReached{id, true});
}

void SweepTimes(State& s, Time now) {
  std::vector<JobId> reached;
  while (!s.ahead.empty() && s.ahead.begin()->first <= now) {
    const JobId id = s.ahead.begin()->second;
    s.ahead.erase(s.ahead.begin());
    const Job* const job = s.jobs.Find(id);
    // It may have been released or cancelled.
    const bool waits =
        job != nullptr
            ? IsAhead(*job)
            : std::ranges::any_of(ElementsOf(s.jobs.all(), id), [&](JobId one) {
                return IsAhead(s.jobs.at(one));
              });
    if (waits) reached.push_back(id);
  }
  if (!s.ahead.empty()) s.agenda.Due(s.ahead.begin()->first);
  for (const auto& [id, job] : s.jobs.live()) {
    const double left_s = SecondsLeft(s, *job, now);
    if (left_s <= 0) {
      reached.push_back(id);
    } else if (left_s != kNever && job->HoldsAny()) {
      s.agenda.Due(now + std::max(left_s, kLater_s));
    }
  }
  for (const JobId id : reached) Record(s, now, event::TimeReached{id});
  SweepIdle(s, now);
}

void On(State& s, Time now, const event::TimeReached& e) {
  Job* const job = s.jobs.Find(e.job);
  if (job == nullptr) {
    for (const JobId id : ElementsOf(s.jobs.all(), e.job)) {
      Job& element = s.jobs.at(id);
      if (IsAhead(element)) Release(s, now, element);
    }
    return;
  }
  if (IsAhead(*job)) return Release(s, now, *job);
  if (WaitsForArray(*job)) {
    s.arrays.NoteQueued(*job);
    return EnterQueue(s, now, *job);
  }
  if (!job->active()) return;
  if (e.idle) {
    return EndJob(s, now, *job, JobState::kCancelled,
                  reason::EndedIdle{job->id, job->spec.IdleLimit()});
  }
  EndJob(s, now, *job, JobState::kHeld,
         reason::HeldTimeLimit{job->id, job->spec.time_limit_s.value_or(0)},
         PauseTier::kEvict);
}

}  // namespace gavel::engine
