#include "coordinator/mechanism/placement.h"

#include <algorithm>
#include <tuple>

namespace gavel {

std::optional<size_t> TypeHeld(const Cluster& cluster, const RoundJob& job) {
  if (job.holds.empty()) return std::nullopt;
  if (job.holds.size() != static_cast<size_t>(job.scale_factor)) {
    return std::nullopt;
  }
  const int type = cluster.TypeOf(job.holds.front());
  for (const AcceleratorId id : job.holds) {
    if (cluster.accelerator(id).state != AcceleratorState::kUsable ||
        cluster.TypeOf(id) != type) {
      return std::nullopt;
    }
  }
  return static_cast<size_t>(type);
}

Placement::Placement(const Cluster& cluster)
    : cluster_(cluster),
      rooms_(cluster.types().size()),
      given_(cluster.accelerators().size(), false) {
  for (const auto& [server, ids] : cluster.servers()) {
    for (const AcceleratorId id : ids) {
      if (cluster.accelerator(id).state != AcceleratorState::kUsable) continue;
      auto& rooms = rooms_[static_cast<size_t>(cluster.TypeOf(id))];
      if (rooms.empty() || rooms.back().server != &server) {
        rooms.push_back({&server, {}, 0});
      }
      rooms.back().free.push_back(id);
      ++rooms.back().size;
    }
  }
  for (auto& rooms : rooms_) {
    for (Room& room : rooms) std::sort(room.free.begin(), room.free.end());
  }
}

bool Placement::Keep(const RoundJob& job) {
  const std::optional<size_t> type = TypeHeld(cluster_, job);
  if (!type.has_value()) return false;
  for (const AcceleratorId id : job.holds) {
    if (given_[id.value() - 1]) return false;
  }
  for (const AcceleratorId id : job.holds) given_[id.value() - 1] = true;
  for (const AcceleratorId id : job.holds) {
    std::vector<AcceleratorId>& free = RoomOf(id).free;
    const auto found = std::lower_bound(free.begin(), free.end(), id);
    if (found != free.end() && *found == id) free.erase(found);
  }
  return true;
}

std::vector<AcceleratorId> Placement::Place(const RoundJob& job, size_t type) {
  if (type >= rooms_.size()) return {};
  const size_t wanted = static_cast<size_t>(job.scale_factor);
  size_t free = 0;
  for (const Room& room : rooms_[type]) free += room.free.size();
  if (free < wanted) return {};

  std::vector<AcceleratorId> placed;
  while (placed.size() < wanted) {
    const size_t needed = wanted - placed.size();
    Room& room = BestRoom(rooms_[type], needed, job.home_server);
    // Its own accelerators first: nobody else has to leave them.
    std::stable_partition(
        room.free.begin(), room.free.end(), [&](AcceleratorId id) {
          return std::find(job.holds.begin(), job.holds.end(), id) !=
                 job.holds.end();
        });
    const auto end = room.free.begin() + static_cast<std::ptrdiff_t>(std::min(
                                             needed, room.free.size()));
    placed.insert(placed.end(), room.free.begin(), end);
    room.free.erase(room.free.begin(), end);
    std::sort(room.free.begin(), room.free.end());
  }
  for (const AcceleratorId id : placed) given_[id.value() - 1] = true;
  std::sort(placed.begin(), placed.end());
  return placed;
}

Placement::Room& Placement::RoomOf(AcceleratorId id) {
  auto& rooms = rooms_[static_cast<size_t>(cluster_.TypeOf(id))];
  return *std::lower_bound(rooms.begin(), rooms.end(),
                           cluster_.accelerator(id).server,
                           [](const Room& room, const std::string& server) {
                             return *room.server < server;
                           });
}

Placement::Room& Placement::BestRoom(std::vector<Room>& rooms, size_t needed,
                                     const std::string& home_server) const {
  // Where all fit: home, else the tightest fit, which leaves the large holes to
  // the gangs; of equal ones a server in use, so that idle ones stay whole.
  // Where none has room for all: the largest hole, so that the gang ends on the
  // fewest servers. Lower keys are better; ties go by the server's name.
  const auto key = [&](const Room& room) {
    const bool fits = room.free.size() >= needed;
    const size_t free = room.free.size();
    const bool home = *room.server == home_server;
    const bool in_use = free < room.size;
    return fits ? std::tuple(0, !home, free, !in_use, false)
                : std::tuple(1, false, needed - free, false, !home);
  };
  return *std::min_element(
      rooms.begin(), rooms.end(),
      [&](const Room& a, const Room& b) { return key(a) < key(b); });
}

RoundAssignment PlaceAll(const Cluster& cluster, std::span<const RoundJob> jobs,
                         std::span<const std::optional<size_t>> type_of) {
  Placement placement(cluster);
  RoundAssignment assignment;
  std::vector<size_t> others;
  for (size_t m = 0; m < jobs.size(); ++m) {
    if (!type_of[m].has_value()) continue;
    const bool stays = TypeHeld(cluster, jobs[m]) == type_of[m];
    if (stays && placement.Keep(jobs[m])) {
      assignment[jobs[m].id] = jobs[m].holds;
    } else {
      others.push_back(m);
    }
  }
  // Large gangs first, while there are large holes; then those who have a home
  // that another one could take.
  std::sort(others.begin(), others.end(), [&](size_t a, size_t b) {
    const auto key = [&](const RoundJob& job) {
      return std::tuple(-job.scale_factor, job.home_server.empty(), job.id);
    };
    return key(jobs[a]) < key(jobs[b]);
  });
  for (const size_t m : others) {
    std::vector<AcceleratorId> placed = placement.Place(jobs[m], *type_of[m]);
    if (!placed.empty()) assignment[jobs[m].id] = std::move(placed);
  }
  return assignment;
}

}  // namespace gavel
