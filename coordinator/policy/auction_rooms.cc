#include "coordinator/policy/auction_rooms.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace gavel::policy {

AuctionRooms::AuctionRooms(const PolicyProblem& problem) {
  if (!problem.placement_sensitive() || problem.hosts.empty()) {
    for (size_t type = 0; type < problem.capacity.size(); ++type) {
      const int count = problem.capacity[type];
      hosts_.push_back({AcceleratorId(), type, count});
      types_.push_back(type);
      free_.push_back(count);
    }
    return;
  }
  places_ = problem.places;
  std::map<std::tuple<size_t, int, int>, size_t> part_of;
  for (const PolicyHost& host : problem.hosts) {
    part_of.try_emplace({host.type, host.capacity, host.group}, 0);
  }
  for (auto& [like, part] : part_of) {
    part = types_.size();
    types_.push_back(std::get<0>(like));
  }
  free_.assign(types_.size(), 0);
  for (const PolicyHost& host : problem.hosts) {
    const size_t part = part_of.at({host.type, host.capacity, host.group});
    hosts_.push_back({host.id, part, host.capacity, host.group, host.rack});
    free_[part] += host.capacity;
  }
}

std::vector<size_t> AuctionRooms::PartsOf(size_t type) const {
  std::vector<size_t> parts;
  for (size_t part = 0; part < types_.size(); ++part) {
    if (types_[part] == type) parts.push_back(part);
  }
  return parts;
}

std::vector<size_t> AuctionRooms::HostsOf(size_t job) const {
  std::vector<size_t> hosts;
  const auto places =
      std::ranges::equal_range(places_, job, {}, &PolicyPlace::job);
  for (const PolicyPlace& place : places) hosts.push_back(place.host);
  std::ranges::sort(hosts);
  return hosts;
}

Locality AuctionRooms::LevelOf(size_t job, int scale_factor) const {
  const std::vector<size_t> hosts = HostsOf(job);
  if (hosts.size() > 1) {
    const int rack = hosts_[hosts.front()].rack;
    const bool near = rack >= 0 && std::ranges::all_of(hosts, [&](size_t h) {
                        return hosts_[h].rack == rack;
                      });
    return near ? Locality::kRack : Locality::kCluster;
  }
  const bool joined = !hosts.empty() && scale_factor > 1 &&
                      scale_factor <= hosts_[hosts.front()].group;
  return joined ? Locality::kGroup : Locality::kServer;
}

// The tightest fit; among those, one where the gang is in a group first.
std::optional<size_t> AuctionRooms::OneHost(
    int needed, std::span<const size_t> parts,
    std::span<const size_t> hosts) const {
  std::optional<std::tuple<bool, bool, int, size_t>> best;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    const Host& host = hosts_[h];
    if (host.free < needed || !std::ranges::binary_search(parts, host.part)) {
      continue;
    }
    const std::tuple key(needed > 1 && host.group < needed,
                         !std::ranges::binary_search(hosts, h), host.free, h);
    if (!best || key < *best) best = key;
  }
  return best ? std::optional(std::get<3>(*best)) : std::nullopt;
}

// Several servers with that many together: those of the rack that has the
// fewest left, if one has as many, the largest ones first. Empty: there are not
// as many.
std::vector<size_t> AuctionRooms::SeveralHosts(
    int needed, std::span<const size_t> parts) const {
  std::vector<size_t> all;
  std::map<int, int> by_rack;
  int sum = 0;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    const Host& host = hosts_[h];
    if (host.free == 0 || !std::ranges::binary_search(parts, host.part)) {
      continue;
    }
    all.push_back(h);
    sum += host.free;
    if (host.rack >= 0) by_rack[host.rack] += host.free;
  }
  if (sum < needed) return {};
  std::optional<std::pair<int, int>> best;  // what is free, and the rack
  for (const auto& [rack, free] : by_rack) {
    const std::pair key(free, rack);
    if (free >= needed && (!best || key < *best)) best = key;
  }
  if (best) {
    std::erase_if(all,
                  [&](size_t h) { return hosts_[h].rack != best->second; });
  }
  std::ranges::stable_sort(all, {}, [&](size_t h) { return -hosts_[h].free; });
  return all;
}

// The servers of a gang, in the order in which it takes from them. Empty: there
// are not as many accelerators.
std::vector<size_t> AuctionRooms::BestHosts(
    int needed, std::span<const size_t> parts,
    std::span<const size_t> hosts) const {
  const auto host = OneHost(needed, parts, hosts);
  return host ? std::vector{*host} : SeveralHosts(needed, parts);
}

std::optional<AuctionRooms::Place> AuctionRooms::Take(
    int scale_factor, const std::vector<size_t>& parts,
    std::span<const size_t> hosts) {
  std::vector<size_t> from = BestHosts(scale_factor, parts, hosts);
  if (from.empty()) {
    from = BestHosts(scale_factor, PartsOf(types_[parts.front()]), hosts);
  }
  if (from.empty()) return std::nullopt;
  Place place;
  place.host = hosts_[from.front()].id;
  place.level = scale_factor > 1 && scale_factor <= hosts_[from.front()].group
                    ? Locality::kGroup
                    : Locality::kServer;
  std::map<size_t, int> taken_of;  // by part
  int left = scale_factor;
  for (const size_t h : from) {
    Host& host = hosts_[h];
    const int taken = std::min(left, host.free);
    if (taken == 0) break;
    if (taken < scale_factor) {
      const int rack = hosts_[from.front()].rack;
      const bool near =
          rack >= 0 && host.rack == rack && place.level != Locality::kCluster;
      place.level = near ? Locality::kRack : Locality::kCluster;
      place.host = AcceleratorId();
    }
    host.free -= taken;
    free_[host.part] -= taken;
    taken_of[host.part] += taken;
    left -= taken;
  }
  place.parts.assign(taken_of.begin(), taken_of.end());
  return place;
}

}  // namespace gavel::policy
