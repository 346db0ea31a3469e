#include "coordinator/engine/workers/avoidance.h"

#include <algorithm>

namespace gavel::engine {

void Avoidance::Avoid(Time now, JobId job, AcceleratorId where) {
  Until& until = until_[job];
  std::erase_if(until, [&](const auto& entry) { return entry.second <= now; });
  Time& end = until[where];
  end = std::max(end, now + kAvoid_s);
}

void Avoidance::NoteGoodEnd(JobId job, AcceleratorId where) {
  const auto found = until_.find(job);
  if (found == until_.end()) return;
  Until& until = found->second;
  const auto entry = until.find(where);
  if (entry == until.end() || entry->second == kNever) return;
  until.erase(entry);
  if (until.empty()) until_.erase(found);
}

void Avoidance::Forget(AcceleratorId accelerator) {
  for (auto& [job, until] : until_) until.erase(accelerator);
  std::erase_if(until_, [](const auto& entry) { return entry.second.empty(); });
}

std::vector<AcceleratorId> Avoidance::KeptOutOf(JobId job) const {
  std::vector<AcceleratorId> accelerators;
  const auto found = until_.find(job);
  if (found == until_.end()) return accelerators;
  for (const auto& [id, until] : found->second) {
    if (until == kNever) accelerators.push_back(id);
  }
  return accelerators;
}

bool Avoidance::Avoids(Time now, JobId job, AcceleratorId where) const {
  const auto found = until_.find(job);
  if (found == until_.end()) return false;
  const auto entry = found->second.find(where);
  return entry != found->second.end() && now < entry->second;
}

int Avoidance::CountLeft(JobId job, size_t type) const {
  int left = cluster_.Capacity()[type];
  for (const AcceleratorId id : KeptOutOf(job)) {
    if (cluster_.usable_types()[id.value() - 1] == type) --left;
  }
  return left;
}

std::map<JobId, RoundTable::Avoided> Avoidance::At(Time now) const {
  std::map<JobId, RoundTable::Avoided> avoided;
  for (const auto& [job, until] : until_) {
    for (const auto& [id, end] : until) {
      if (now < end) avoided[job][id] = end == kNever;
    }
  }
  return avoided;
}

}  // namespace gavel::engine
