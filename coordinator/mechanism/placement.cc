#include "coordinator/mechanism/placement.h"

#include <algorithm>
#include <functional>

namespace gavel {
namespace {

// Keys of a heap of rooms: a server in use before one that is whole.
constexpr uint64_t kWhole = uint64_t{1} << 63;

}  // namespace

void FreeAccelerators::Add(const std::string& server, AcceleratorId id,
                           bool given) {
  if (rooms_.empty() || rooms_.back().server != &server) {
    rooms_.push_back({&server, free_.size(), 0, 0});
  }
  Room& room = rooms_.back();
  ++room.size;
  if (given) return;
  ++room.free;
  free_.push_back(id);
}

void FreeAccelerators::Close() {
  count_ = free_.size();
  for (const Room& room : rooms_) {
    const auto begin = free_.begin() + static_cast<std::ptrdiff_t>(room.begin);
    const auto end = begin + static_cast<std::ptrdiff_t>(room.free);
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
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
  if (rooms_with_.size() <= free) rooms_with_.resize(free + 1);
  std::vector<uint64_t>& heap = rooms_with_[free];
  heap.push_back((free == rooms_[room].size ? kWhole : 0) | room);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

// The best of the rooms with exactly so many free.
std::optional<size_t> FreeAccelerators::BestWith(size_t free) {
  std::vector<uint64_t>& heap = rooms_with_[free];
  while (!heap.empty()) {
    const size_t room = heap.front() & ~kWhole;
    if (rooms_[room].free == free) return room;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
  }
  return std::nullopt;
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

std::optional<size_t> FreeAccelerators::Find(const std::string& server) const {
  const auto found =
      std::lower_bound(rooms_.begin(), rooms_.end(), server,
                       [](const Room& room, const std::string& name) {
                         return *room.server < name;
                       });
  if (found == rooms_.end() || *found->server != server) return std::nullopt;
  return static_cast<size_t>(found - rooms_.begin());
}

std::vector<AcceleratorId> FreeAccelerators::Take(
    size_t wanted, const std::string& home_server,
    std::span<const AcceleratorId> own) {
  std::vector<AcceleratorId> taken;
  if (count_ < wanted) return taken;
  taken.reserve(wanted);
  std::optional<size_t> home;
  if (!home_server.empty()) home = Find(home_server);
  while (taken.size() < wanted) {
    const size_t index = BestRoom(wanted - taken.size(), home);
    Room& room = rooms_[index];
    const auto begin = free_.begin() + static_cast<std::ptrdiff_t>(room.begin);
    // Its own accelerators first: nobody else has to leave them.
    if (!own.empty()) {
      std::stable_partition(
          begin, begin + static_cast<std::ptrdiff_t>(room.free),
          [&](AcceleratorId id) {
            return std::find(own.begin(), own.end(), id) != own.end();
          });
    }
    const size_t count = std::min(wanted - taken.size(), room.free);
    taken.insert(taken.end(), begin,
                 begin + static_cast<std::ptrdiff_t>(count));
    room.begin += count;
    room.free -= count;
    count_ -= count;
    File(index);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

Placement::Placement(const RoundView& view)
    : view_(view), given_(view.cluster().accelerators().size(), false) {}

bool Placement::Keep(std::span<const AcceleratorId> accelerators) {
  for (size_t i = 0; i < accelerators.size(); ++i) {
    const size_t index = accelerators[i].value() - 1;
    if (given_[index]) {
      while (i-- > 0) given_[accelerators[i].value() - 1] = false;
      return false;
    }
    given_[index] = true;
  }
  return true;
}

void Placement::FindFree() {
  free_.resize(view_.capacity().size());
  for (const auto& [server, ids] : view_.cluster().servers()) {
    for (const AcceleratorId id : ids) {
      const uint32_t type = view_.TypeOf(id);
      if (type == kNoIndex) continue;
      free_[type].Add(server, id, given_[id.value() - 1]);
    }
  }
  for (FreeAccelerators& free : free_) free.Close();
}

std::vector<AcceleratorId> Placement::Place(size_t unit, size_t type) {
  const int scale_factor = view_.table().scale_factor(unit);
  if (type >= view_.capacity().size() || scale_factor < 1) return {};
  if (free_.empty()) FindFree();
  return free_[type].Take(static_cast<size_t>(scale_factor),
                          view_.table().home_server(unit),
                          view_.table().holds(unit));
}

}  // namespace gavel
