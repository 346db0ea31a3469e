#include "coordinator/engine/sweeper.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/operators.h"

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
void Sweeper::SweepHung(Time now, const Job& job, int rank, Worker& worker) {
  if (worker.held_epoch == 0 || worker.pause_sent_at != kNever) return;
  const double allowed_s = hang_.HangTimeout(job, worker);
  if (allowed_s == kNever) return;
  if (HangWatch::StandsStill(worker) < allowed_s && worker.hung_s == 0) {
    return agenda_.Due(
        std::max(worker.stepped_at + allowed_s, now + kLookAgain_s));
  }
  worker.hung_s = std::max(worker.hung_s, HangWatch::StandsStill(worker));
  Stop(now, worker, {job.id, rank, worker.incarnation}, options_.stop_grace_s);
}

void Sweeper::Sweep(Time now) {
  agenda_.BeginSweep();
  SweepAgents(now);
  operators_.SweepDrains(now);
  SweepQuarantine(now);
  SweepStrangers(now);
  for (auto& [id, job] : jobs_.live()) {
    for (int rank = 0; rank < static_cast<int>(job->workers.size()); ++rank) {
      SweepWorker(now, *job, rank);
    }
  }
}

void Sweeper::SweepAgents(Time now) {
  std::vector<std::string> silent;
  std::vector<std::string> gone;
  for (const auto& [name, agent] : agents_.all()) {
    const Time timeout =
        agent.heard_at +
        (agent.reachable ? options_.agent_timeout_s : options_.forget_after_s);
    if (now < timeout) {
      agenda_.Due(timeout);
    } else if (agent.reachable) {
      silent.push_back(name);
    } else if (WhyNot(event::ServerForgotten{name}, agents_, leases_, jobs_,
                      cluster_, options_.agent_timeout_s)
                   .empty()) {
      gone.push_back(name);
    }
  }
  for (const std::string& name : silent) {
    recorder_.Record(now, event::ServerLost{name});
  }
  for (const std::string& name : gone) {
    recorder_.Record(now, event::ServerForgotten{name});
  }
}

// Stops quarantined processes on servers whose agent has come back. Their exit
// frees the accelerator.
void Sweeper::SweepQuarantine(Time now) {
  for (const auto& [accelerator, holder] : leases_.quarantined()) {
    const std::string& server = cluster_.accelerator(accelerator).server;
    const Agent* agent = agents_.Find(server);
    if (agent == nullptr || !agent->reachable) continue;
    if (now < agent->swept_at) {
      agenda_.Due(agent->swept_at);
      continue;
    }
    outbox_.EmitNow(action::SendToAgent{
        server, StopWorker{server, holder, outbox_.durable_position(), 0}});
    agenda_.Due(now + kRepeatInterval_s);
  }
}

// Repeats the stop of processes that nobody wants: the first one may be lost,
// and their agent does not say hello again.
void Sweeper::SweepStrangers(Time now) {
  for (const auto& [worker, server] : agents_.strangers()) {
    outbox_.EmitNow(action::SendToAgent{
        server, StopWorker{server, worker, outbox_.durable_position(), 0}});
    agenda_.Due(now + kRepeatInterval_s);
  }
}

void Sweeper::SweepWorker(Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.process != ProcessState::kLaunching &&
      worker.process != ProcessState::kJoined) {
    return;
  }
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (worker.unswept && SweepUnswept(now, worker, key)) return;
  if (job.spec.opaque()) return SweepOpaque(now, job, rank, worker);
  const double start_s = StartTimeout(job, options_);
  if (worker.process == ProcessState::kLaunching) {
    const Time timeout = OverdueAt(worker.launch_sent_at, start_s, worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      RepeatLaunch(now, job, rank);
      agenda_.Due(timeout);
    }
  }
  if (worker.pause_sent_at != kNever) {
    const Time timeout =
        OverdueAt(worker.pause_sent_at, PauseGrace(job, options_), worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      agenda_.Due(timeout);
    }
  }
  // A paused worker asks for a lease every few seconds, and a worker whose loop
  // is over exits. A process that does neither is stuck.
  if (worker.process == ProcessState::kJoined && worker.held_epoch == 0) {
    const Time timeout = OverdueAt(worker.asked_at, start_s, worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      agenda_.Due(timeout);
    }
  }
  if (rank == 0 && job.is_gang()) SweepGang(now, job, worker);
  SweepHung(now, job, rank, worker);
  SweepLease(now, job, rank, worker);
}

// An opaque process holds its lease from its launch to its end, and sends no
// messages.
void Sweeper::SweepOpaque(Time now, Job& job, int rank, Worker& worker) {
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (worker.held_epoch == 0 && rank == 0 && leases_.CanLaunch(job)) {
    for (size_t each = 0; each < job.assigned.size(); ++each) {
      const WorkerKey begins{job.id, static_cast<int>(each),
                             job.workers[each].incarnation};
      recorder_.Record(
          now, event::LeaseStarted{begins, job.epoch, job.assigned[each]});
    }
    agenda_.Due(now);  // for its time limit
    return outbox_.Flush();
  }
  const Time stops = worker.leaving ? worker.pause_sent_at
                     : worker.held_epoch != 0 && job.spec.time_limit_s
                         ? worker.leased_at + *job.spec.time_limit_s
                         : kNever;
  if (now >= stops) {
    Stop(now, worker, key, PauseGrace(job, options_));
  } else {
    agenda_.Due(stops);
    if (worker.launch_sent_at != kNever) RepeatLaunch(now, job, rank);
  }
  SweepLease(now, job, rank, worker);
}

// The agent does not know this process, and will say so when asked to stop it.
// It is asked only after the process must have ended by itself, with its lease.
// True: that time has not come yet.
bool Sweeper::SweepUnswept(Time now, Worker& worker, const WorkerKey& key) {
  if (const Time swept_at = agents_.SweptAt(worker.server);
      worker.held_epoch != 0 && now < swept_at) {
    agenda_.Due(swept_at);
    return true;
  }
  Stop(now, worker, key, 0);
  return false;
}

// A rank 0 that trains nowhere and opens no store keeps the whole gang's
// accelerators for nothing. It is stuck before its first step, so nothing is
// lost when it is killed at once.
void Sweeper::SweepGang(Time now, const Job& job, Worker& worker) {
  const bool opening =
      worker.held_epoch == job.epoch && job.gang_epoch != job.epoch;
  if (!opening) return;
  const Time timeout = std::max(worker.leased_at, outbox_.term_began_at()) +
                       options_.gang_timeout_s;
  if (now < timeout) return agenda_.Due(timeout);
  Stop(now, worker, {job.id, 0, worker.incarnation}, 0);
}

void Sweeper::RepeatLaunch(Time now, Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.spoke || worker.leaving) return;
  const Time next = worker.launch_repeated_at == kNever
                        ? worker.launch_sent_at  // not sent yet
                        : worker.launch_repeated_at + kRepeatInterval_s;
  if (now < next) return agenda_.Due(next);
  // Like a first launch, this one waits for the rows that are not on disk yet.
  processes_.SendLaunch(now, job, rank);
  outbox_.Flush();
  agenda_.Due(now + kRepeatInterval_s);
}

// Handles a lease that ran out unrenewed: its worker is dead, cut off, or
// stuck. If the agent can be reached, it ends the process and confirms that. If
// not, the job may continue elsewhere, and the accelerator is quarantined.
void Sweeper::SweepLease(Time now, const Job& job, int rank, Worker& worker) {
  const WorkerKey key{job.id, rank, worker.incarnation};
  const bool reachable = agents_.IsReachable(worker.server);
  const bool holding = worker.held_epoch != 0;
  const Time over = worker.lease_expires + kReleaseMargin_s;
  if (!reachable) {
    if (holding && now < over) return agenda_.Due(over);
    return recorder_.Record(now, event::WorkerAbandoned{key});
  }
  if (!holding) return;
  const bool wanted = MustGo(job, rank);
  const Time timeout = wanted ? over : over + options_.pause_grace_s;
  if (now < timeout) return agenda_.Due(timeout);
  Stop(now, worker, key, options_.stop_grace_s);
}

void Sweeper::Stop(Time now, Worker& worker, const WorkerKey& key,
                   double grace_s) {
  if (worker.stop_sent_at == kNever ||
      now >= worker.stop_sent_at + kRepeatInterval_s) {
    worker.stop_sent_at = now;
    outbox_.EmitNow(action::SendToAgent{
        worker.server,
        StopWorker{worker.server, key, outbox_.durable_position(), grace_s}});
  }
  agenda_.Due(worker.stop_sent_at + kRepeatInterval_s);
}

}  // namespace gavel::engine
