#include "tests/engine/invariants.h"

#include <algorithm>
#include <map>
#include <variant>

#include "coordinator/engine/sweeper.h"
#include "coordinator/workload/job_array.h"
#include "core/text.h"

namespace gavel {
namespace {

// The number of workers, by type, that elastic jobs have above the asked
// number.
std::vector<int> GrownBeyondAsked(const Engine& engine) {
  std::vector<int> grown(engine.cluster().types().size(), 0);
  for (const auto& [id, job] : engine.jobs()) {
    if (job.assigned.empty()) continue;
    const int type = engine.cluster().TypeOf(job.assigned.front());
    grown[static_cast<size_t>(type)] +=
        std::max(0, job.world_size - job.spec.scale_factor);
  }
  return grown;
}

bool MayRunOn(const JobSpec& spec, const std::string& server) {
  const auto names = [&](const std::vector<std::string>& servers) {
    return std::ranges::find(servers, server) != servers.end();
  };
  return (spec.servers.empty() || names(spec.servers)) &&
         !names(spec.exclude_servers);
}

// Whether the job may run on every server that has accelerators of the type.
bool MayRunOnAll(const Engine& engine, const JobSpec& spec, size_t type) {
  const auto has_type = [&](AcceleratorId id) {
    return engine.cluster().TypeOf(id) == static_cast<int>(type);
  };
  return std::ranges::all_of(engine.cluster().servers(), [&](const auto& of) {
    return MayRunOn(spec, of.first) ||
           std::ranges::none_of(of.second, has_type);
  });
}

std::vector<int> Idle(const Engine& engine) {
  std::vector<int> idle = engine.cluster().Capacity();
  std::set<AcceleratorId> used;
  for (const auto& [id, job] : engine.jobs()) {
    used.insert(job.assigned.begin(), job.assigned.end());
  }
  for (const auto& [accelerator, holder] : engine.quarantined()) {
    used.insert(accelerator);
  }
  for (const AcceleratorId id : used) {
    if (engine.cluster().accelerator(id).usable()) {
      --idle[static_cast<size_t>(engine.cluster().TypeOf(id))];
    }
  }
  return idle;
}

// The sequence number of the journal position in a message; 0 if it has none.
uint64_t ToldSeq(const Action& action) {
  const auto told = [](const Message& message) {
    return std::visit(
        [](const auto& m) -> uint64_t {
          if constexpr (requires { m.position; }) return m.position.seq;
          return 0;
        },
        message);
  };
  if (const auto* send = std::get_if<action::SendToWorker>(&action)) {
    return told(send->message);
  }
  if (const auto* send = std::get_if<action::SendToAgent>(&action)) {
    return told(send->message);
  }
  return 0;
}

}  // namespace

std::vector<std::string> Invariants::Check(Time now, const Engine& engine,
                                           const Actions& actions) {
  broken_.clear();
  NoteTerm(actions);
  NoteReleases(actions);
  // Jobs and accelerators change only by journaled events.
  const bool changed =
      std::any_of(actions.begin(), actions.end(), [](const Action& action) {
        return std::holds_alternative<action::Persist>(action);
      });
  if (changed) {
    CheckLeases(engine);
    CheckAssignments(engine);
    CheckParents(engine);
    CheckArrays(engine);
    CheckTimes(now, engine);
    CheckInteractive(engine);
    CheckGrowth(now, engine);
    CheckMonotonic(now, engine);
  }
  CheckLeaseEnds(now, engine);
  CheckActions(now, engine, actions);
  flushing_ = false;
  return broken_;
}

void Invariants::Persisted(uint64_t seq) {
  persisted_ = std::max(persisted_, seq);
  flushing_ = true;
}

void Invariants::Restarted() {
  seq_ = 0;
  leases_.clear();
  launched_.clear();
  kept_out_since_.clear();
  received_s_.clear();
  epochs_.clear();
}

void Invariants::Broken(std::string what) {
  broken_.push_back(std::move(what));
}

// No accelerator is leased twice, except to a packed pair, and none is newly
// leased while it is quarantined. No lost accelerator is assigned. The leases
// of a gang are on one type. Every lease is held by a process that exists and
// sees the accelerator.
void Invariants::CheckLeases(const Engine& engine) {
  std::map<AcceleratorId, JobId> leased;
  // The processes that have not said hello, by accelerator. They may use it,
  // and no lease keeps them from it. The two of a pair are launched beside each
  // other, and stay there when the pair is parted, which may happen at once.
  struct Launched {
    JobId job;
    const Worker* worker = nullptr;
    bool is_new = false;
  };
  std::map<AcceleratorId, Launched> silent;
  std::set<WorkerKey> launched;
  const auto ends_before = [](const Worker& there, const Worker& next) {
    return there.leaving && next.launch_sent_at <= there.pause_sent_at;
  };
  for (const auto& [id, job] : engine.jobs()) {
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      const AcceleratorId where = worker.launched_on;
      const bool sent = worker.launch_repeated_at != kNever;
      if (!where.valid() || !sent || worker.launch_sent_at == kNever) continue;
      const WorkerKey key{id, static_cast<int>(rank), worker.incarnation};
      const bool is_new = !launched_.contains(key);
      launched.insert(key);
      const auto [it, alone] =
          silent.try_emplace(where, Launched{id, &worker, is_new});
      const Launched& other = it->second;
      if (!alone && other.job != job.partner && (is_new || other.is_new) &&
          !ends_before(worker, *other.worker) &&
          !ends_before(*other.worker, worker)) {
        Broken(StrCat("accelerator ", where.value(), " has processes of job ",
                      other.job.value(), " and of job ", id.value(),
                      " that have not spoken"));
      }
    }
  }
  launched_ = std::move(launched);
  for (const auto& [id, job] : engine.jobs()) {
    std::set<int> types;
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      if (worker.held_epoch == 0) continue;
      const auto [it, fresh] = leased.emplace(worker.held, id);
      if (!fresh && it->second != worker.held_with) {
        Broken(StrCat("accelerator ", worker.held.value(), " is leased to job ",
                      it->second.value(), " and to job ", id.value()));
      }
      // Only a lease that begins is checked: a worker that was there before
      // keeps its lease beside a partner, or beside a process that only had
      // memory there.
      const auto quarantine = engine.quarantined().find(worker.held);
      const auto seen = leases_.find({id, static_cast<int>(rank)});
      const bool begins =
          seen != leases_.end() && seen->second.epoch != worker.held_epoch;
      if (begins && quarantine != engine.quarantined().end() &&
          quarantine->second.job != worker.held_with) {
        Broken(StrCat("accelerator ", worker.held.value(), " is leased to job ",
                      id.value(), " while quarantined"));
      }
      const auto other = silent.find(worker.held);
      if (begins && other != silent.end() && other->second.job != id &&
          other->second.job != worker.held_with) {
        Broken(StrCat("accelerator ", worker.held.value(), " is leased to job ",
                      id.value(), " beside a process of job ",
                      other->second.job.value(), " that has not spoken"));
      }
      if (!worker.Sees(worker.held)) {
        Broken(StrCat("job ", id.value(), " holds accelerator ",
                      worker.held.value(), ", which its process can't see"));
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
    for (const AcceleratorId assigned : job.assigned) {
      if (engine.cluster().accelerator(assigned).state ==
          AcceleratorState::kLost) {
        Broken(StrCat("job ", id.value(), " is assigned accelerator ",
                      assigned.value(), ", which is lost"));
      }
    }
    if (types.size() > 1) {
      Broken(StrCat("job ", id.value(), " runs on two types"));
    }
  }
}

// No lease ends later than the furthest horizon that it had, and no epoch is
// held again after it was given back. Leases that a restart finds may run for a
// lease's length, or until Engine::leases_until if that is later.
void Invariants::CheckLeaseEnds(Time now, const Engine& engine) {
  constexpr double kTolerance_s = 1e-6;
  const EngineOptions& options = engine.options();
  const double drift_s = options.lease_duration_s * options.drift;
  for (const auto& [id, job] : engine.jobs()) {
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      const uint64_t epoch = worker.held_epoch;
      Lease& lease = leases_[{id, static_cast<int>(rank)}];
      if (epoch != lease.epoch) {
        if (lease.epoch != 0) lease.given_back = lease.epoch;
        lease.epoch = epoch;
        // The lease may have begun under an earlier coordinator.
        lease.horizon =
            std::max(now + options.lease_duration_s, engine.leases_until());
        if (epoch != 0 && epoch <= lease.given_back) {
          Broken(StrCat("job ", id.value(), " holds epoch ", epoch,
                        " again, which it gave back"));
        }
        if (epoch != 0 && worker.lease_seq != 0) {
          lease.horizon = 0;
          if (!job.AllJoined() && !job.spec.opaque()) {
            Broken(StrCat("job ", id.value(),
                          " was leased what only a part of its gang can use"));
          }
        }
      }
      if (epoch == 0 || job.spec.opaque()) continue;
      lease.horizon = std::max(lease.horizon, engine.LeaseHorizon(job));
      if (worker.lease_expires >
          std::max(lease.horizon, now) + drift_s + kTolerance_s) {
        Broken(StrCat("a lease of job ", id.value(), " ends at ",
                      worker.lease_expires, " s, its round at ", lease.horizon,
                      " s"));
      }
    }
  }
}

// An interactive job that runs is not paused, moved or packed, and the
// interactive jobs of one owner stay within their quota. The loss of an
// accelerator, and the end of its agent, are excepted: nobody keeps it then.
void Invariants::CheckInteractive(const Engine& engine) {
  std::map<std::string, int> held;
  for (const auto& [id, job] : engine.jobs()) {
    if (!job.spec.interactive() || !job.active()) continue;
    held[job.spec.owner] += static_cast<int>(job.assigned.size());
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      if (worker.held_epoch == 0 || worker.unswept) continue;
      const Accelerator& place = engine.cluster().accelerator(worker.held);
      if (place.leaving || place.state != AcceleratorState::kUsable) continue;
      if (rank >= job.assigned.size() || job.assigned[rank] != worker.held ||
          job.partner.valid() || worker.pause_sent_at != kNever) {
        Broken(StrCat("interactive job ", id.value(),
                      " is disturbed without consent"));
      }
    }
  }
  for (const auto& [owner, count] : held) {
    if (count <= engine.options().interactive_max) continue;
    Broken(StrCat("the interactive jobs of \"", owner, "\" have ", count,
                  " accelerators"));
  }
}

// An accelerator is assigned to one job or to a packed pair. A job has either
// no accelerators or as many as its gang needs, all of one type, and has none
// after its end.
void Invariants::CheckAssignments(const Engine& engine) {
  std::map<AcceleratorId, JobId> assigned;
  for (const auto& [id, job] : engine.jobs()) {
    if (job.assigned.empty()) continue;
    if (!job.active()) {
      Broken(StrCat("job ", id.value(), " has ended, and is assigned"));
    }
    const auto size = static_cast<int>(job.assigned.size());
    if (size != job.world_size || size < job.spec.LeastWorkers() ||
        size > job.spec.MostWorkers()) {
      Broken(StrCat("job ", id.value(), " is assigned ", size,
                    " accelerators, its gang has ", job.world_size, " of ",
                    job.spec.LeastWorkers(), " to ", job.spec.MostWorkers()));
    }
    std::set<int> types;
    for (AcceleratorId accelerator : job.assigned) {
      types.insert(engine.cluster().TypeOf(accelerator));
      const std::string& server =
          engine.cluster().accelerator(accelerator).server;
      if (!MayRunOn(job.spec, server)) {
        Broken(StrCat("job ", id.value(), " is assigned an accelerator of ",
                      server, ", which its file excludes"));
      }
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
    const std::string& type =
        engine.cluster().accelerator(job.assigned.front()).info.type;
    // A job whose types were changed keeps its accelerators for this round.
    std::vector<AcceleratorId>& had = had_[id];
    const bool is_new = std::exchange(had, job.assigned) != job.assigned;
    if (is_new && !job.spec.types.empty() &&
        std::ranges::find(job.spec.types, type) == job.spec.types.end()) {
      Broken(StrCat("job ", id.value(), " is assigned ", type,
                    ", which its file does not name"));
    }
  }
}

// A job that has accelerators has begun after its parents, unless its owner
// released it. A parent that is named is any job, or all elements of any array,
// of that name.
void Invariants::CheckParents(const Engine& engine) {
  const auto has_ended = [&](const std::string& name, bool any_end) {
    bool known = false;
    std::map<JobId, bool> arrays;  // whether all of their elements have ended
    for (const auto& [id, job] : engine.jobs()) {
      const bool over = job.state == JobState::kFinished ||
                        (any_end && job.state == JobState::kCancelled);
      const std::string array = StrCat(job.array.value());
      if (job.array.valid() &&
          (array == name || ArrayNameOf(job.spec.name) == name)) {
        arrays.try_emplace(job.array, true).first->second &= over;
      }
      if (job.spec.name != name && StrCat(id.value()) != name &&
          StrCat(array, "_", job.array_index) != name) {
        continue;
      }
      known = true;
      if (over) return true;
    }
    if (std::ranges::any_of(arrays,
                            [](const auto& one) { return one.second; })) {
      return true;
    }
    return !known && arrays.empty();  // ended jobs are forgotten
  };
  for (const auto& [id, job] : engine.jobs()) {
    if (job.active() && !job.parents.empty()) {
      Broken(StrCat("job ", id.value(), " is in the queue and has parents"));
    }
    if (job.assigned.empty() || IsReleased(job)) continue;
    for (const auto* names : {&job.spec.after_success, &job.spec.after_any}) {
      for (const std::string& name : *names) {
        if (has_ended(name, names == &job.spec.after_any)) continue;
        Broken(StrCat("job ", id.value(), " has started before its parent ",
                      name, " has ended"));
      }
    }
  }
}

// No more elements of an array have accelerators than may run at once.
void Invariants::CheckArrays(const Engine& engine) {
  std::map<JobId, int> running;
  for (const auto& [id, job] : engine.jobs()) {
    if (job.assigned.empty() || job.array_at_once == 0) continue;
    if (++running[job.array] != job.array_at_once + 1) continue;
    Broken(StrCat("more than ", job.array_at_once, " elements of array ",
                  job.array.value(), " run at once"));
  }
}

// A job that has accelerators has waited until its not_before, unless its owner
// released it.
void Invariants::CheckTimes(Time now, const Engine& engine) {
  for (const auto& [id, job] : engine.jobs()) {
    if (!job.spec.not_before_s || job.assigned.empty()) continue;
    if (now >= engine::NotBefore(job, engine.options().wall_offset_s)) continue;
    if (IsReleased(job)) continue;
    Broken(StrCat("job ", id.value(), " has started before its not_before"));
  }
}

bool Invariants::IsReleased(const Job& job) const {
  return released_.contains(job.id) ||
         (job.array.valid() && released_.contains(job.array));
}

void Invariants::NoteReleases(const Actions& actions) {
  for (const Action& action : actions) {
    const auto* row = std::get_if<action::Persist>(&action);
    if (row == nullptr || row->event == nullptr) continue;
    const auto* command = std::get_if<event::JobCommanded>(row->event.get());
    if (command == nullptr || command->kind != CommandKind::kRelease) continue;
    released_.insert(command->job);
  }
}

// Accelerators that elastic jobs have above the asked number go to waiting jobs
// that fit there. That happens when the next round begins, after the elastic
// jobs have paused; a job that waits longer breaks the rule. Sizes are chosen
// by type, so the rule is not for types of which the job may use some servers
// only.
void Invariants::CheckGrowth(Time now, const Engine& engine) {
  const std::vector<int> grown = GrownBeyondAsked(engine);
  const std::vector<int> idle = Idle(engine);
  const EngineOptions& options = engine.options();
  const double limit_s = 2 * options.round_duration_s + options.pause_grace_s +
                         options.stop_grace_s;
  for (const auto& [id, job] : engine.jobs()) {
    bool kept_out = false;
    const bool waits = job.active() && job.assigned.empty() &&
                       job.target_share > 0 && !job.AnyLive();
    for (size_t type = 0; waits && type < grown.size(); ++type) {
      kept_out |= grown[type] > 0 && MayRunOnAll(engine, job.spec, type) &&
                  idle[type] + grown[type] >= job.spec.LeastWorkers() &&
                  engine.throughputs()
                          .Get(id, engine.cluster().types()[type])
                          .steps_per_s > 0;
    }
    if (!kept_out) {
      kept_out_since_.erase(id);
      continue;
    }
    const Time since = kept_out_since_.try_emplace(id, now).first->second;
    if (now - since <= limit_s) continue;
    Broken(StrCat("job ", id.value(), " has waited since ", since,
                  " s for what elastic jobs have beyond what they asked for"));
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
    const JobShares shares = engine.SharesOf(id, now);
    if (shares.received < 0 || shares.target < 0) {
      Broken(StrCat("share of job ", id.value(), " is negative"));
    }
  }
}

// Notes the first row of each term, which records that the term began.
void Invariants::NoteTerm(const Actions& actions) {
  for (const Action& action : actions) {
    const auto* row = std::get_if<action::Persist>(&action);
    if (row == nullptr || row->term == term_) continue;
    term_ = row->term;
    term_seq_ = row->seq;
  }
}

void Invariants::CheckActions(Time now, const Engine& engine,
                              const Actions& actions) {
  for (const Action& action : actions) {
    const bool speaks = std::holds_alternative<action::SendToWorker>(action) ||
                        std::holds_alternative<action::SendToAgent>(action);
    if (speaks && persisted_ < term_seq_) {
      Broken("a coordinator speaks before its term is on disk");
    }
    if (const auto* send = std::get_if<action::SendToWorker>(&action)) {
      if (const auto* grant = std::get_if<LeaseGrant>(&send->message)) {
        CheckGrant(now, engine, *grant);
      }
      if (const auto* pause = std::get_if<PauseRequest>(&send->message)) {
        CheckPause(engine, *pause);
      }
    }
    if (ToldSeq(action) > persisted_) {
      Broken("a message tells of a row that is not on disk");
    }
    if (std::holds_alternative<action::Halt>(action) && actions.size() != 1) {
      Broken("a halted engine goes on acting");
    }
  }
}

// A grant is for a lease that is on disk and an accelerator that the job is
// assigned. No other incarnation was granted its epoch. It lasts at most a
// lease's length, and not beyond the next round. A grant that was decided in an
// earlier step is not compared with the present plan.
void Invariants::CheckGrant(Time now, const Engine& engine,
                            const LeaseGrant& grant) {
  const WorkerKey& key = grant.worker;
  const auto job = engine.jobs().find(key.job);
  if (job == engine.jobs().end()) return Broken("a grant to no job");
  const auto [it, fresh] =
      granted_.emplace(std::pair(key.worker(), grant.epoch), key.incarnation);
  const Worker& worker = job->second.workers[static_cast<size_t>(key.rank)];
  const bool held = worker.held_epoch == grant.epoch;
  if (held && worker.lease_seq > persisted_) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted a lease that is not on disk"));
  }
  const auto& assigned = job->second.assigned;
  if (held && !flushing_ &&
      std::find(assigned.begin(), assigned.end(), worker.held) ==
          assigned.end()) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted what it is not assigned"));
  }
  if (!fresh && it->second != key.incarnation) {
    Broken(StrCat("job ", key.job.value(), ": epoch ", grant.epoch,
                  " was granted to two incarnations"));
  }
  // A lease may be extended to the end of the next round. If a later plan takes
  // that round from the job, its worker is asked to pause.
  const double rest =
      engine.round_ends_at() + engine.options().round_duration_s - now;
  constexpr double kTolerance_s = 1e-6;
  if (!flushing_ && grant.duration_s > std::max(0.0, rest) + kTolerance_s) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted a lease beyond its round"));
  }
  if (grant.duration_s > engine.options().lease_duration_s + kTolerance_s) {
    Broken(StrCat("job ", key.job.value(),
                  " was granted more than a lease's length"));
  }
}

// A job that is held on purpose stops with a checkpoint, however often it has
// to be told.
void Invariants::CheckPause(const Engine& engine, const PauseRequest& pause) {
  const auto job = engine.jobs().find(pause.worker.job);
  if (job == engine.jobs().end() || pause.tier != PauseTier::kStop) return;
  const auto rank = static_cast<size_t>(pause.worker.rank);
  const Worker& worker = job->second.workers[rank];
  if (worker.incarnation != pause.worker.incarnation) return;
  if (worker.held_epoch == 0) return;  // its steps are saved
  const Reason& why = job->second.reason;
  if (!std::holds_alternative<reason::HeldTimeLimit>(why) &&
      !std::holds_alternative<reason::HeldByUser>(why)) {
    return;
  }
  Broken(StrCat("job ", pause.worker.job.value(),
                " is held and told to stop without a checkpoint"));
}

}  // namespace gavel
