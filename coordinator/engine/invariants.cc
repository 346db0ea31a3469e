#include "coordinator/engine/invariants.h"

#include <algorithm>
#include <variant>

#include "core/text.h"

namespace gavel {

std::vector<std::string> Invariants::Check(Time now, const Engine& engine,
                                           const Actions& actions) {
  broken_.clear();
  CheckLeases(engine);
  CheckAssignments(engine);
  CheckMonotonic(now, engine);
  CheckActions(now, engine, actions);
  return broken_;
}

void Invariants::Persisted(uint64_t seq) {
  persisted_ = std::max(persisted_, seq);
}

void Invariants::Restarted() {
  seq_ = 0;
  received_s_.clear();
  epochs_.clear();
}

void Invariants::Broken(std::string what) {
  broken_.push_back(std::move(what));
}

// No accelerator leased twice, none leased while quarantined, a gang's leases
// on one type only, none by a process that is gone.
void Invariants::CheckLeases(const Engine& engine) {
  std::map<AcceleratorId, JobId> leased;
  for (const auto& [id, job] : engine.jobs()) {
    std::set<int> types;
    for (const Worker& worker : job.workers) {
      if (worker.held_epoch == 0) continue;
      const auto [it, fresh] = leased.emplace(worker.held, id);
      if (!fresh && it->second != worker.held_with) {
        Broken(StrCat("accelerator ", worker.held.value(), " is leased to job ",
                      it->second.value(), " and to job ", id.value()));
      }
      if (engine.quarantined().contains(worker.held)) {
        Broken(StrCat("accelerator ", worker.held.value(), " is leased to job ",
                      id.value(), " while quarantined"));
      }
      if (worker.process == ProcessState::kNone) {
        Broken(StrCat("job ", id.value(), " holds a lease without a process"));
      }
      if (worker.held_epoch > job.epoch) {
        Broken(StrCat("job ", id.value(), " holds epoch ", worker.held_epoch,
                      " above its own"));
      }
      types.insert(engine.cluster().TypeOf(worker.held));
    }
    if (types.size() > 1) {
      Broken(StrCat("job ", id.value(), " runs on two types"));
    }
  }
}

// Capacity respected, gangs all or nothing, one type a job.
void Invariants::CheckAssignments(const Engine& engine) {
  std::map<AcceleratorId, JobId> assigned;
  for (const auto& [id, job] : engine.jobs()) {
    if (job.assigned.empty()) continue;
    if (!job.active()) {
      Broken(StrCat("job ", id.value(), " has ended, and is assigned"));
    }
    if (job.assigned.size() != static_cast<size_t>(job.spec.scale_factor)) {
      Broken(StrCat("job ", id.value(), " is assigned ", job.assigned.size(),
                    " accelerators of ", job.spec.scale_factor));
    }
    std::set<int> types;
    for (AcceleratorId accelerator : job.assigned) {
      types.insert(engine.cluster().TypeOf(accelerator));
      const auto [it, fresh] = assigned.emplace(accelerator, id);
      if (!fresh && (it->second != job.partner ||
                     engine.jobs().at(it->second).partner != id)) {
        Broken(StrCat("accelerator ", accelerator.value(),
                      " is assigned to jobs ", it->second.value(), " and ",
                      id.value()));
      }
    }
    if (types.size() > 1) {
      Broken(StrCat("job ", id.value(), " is assigned two types"));
    }
  }
}

void Invariants::CheckMonotonic(Time now, const Engine& engine) {
  if (engine.position().seq < seq_) Broken("seq fell");
  seq_ = engine.position().seq;
  for (const auto& [id, job] : engine.jobs()) {
    if (job.epoch < epochs_[id]) {
      Broken(StrCat("epoch of job ", id.value(), " fell"));
    }
    epochs_[id] = job.epoch;
    double& received = received_s_[id];
    if (job.received_s < received) {
      Broken(StrCat("time received by job ", id.value(), " fell"));
    }
    received = job.received_s;
    const Engine::Shares shares = engine.SharesOf(id, now);
    if (shares.received < 0 || shares.target < 0) {
      Broken(StrCat("share of job ", id.value(), " is negative"));
    }
  }
}

void Invariants::CheckActions(Time now, const Engine& engine,
                              const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<action::SendToWorker>(&action)) {
      if (const auto* grant = std::get_if<LeaseGrant>(&send->message)) {
        CheckGrant(now, engine, *grant);
      }
    }
    if (const auto* send = std::get_if<action::SendToAgent>(&action)) {
      if (const auto* launch = std::get_if<LaunchWorker>(&send->message)) {
        if (launch->position.seq > persisted_) {
          Broken("a launch left before its event was on disk");
        }
      }
    }
    if (std::holds_alternative<action::Halt>(action) && actions.size() != 1) {
      Broken("a halted engine goes on acting");
    }
  }
}

// A grant: persisted first, to the present incarnation, of an epoch that no
// other incarnation had, and not past its round without extension.
void Invariants::CheckGrant(Time now, const Engine& engine,
                            const LeaseGrant& grant) {
  const WorkerKey& key = grant.worker;
  const auto job = engine.jobs().find(key.job);
  if (job == engine.jobs().end()) return Broken("a grant to no job");
  if (grant.position.seq > persisted_) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted a lease before its event was on disk"));
  }
  const auto [it, fresh] =
      granted_.emplace(std::pair(key.worker(), grant.epoch), key.incarnation);
  if (!fresh && it->second != key.incarnation) {
    Broken(StrCat("job ", key.job.value(), ": epoch ", grant.epoch,
                  " was granted to two incarnations"));
  }
  // Extension goes as far as the round that was planned next, even where a
  // later plan took it back: such a worker is asked to pause.
  const double rest =
      engine.round_ends_at() + engine.options().round_duration_s - now;
  constexpr double kTolerance_s = 1e-6;
  if (grant.duration_s > std::max(0.0, rest) + kTolerance_s) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted a lease beyond its round"));
  }
  if (grant.duration_s > engine.options().lease_duration_s + kTolerance_s) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted more than a lease's length"));
  }
}

}  // namespace gavel
