#include "coordinator/engine/lease_book.h"

#include <algorithm>

namespace gavel::engine {

bool LeaseBook::CanStart(const Job& job) const {
  if (!job.active() || job.assigned.empty()) return false;
  if (!job.AllJoined()) return false;
  for (size_t rank = job.assigned.size(); rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) return false;  // it leaves
  }
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const Accelerator& next = cluster_.accelerator(job.assigned[rank]);
    if (worker.leaving || worker.server != next.server) return false;
    if (!worker.Sees(next.id)) return false;
    if (!next.usable()) return false;
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) return false;
    if (HeldByOther(next.id, job) != nullptr) return false;
    if (LeavingMemory(next.id, job) != nullptr) return false;
  }
  return true;
}

bool LeaseBook::CanLaunch(const Job& job) const {
  if (!job.active() || job.assigned.empty()) return false;
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const Accelerator& next = cluster_.accelerator(job.assigned[rank]);
    if (worker.process != ProcessState::kLaunching || worker.leaving ||
        worker.launched_on != next.id || !next.may_start() ||
        HeldByOther(next.id, job) != nullptr ||
        LeavingMemory(next.id, job) != nullptr) {
      return false;
    }
  }
  return true;
}

const WorkerKey* LeaseBook::HeldByOther(AcceleratorId accelerator,
                                        const Job& job) const {
  const auto quarantine = quarantined_.find(accelerator);
  if (quarantine != quarantined_.end()) return &quarantine->second;
  for (const WorkerKey& key : holders_.At(accelerator)) {
    if (key.job == job.id) continue;
    const Job& other = jobs_.at(key.job);
    const Worker& worker = jobs_.WorkerOf(key);
    const bool has_half = worker.held_epoch == other.epoch;
    if (jobs_.Together(job, key.job) && has_half) continue;
    return &key;
  }
  return SilentBefore(accelerator, job);
}

const WorkerKey* LeaseBook::SilentBefore(AcceleratorId accelerator,
                                         const Job& job) const {
  const auto [begin, end] = silent_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    // Another rank of its own that is being ended is in its way as well.
    const bool own = it->second.job == job.id;
    if (own && !jobs_.WorkerOf(it->second).leaving) return nullptr;
    if (!jobs_.Together(job, it->second.job)) return &it->second;
  }
  return nullptr;
}

void LeaseBook::EndSilent(AcceleratorId accelerator, const WorkerKey& worker) {
  const auto [begin, end] = silent_.equal_range(accelerator);
  const auto found = std::find_if(
      begin, end, [&](const auto& entry) { return entry.second == worker; });
  if (found != end) silent_.erase(found);
}

const WorkerKey* LeaseBook::LeavingMemory(AcceleratorId accelerator,
                                          const Job& job) const {
  const auto [begin, end] = contexts_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    if (it->second.job == job.id) continue;
    const Worker& worker = jobs_.WorkerOf(it->second);
    if (worker.is_parked() && (worker.leaving || worker.finished)) {
      return &it->second;
    }
  }
  return nullptr;
}

void LeaseBook::Begin(AcceleratorId accelerator, const WorkerKey& worker) {
  holders_.Add(accelerator, worker);
}

void LeaseBook::End(AcceleratorId accelerator, JobId job) {
  holders_.Remove(accelerator,
                  [&](const WorkerKey& key) { return key.job == job; });
}

bool LeaseBook::IsQuarantined(const WorkerKey& worker,
                              std::string_view server) const {
  return std::ranges::any_of(quarantined_, [&](const auto& entry) {
    return entry.second == worker &&
           cluster_.accelerator(entry.first).server == server;
  });
}

void LeaseBook::Quarantine(const Worker& worker, const WorkerKey& key) {
  std::set<AcceleratorId> used = worker.contexts;
  if (worker.held_epoch != 0) used.insert(worker.held);
  if (worker.launched_on.valid()) used.insert(worker.launched_on);
  for (const AcceleratorId id : used) quarantined_.emplace(id, key);
}

std::optional<AcceleratorId> LeaseBook::EndQuarantine(const WorkerKey& worker) {
  const auto found = std::ranges::find_if(
      quarantined_, [&](const auto& entry) { return entry.second == worker; });
  if (found == quarantined_.end()) return std::nullopt;
  const AcceleratorId freed = found->first;
  quarantined_.erase(found);
  return freed;
}

void LeaseBook::AddContext(AcceleratorId accelerator, const WorkerKey& worker) {
  contexts_.emplace(accelerator, worker);
}

void LeaseBook::EndContexts(const WorkerKey& worker) {
  std::erase_if(contexts_,
                [&](const auto& entry) { return entry.second == worker; });
}

LeaseBook::ContextRange LeaseBook::Contexts(AcceleratorId accelerator) const {
  const auto [begin, end] = contexts_.equal_range(accelerator);
  return {begin, end};
}

std::set<WorkerKey> LeaseBook::ParkedOn(AcceleratorId accelerator) const {
  std::set<WorkerKey> parked;
  const auto [begin, end] = contexts_.equal_range(accelerator);
  for (auto it = begin; it != end; ++it) {
    const Worker& worker = jobs_.WorkerOf(it->second);
    if (worker.is_parked() && !worker.leaving && !worker.finished) {
      parked.insert(it->second);
    }
  }
  return parked;
}

}  // namespace gavel::engine
