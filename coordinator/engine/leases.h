// The leases of workers. LeaseBook says when an accelerator may be given to
// another job. The functions answer the workers' messages, and apply the
// journaled events that follow from them. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_LEASES_H_
#define GAVEL_COORDINATOR_ENGINE_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

// Says when an accelerator may be given to another job. For each accelerator it
// knows the workers that hold a lease, the processes that may still use it,
// those that were launched on it and have not spoken, and those that still have
// memory there. CanStart is the whole rule; the rest of this class is its data.
//
// A lease is in the book from its LeaseStarted to its LeaseEnded, or until the
// end of its process is confirmed. Where the end can't be confirmed the
// accelerator is quarantined for that process.
//
// Not thread-safe. Snapshot fields: holders, quarantines, contexts, until when
// leases of earlier terms and of lost rows may run, and silent processes.
class LeaseBook {
 public:
  // An accelerator has two entries only after a packed pair.
  using Quarantined = std::multimap<AcceleratorId, WorkerKey>;

  // Borrowed, and outlive this.
  LeaseBook(const JobTable& jobs, const Cluster& cluster)
      : jobs_(jobs), cluster_(cluster) {}

  // ---- the rule
  // No rank of a gang starts before all ranks have joined and every accelerator
  // is free of its last holder.
  bool CanStart(const Job& job) const;
  // The same for an opaque job, whose processes run from their launch on.
  bool CanLaunch(const Job& job) const;
  // The worker that keeps `job` from starting there, or null. That is a worker
  // of another job with a lease, except a partner that already uses only half;
  // or a process that was launched there and may use it without a lease.
  const WorkerKey* HeldByOther(AcceleratorId accelerator, const Job& job) const;
  // A worker that has memory there and is about to end, by itself or on
  // request; null: none.
  const WorkerKey* LeavingMemory(AcceleratorId accelerator,
                                 const Job& job) const;

  // ---- leases that run
  void Begin(AcceleratorId accelerator, const WorkerKey& worker);
  void End(AcceleratorId accelerator, JobId job);
  std::span<const WorkerKey> Holders(AcceleratorId accelerator) const {
    return holders_.At(accelerator);
  }

  // ---- processes that have not spoken: a program without the runtime uses its
  // accelerator from its launch to its end
  using Silent = std::multimap<AcceleratorId, WorkerKey>;
  void AddSilent(AcceleratorId accelerator, const WorkerKey& worker) {
    silent_.emplace(accelerator, worker);
  }
  void EndSilent(AcceleratorId accelerator, const WorkerKey& worker);
  const Silent& silent() const { return silent_; }
  // The first process there that was launched before that of `job`, and belongs
  // neither to `job` nor to its partner; null: none.
  const WorkerKey* SilentBefore(AcceleratorId accelerator,
                                const Job& job) const;
  // The process whose end the worker's launch has to wait for, or null.
  const WorkerKey* InTheWay(const Job& job, const Worker& worker) const {
    return worker.launched_on.valid() ? SilentBefore(worker.launched_on, job)
                                      : nullptr;
  }

  // ---- processes whose end is not confirmed
  const Quarantined& quarantined() const { return quarantined_; }
  bool IsQuarantined(const WorkerKey& worker, std::string_view server) const;
  // No job starts on an accelerator that the worker may still use, or has
  // memory on, until its end is confirmed.
  void Quarantine(const Worker& worker, const WorkerKey& key);
  // Its end is confirmed. Returns one accelerator that was quarantined for it
  // and is not any more; nullopt: there is none left.
  std::optional<AcceleratorId> EndQuarantine(const WorkerKey& worker);
  // Ends all quarantines on a server for which `ends(worker)` holds.
  template <class Predicate>
  void EndQuarantinesOn(std::string_view server, const Predicate& ends) {
    std::erase_if(quarantined_, [&](const auto& entry) {
      return cluster_.accelerator(entry.first).server == server &&
             ends(entry.second);
    });
  }

  // ---- memory: processes with a context on an accelerator (Worker::contexts)
  void AddContext(AcceleratorId accelerator, const WorkerKey& worker);
  void EndContexts(const WorkerKey& worker);
  using ContextRange = std::ranges::subrange<
      std::multimap<AcceleratorId, WorkerKey>::const_iterator>;
  // Valid until a context begins or ends.
  ContextRange Contexts(AcceleratorId accelerator) const;
  // The workers that are parked and were not asked to end.
  std::set<WorkerKey> ParkedOn(AcceleratorId accelerator) const;

  // ---- leases of earlier terms
  // Such leases may run until then, by every clock.
  Time earlier_until() const { return earlier_until_; }
  void SetEarlierUntil(Time until) { earlier_until_ = until; }
  // A lost row may have granted a lease, of any job and any accelerator: none
  // is granted until all of them are over.
  Time lost_until() const { return lost_until_; }
  void SetLostUntil(Time until) { lost_until_ = until; }

  static auto State(auto& b) {
    return std::tie(b.quarantined_, b.holders_, b.contexts_, b.earlier_until_,
                    b.lost_until_, b.silent_);
  }

 private:
  const JobTable& jobs_;
  const Cluster& cluster_;
  ByAccelerator<WorkerKey> holders_;
  Quarantined quarantined_;
  std::multimap<AcceleratorId, WorkerKey> contexts_;
  Silent silent_;  // of each accelerator in the order of launches
  Time earlier_until_ = -kNever;
  Time lost_until_ = -kNever;
};

struct State;

// Applies the journaled events of workers: WorkerJoined, LeaseStarted,
// LeaseEnded and StepsReported. The result depends on the journal alone. Not
// thread-safe; stateless.

void On(State& s, Time now, const event::WorkerJoined& e);
void On(State& s, Time now, const event::LeaseStarted& e);
void On(State& s, Time now, const event::LeaseEnded& e);
void On(State& s, Time now, const event::StepsReported& e);

// Answers the hellos, lease requests, reports and releases of workers. Leases
// are granted only here. The functions On apply the events that this journals.
// Not thread-safe, stateless: all state is in State, of which a restart forgets
// the streaks of failures (FailureStreaks).

void Admit(State& s, Time now, const event::WorkerJoined& e);
void Admit(State& s, Time now, event::LeaseEnded e);
void Admit(State& s, Time now, event::StepsReported e);
void Admit(State& s, Time now, const event::WorkerGone& e);
void Admit(State& s, Time now, const event::WorkerBusy& e);
void Admit(State& s, Time now, const event::ProcessBegan& e);
void Admit(State& s, Time now, const event::WorkerSaidFinished& e);
void Admit(State& s, Time now, const event::LeaseRequested& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_LEASES_H_
