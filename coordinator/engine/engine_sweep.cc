// Deadlines: rounds that begin, agents and workers that are overdue.
#include <algorithm>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/worker_limits.h"
#include "core/rules.h"

namespace gavel {
namespace {

// StopWorker and LaunchWorker are repeated this often until answered.
constexpr double kRepeatInterval_s = 5;
// After a lease has run out by every clock: time for the release to arrive.
constexpr double kReleaseMargin_s = 1;

}  // namespace

void Engine::Admit(Time now, const event::Tick&) {
  if (round_ends_at_ != kNever && !planned_ &&
      now >= round_ends_at_ - PlanLead()) {
    // What is chosen for one lease is chosen anew; the plan is remade when the
    // answer is there.
    if (result_.each_round) unsolved_ = true;
    PlanRoundAhead(now);
  }
  if (round_ends_at_ != kNever && planned_ && now >= round_ends_at_) {
    Record(now, event::RoundStarted{ChooseTiers(now)});
    if (throughputs_moved_) unsolved_ = true;
    throughputs_moved_ = false;
  }
  if (now >= solve_retry_at_) {
    solve_retry_at_ = kNever;
    unsolved_ = true;
  }
  if (now >= next_sweep_) Sweep(now);
}

void Engine::Sweep(Time now) {
  next_sweep_ = kNever;
  SweepAgents(now);
  SweepDrains(now);
  SweepQuarantine(now);
  SweepStrangers(now);
  for (auto& [id, job] : live_) {
    for (int rank = 0; rank < static_cast<int>(job->workers.size()); ++rank) {
      SweepWorker(now, *job, rank);
    }
  }
}

void Engine::SweepAgents(Time now) {
  std::vector<std::string> silent;
  std::vector<std::string> gone;
  for (const auto& [name, agent] : agents_) {
    const Time timeout =
        agent.heard_at +
        (agent.reachable ? options_.agent_timeout_s : options_.forget_after_s);
    if (now < timeout) {
      Due(timeout);
    } else if (agent.reachable) {
      silent.push_back(name);
    } else if (WhyNot(event::ServerForgotten{name}, *this).empty()) {
      gone.push_back(name);
    }
  }
  for (const std::string& name : silent) {
    Record(now, event::ServerLost{name});
  }
  for (const std::string& name : gone) {
    Record(now, event::ServerForgotten{name});
  }
}

// What an agent that came back still runs of before; its exit frees the
// accelerator.
void Engine::SweepQuarantine(Time now) {
  for (const auto& [accelerator, holder] : quarantined_) {
    const std::string& server = cluster_.accelerator(accelerator).server;
    const auto agent = agents_.find(server);
    if (agent == agents_.end() || !agent->second.reachable) continue;
    if (now < agent->second.swept_at) {
      Due(agent->second.swept_at);
      continue;
    }
    EmitNow(action::SendToAgent{
        server, StopWorker{server, holder, {term_, persisted_}, 0}});
    Due(now + kRepeatInterval_s);
  }
}

// Their first stop may be lost, and their agent says no hello again.
void Engine::SweepStrangers(Time now) {
  for (const auto& [worker, server] : strangers_) {
    EmitNow(action::SendToAgent{
        server, StopWorker{server, worker, {term_, persisted_}, 0}});
    Due(now + kRepeatInterval_s);
  }
}

void Engine::SweepWorker(Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.process != ProcessState::kLaunching &&
      worker.process != ProcessState::kJoined) {
    return;
  }
  const WorkerKey key{job.id, rank, worker.incarnation};
  if (worker.unswept && SweepUnswept(now, worker, key)) return;
  const double start_s = StartTimeout(job, options_);
  if (worker.process == ProcessState::kLaunching) {
    const Time timeout = OverdueAt(worker.launch_sent_at, start_s, worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      RepeatLaunch(now, job, rank);
      Due(timeout);
    }
  }
  if (worker.pause_sent_at != kNever) {
    const Time timeout =
        OverdueAt(worker.pause_sent_at, PauseGrace(job, options_), worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      Due(timeout);
    }
  }
  // A paused worker asks every few seconds, one whose loop is over exits: a
  // process that does neither is stuck.
  if (worker.process == ProcessState::kJoined && worker.held_epoch == 0) {
    const Time timeout = OverdueAt(worker.asked_at, start_s, worker);
    if (now >= timeout) {
      Stop(now, worker, key, options_.stop_grace_s);
    } else {
      Due(timeout);
    }
  }
  if (rank == 0 && job.is_gang()) SweepGang(now, job, worker);
  SweepHung(now, job, rank, worker);
  SweepLease(now, job, rank, worker);
}

// When the leases are over of whoever ran on that server under another state
// directory of its agent, and the steps that they may have been in.
Time Engine::SweptAt(const std::string& server) const {
  const auto agent = agents_.find(server);
  return agent == agents_.end() ? 0 : agent->second.swept_at;
}

// Its agent knows nothing of it and answers so, which is only asked for once
// the process has stopped by itself. True: it is not yet that time.
bool Engine::SweepUnswept(Time now, Worker& worker, const WorkerKey& key) {
  if (const Time swept_at = SweptAt(worker.server);
      worker.held_epoch != 0 && now < swept_at) {
    Due(swept_at);
    return true;
  }
  Stop(now, worker, key, 0);
  return false;
}

// A rank 0 that trains nowhere and opens no store keeps the whole gang's
// accelerators for nothing. It is stuck before its first step, so nothing is
// lost when it is killed at once.
void Engine::SweepGang(Time now, const Job& job, Worker& worker) {
  const bool opening =
      worker.held_epoch == job.epoch && job.gang_epoch != job.epoch;
  if (!opening) return;
  const Time timeout =
      std::max(worker.leased_at, term_began_at_) + options_.gang_timeout_s;
  if (now < timeout) return Due(timeout);
  Stop(now, worker, {job.id, 0, worker.incarnation}, 0);
}

void Engine::RepeatLaunch(Time now, Job& job, int rank) {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (worker.spoke) return;
  const Time next = worker.launch_repeated_at == kNever
                        ? worker.launch_sent_at  // not sent yet
                        : worker.launch_repeated_at + kRepeatInterval_s;
  if (now < next) return Due(next);
  // Behind what is not yet on disk, as a launch at once is.
  SendLaunch(now, job, rank);
  Flush();
  Due(now + kRepeatInterval_s);
}

// A lease that ran out unrenewed: its worker is dead, cut off, or stuck. Where
// the agent can be asked, it ends the process and confirms; where it can't, the
// job may go on elsewhere while the accelerator is quarantined.
void Engine::SweepLease(Time now, const Job& job, int rank, Worker& worker) {
  const WorkerKey key{job.id, rank, worker.incarnation};
  const auto agent = agents_.find(worker.server);
  const bool reachable = agent != agents_.end() && agent->second.reachable;
  const bool holding = worker.held_epoch != 0;
  const Time over =
      Rules::Hold(Rule::kLeaseEndsForAllClocks)
          ? worker.lease_expires + kReleaseMargin_s
          : worker.lease_expires - lease_duration_s_ * options_.drift;
  if (!reachable) {
    if (holding && now < over) return Due(over);
    return Record(now, event::WorkerAbandoned{key});
  }
  if (!holding) return;
  const bool wanted = MustGo(job, rank);
  const Time timeout = wanted ? over : over + options_.pause_grace_s;
  if (now < timeout) return Due(timeout);
  Stop(now, worker, key, options_.stop_grace_s);
}

void Engine::Stop(Time now, Worker& worker, const WorkerKey& key,
                  double grace_s) {
  if (worker.stop_sent_at == kNever ||
      now >= worker.stop_sent_at + kRepeatInterval_s) {
    const bool first = worker.stop_sent_at == kNever;
    worker.stop_sent_at = now;
    if (first || Rules::Hold(Rule::kStopIsRepeated)) {
      EmitNow(action::SendToAgent{
          worker.server,
          StopWorker{worker.server, key, {term_, persisted_}, grace_s}});
    }
  }
  Due(worker.stop_sent_at + kRepeatInterval_s);
  if (!Rules::Hold(Rule::kKillIsConfirmed)) {
    WorkerExited exit;
    exit.server = worker.server;
    exit.worker = key;
    exit.no_failure = true;
    Record(now, event::WorkerGone{exit});
  }
}

}  // namespace gavel
