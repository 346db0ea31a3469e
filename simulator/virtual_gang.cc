#include "simulator/virtual_gang.h"

#include <algorithm>

#include "simulator/virtual_process.h"

namespace gavel {

bool VirtualGangs::Join(JobId job, uint64_t epoch, VirtualProcess& process,
                        int world_size) {
  Gang& gang = gangs_[{job, epoch}];
  gang.ranks[process.key().rank] = &process;
  return gang.ranks.size() == static_cast<size_t>(world_size);
}

VirtualGangs::Gang* VirtualGangs::Find(JobId job, uint64_t epoch) {
  const auto found = gangs_.find({job, epoch});
  return found == gangs_.end() ? nullptr : &found->second;
}

void VirtualGangs::Leave(JobId job, uint64_t epoch, int rank) {
  const auto found = gangs_.find({job, epoch});
  if (found == gangs_.end()) return;
  found->second.ranks.erase(rank);
  if (found->second.ranks.empty()) gangs_.erase(found);
}

bool VirtualGangs::IsWhole(const Gang& gang) {
  return std::all_of(gang.ranks.begin(), gang.ranks.end(),
                     [](const auto& entry) { return entry.second->IsHeard(); });
}

void VirtualGangs::Update() {
  for (auto& [key, gang] : gangs_) {
    if (!gang.running) continue;
    const bool frozen = gang.frozen_at != kNever;
    if (IsWhole(gang) != frozen) continue;
    frozen ? Thaw(gang) : Freeze(key, gang);
  }
}

void VirtualGangs::Freeze(std::pair<JobId, uint64_t> key, Gang& gang) {
  gang.frozen_at = queue_.now();
  const double silence_s =
      gang.ranks.begin()->second->training().gang_silence_s;
  queue_.After(silence_s, [this, key, since = gang.frozen_at] {
    const auto found = gangs_.find(key);
    if (found == gangs_.end() || found->second.frozen_at != since) return;
    const std::map<int, VirtualProcess*> ranks = found->second.ranks;
    for (const auto& [rank, process] : ranks) process->GangIsBroken(key.second);
  });
}

void VirtualGangs::Thaw(Gang& gang) {
  const double lost_s = queue_.now() - gang.frozen_at;
  gang.frozen_at = kNever;
  const std::map<int, VirtualProcess*> ranks = gang.ranks;
  for (const auto& [rank, process] : ranks) process->StoodStill(lost_s);
}

}  // namespace gavel
