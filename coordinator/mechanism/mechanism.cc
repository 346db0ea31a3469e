#include "coordinator/mechanism/mechanism.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <functional>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/placement.h"
#include "coordinator/mechanism/round_table.h"

namespace gavel {
namespace {

// Keys of a heap of rooms: a server in use before one that is whole.
constexpr uint64_t kWhole = uint64_t{1} << 63;

}  // namespace

uint32_t FreeAccelerators::Add(const Cluster::Place& place, bool given) {
  if (rooms_.empty() || rooms_.back().server != place.server) {
    rooms_.push_back({place.server, place.id, free_.size(), 0, 0, place.rack});
  }
  Room& room = rooms_.back();
  const auto index = static_cast<uint32_t>(rooms_.size() - 1);
  ++room.size;
  free_.emplace_back();
  if (place.group != Cluster::kNowhere) {
    group_of_[place.id] = place.group;
    groups_[place.group].room = index;
  }
  if (room.rack != Cluster::kNowhere) racks_.try_emplace(room.rack, 0);
  if (given) return index;
  free_[room.begin + room.free++] = place.id;
  Count(index, place.id, 1);
  return index;
}

// Changes the numbers of free accelerators of a group and of a rack.
void FreeAccelerators::Count(uint32_t room, AcceleratorId id, int change) {
  const auto add = static_cast<size_t>(change);
  if (!racks_.empty() && rooms_[room].rack != Cluster::kNowhere) {
    racks_[rooms_[room].rack] += add;
  }
  const uint32_t group = GroupOf(id);
  if (group != Cluster::kNowhere) groups_[group].free += add;
}

uint32_t FreeAccelerators::GroupOf(AcceleratorId id) const {
  const auto found = group_of_.find(id);
  return found == group_of_.end() ? Cluster::kNowhere : found->second;
}

void FreeAccelerators::Close() {
  count_ = 0;
  filed_.assign(free_.size(), 0);
  for (const Room& room : rooms_) {
    std::ranges::sort(FreeIn(room));
    count_ += room.free;
  }
  // Those in use first: sorted, and so a heap.
  for (const bool whole : {false, true}) {
    for (size_t r = 0; r < rooms_.size(); ++r) {
      if ((rooms_[r].free == rooms_[r].size) == whole) File(r);
    }
  }
}

// Enters a room under the number that it has free now.
void FreeAccelerators::File(size_t room) {
  const size_t free = rooms_[room].free;
  if (free == 0) return;
  // It may be there still, from when it had as many before.
  if (std::exchange(Filed(room, free), 1) != 0) return;
  if (rooms_with_.size() <= free) rooms_with_.resize(free + 1);
  std::vector<uint64_t>& heap = rooms_with_[free];
  heap.push_back((free == rooms_[room].size ? kWhole : 0) | room);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

void FreeAccelerators::Release(uint32_t index, AcceleratorId id) {
  Room& room = rooms_[index];
  ++room.free;
  ++count_;
  const std::span<AcceleratorId> free = FreeIn(room);
  const auto place = std::lower_bound(free.begin(), free.end() - 1, id);
  std::copy_backward(place, free.end() - 1, free.end());
  *place = id;
  Count(index, id, 1);
  File(index);
}

void FreeAccelerators::Claim(uint32_t index, AcceleratorId id) {
  Room& room = rooms_[index];
  const std::span<AcceleratorId> free = FreeIn(room);
  const auto place = std::find(free.begin(), free.end(), id);
  std::copy(place + 1, free.end(), place);
  --room.free;
  --count_;
  Count(index, id, -1);
  File(index);
}

// The best of the rooms with exactly so many free.
std::optional<size_t> FreeAccelerators::BestWith(size_t free) {
  std::vector<uint64_t>& heap = rooms_with_[free];
  while (!heap.empty()) {
    const size_t room = heap.front() & ~kWhole;
    if (rooms_[room].free == free) return room;
    Filed(room, free) = 0;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
  }
  return std::nullopt;
}

size_t FreeAccelerators::LargestHole() {
  for (size_t free = rooms_with_.size(); free-- > 1;) {
    if (BestWith(free).has_value()) return free;
  }
  return 0;
}

// Where all fit: home, else the tightest fit, which leaves the large holes to
// the gangs; of equal ones a server in use, so that idle ones stay whole.
// Where none has room for all: the largest hole, so that the gang ends on the
// fewest servers. Called while something is free.
size_t FreeAccelerators::BestRoom(size_t needed, std::optional<size_t> home) {
  if (home.has_value() && rooms_[*home].free >= needed) return *home;
  for (size_t free = needed; free < rooms_with_.size(); ++free) {
    if (const auto room = BestWith(free)) return *room;
  }
  size_t free = std::min(needed, rooms_with_.size()) - 1;
  while (!BestWith(free).has_value()) --free;
  if (home.has_value() && rooms_[*home].free == free) return *home;
  return *BestWith(free);
}

// On the home server if that has one, then one with own accelerators, then the
// tightest fit.
std::optional<uint32_t> FreeAccelerators::BestGroup(
    size_t needed, std::optional<size_t> home,
    std::span<const AcceleratorId> own) const {
  std::optional<std::tuple<bool, bool, size_t, uint32_t>> best;
  for (const auto& [number, group] : groups_) {
    if (group.free < needed) continue;
    const bool is_own = std::ranges::any_of(
        own, [&](AcceleratorId id) { return GroupOf(id) == number; });
    const std::tuple key(home != group.room, !is_own, group.free, number);
    if (!best || key < *best) best = key;
  }
  return best ? std::optional(std::get<3>(*best)) : std::nullopt;
}

std::optional<uint32_t> FreeAccelerators::BestRack(size_t needed) const {
  std::optional<std::pair<size_t, uint32_t>> best;
  for (const auto& [rack, free] : racks_) {
    const std::pair key(free, rack);
    if (free >= needed && (!best || key < *best)) best = key;
  }
  return best ? std::optional(best->second) : std::nullopt;
}

// As BestRoom, among the rooms of a rack of which some are free.
size_t FreeAccelerators::BestRoomOf(uint32_t rack, size_t needed) const {
  std::optional<std::tuple<size_t, bool, size_t>> best;
  for (size_t r = 0; r < rooms_.size(); ++r) {
    const Room& room = rooms_[r];
    if (room.rack != rack || room.free == 0) continue;
    const size_t lost = room.free >= needed ? room.free - needed
                                            : free_.size() + needed - room.free;
    const std::tuple key(lost, room.free == room.size, r);
    if (!best || key < *best) best = key;
  }
  return std::get<2>(*best);
}

// Sorts free accelerators by the order in which they are taken: the wanted
// group, else groups with the most free ones. Own accelerators come first in
// their group: no other unit has to leave them. A single worker gets its own
// one, else one of the group with the fewest, which leaves the others whole.
void FreeAccelerators::Arrange(std::span<AcceleratorId> free, size_t wanted,
                               std::span<const AcceleratorId> own,
                               std::optional<uint32_t> group) const {
  const auto is_own = [&](AcceleratorId id) {
    return std::find(own.begin(), own.end(), id) != own.end();
  };
  if (groups_.empty()) {
    if (!own.empty()) {
      std::stable_partition(free.begin(), free.end(), is_own);
    }
    return;
  }
  const auto key = [&](AcceleratorId id) {
    const uint32_t in = GroupOf(id);
    const size_t there =
        in == Cluster::kNowhere ? 1 : groups_.find(in)->second.free;
    const bool single = wanted == 1;
    const size_t rank = single ? there : free_.size() - there;
    return std::tuple(group.has_value() && in != *group, single && !is_own(id),
                      rank, in, !is_own(id));
  };
  std::ranges::stable_sort(free, {}, key);
}

std::optional<size_t> FreeAccelerators::Find(const Cluster& cluster,
                                             const std::string& server) const {
  const auto name = [&](const Room& room) -> const std::string& {
    return cluster.accelerator(room.first).server;
  };
  const auto found = std::ranges::lower_bound(rooms_, server, {}, name);
  if (found == rooms_.end() || name(*found) != server) return std::nullopt;
  return static_cast<size_t>(found - rooms_.begin());
}

std::vector<AcceleratorId> FreeAccelerators::Take(
    const Cluster& cluster, size_t wanted, const std::string& home_server,
    std::span<const AcceleratorId> own) {
  std::vector<AcceleratorId> taken;
  if (count_ < wanted) return taken;
  taken.reserve(wanted);
  std::optional<size_t> home;
  if (!home_server.empty()) home = Find(cluster, home_server);
  std::optional<uint32_t> group;
  if (wanted > 1 && !groups_.empty()) group = BestGroup(wanted, home, own);
  std::optional<uint32_t> rack;
  if (!racks_.empty() && LargestHole() < wanted) rack = BestRack(wanted);
  while (taken.size() < wanted) {
    const size_t needed = wanted - taken.size();
    const size_t index = group  ? groups_[*group].room
                         : rack ? BestRoomOf(*rack, needed)
                                : BestRoom(needed, home);
    Room& room = rooms_[index];
    const std::span<AcceleratorId> free = FreeIn(room);
    const size_t count = std::min(wanted - taken.size(), room.free);
    const auto end = free.begin() + static_cast<std::ptrdiff_t>(count);
    Arrange(free, wanted, own, group);
    taken.insert(taken.end(), free.begin(), end);
    for (const AcceleratorId id : free.first(count)) {
      Count(static_cast<uint32_t>(index), id, -1);
    }
    std::copy(end, free.end(), free.begin());
    room.free -= count;
    count_ -= count;
    if (!own.empty() || !groups_.empty()) std::ranges::sort(FreeIn(room));
    File(index);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

// Servers on which nothing is usable have no room.
FreePlaces::FreePlaces(const Cluster& cluster, std::span<const uint8_t> given)
    : types_(cluster.types().size()),
      type_of_(cluster.usable_types().begin(), cluster.usable_types().end()),
      given_(given.begin(), given.end()),
      rooms_(given.size(), 0) {
  for (const Cluster::Place& place : cluster.places()) {
    const size_t index = place.id.value() - 1;
    if (type_of_[index] == Cluster::kUnusable) continue;
    rooms_[index] = types_[type_of_[index]].Add(place, given_[index] != 0);
  }
  for (FreeAccelerators& type : types_) type.Close();
}

std::vector<int> FreePlaces::Counts() const {
  std::vector<int> counts;
  for (const FreeAccelerators& type : types_) {
    counts.push_back(static_cast<int>(type.count()));
  }
  return counts;
}

void FreePlaces::Release(AcceleratorId id) {
  given_[id.value() - 1] = 0;
  OfType(id).Release(rooms_[id.value() - 1], id);
}

void FreePlaces::Claim(AcceleratorId id) {
  given_[id.value() - 1] = 1;
  OfType(id).Claim(rooms_[id.value() - 1], id);
}

std::vector<AcceleratorId> FreePlaces::Take(
    const Cluster& cluster, size_t type, size_t wanted,
    const std::string& home_server, std::span<const AcceleratorId> own) {
  std::vector<AcceleratorId> taken =
      types_[type].Take(cluster, wanted, home_server, own);
  for (const AcceleratorId id : taken) given_[id.value() - 1] = 1;
  return taken;
}

namespace {

// By the value of the enum.
constexpr std::array<std::string_view, 2> kMechanismNames = {"gavel",
                                                             "move_aware"};
constexpr std::array<std::string_view, 2> kQueueNames = {"global", "per_type"};

// A round is chosen again at most so often because units avoid the accelerators
// that are left.
constexpr int kPassesMax = 8;

template <class Kind>
std::optional<Kind> Find(const std::array<std::string_view, 2>& names,
                         std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
}

}  // namespace

std::optional<MechanismKind> FindMechanism(std::string_view name) {
  return Find<MechanismKind>(kMechanismNames, name);
}

std::optional<QueueKind> FindQueue(std::string_view name) {
  return Find<QueueKind>(kQueueNames, name);
}

std::string_view MechanismName(MechanismKind kind) {
  return kMechanismNames[static_cast<size_t>(kind)];
}

std::string_view QueueName(QueueKind kind) {
  return kQueueNames[static_cast<size_t>(kind)];
}

std::vector<RoundAssignment::Entry>::const_iterator RoundAssignment::find(
    const ShareUnit& unit) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), unit,
                       [](const Entry& entry, const ShareUnit& key) {
                         return entry.first < key;
                       });
  return found != end() && found->first == unit ? found : end();
}

const std::vector<AcceleratorId>& RoundAssignment::at(
    const ShareUnit& unit) const {
  const auto found = find(unit);
  assert(found != end());
  return found->second;
}

std::vector<std::vector<double>> Priorities(const RoundTable& units,
                                            double head_start_s) {
  std::vector<double> total_s(units.types(), 0.0);
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<const double> received_s = units.received_s(u);
    for (size_t j = 0; j < total_s.size(); ++j) {
      total_s[j] += received_s[j] + head_start_s;
    }
  }
  std::vector<std::vector<double>> priorities;
  priorities.reserve(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<double>& row = priorities.emplace_back(units.types(), 0.0);
    const std::span<const double> share = units.share(u);
    const std::span<const double> received_s = units.received_s(u);
    for (size_t j = 0; j < row.size(); ++j) {
      if (!(share[j] > 0)) continue;
      const double counted_s = received_s[j] + head_start_s;
      row[j] = counted_s > 0 ? share[j] / (counted_s / total_s[j])
                             : std::numeric_limits<double>::infinity();
    }
  }
  return priorities;
}

RoundAssignment PlanRound(const Cluster& cluster, const RoundTable& units,
                          const RoundOptions& options) {
  const double moves_within_s =
      options.keep_running ? 0 : options.round_duration_s;
  std::optional<RoundTable> barred;
  for (int pass = 1;; ++pass) {
    const RoundView view(cluster, barred.has_value() ? *barred : units);
    Choice choice(view, options);
    if (options.keep_running) choice.KeepRunning();
    choice.TakeAll();
    Placement placement(view, choice, /*free=*/nullptr);
    RoundAssignment plan(placement.PlaceAll(moves_within_s).Release(),
                         choice.Claims());
    // Accelerators chosen for units that may not use them go to others.
    if (placement.unplaced().empty() || pass == kPassesMax) return plan;
    if (!barred.has_value()) barred = units;
    for (const auto& [u, type] : placement.unplaced()) barred->Bar(u, type);
  }
}

RoundAssignment PlaceAssignment(const Cluster& cluster, const RoundTable& units,
                                std::span<const uint32_t> types,
                                FreePlaces* free) {
  assert(types.size() == units.size());
  const RoundView view(cluster, units,
                       free == nullptr ? cluster.Capacity() : free->Counts());
  Choice choice(view, RoundOptions());
  for (size_t u = 0; u < units.size(); ++u) choice.Take(u, types[u]);
  return Placement(view, choice, free).PlaceAll(/*moves_within_s=*/0);
}

}  // namespace gavel
