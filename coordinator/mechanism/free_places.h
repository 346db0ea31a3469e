// The free accelerators of a cluster, by type and server: where a unit of a
// round goes. Made for one plan, or kept from one to the next by a caller that
// plans few units at a time. Not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_FREE_PLACES_H_
#define GAVEL_COORDINATOR_MECHANISM_FREE_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "core/ids.h"

namespace gavel {

// Those of one type, server by server.
class FreeAccelerators {
 public:
  // Servers one after the other, by name, and so their indices. `given`:
  // a unit has it. Returns the room that it is in.
  uint32_t Add(uint32_t server, AcceleratorId id, bool given);
  // All are there.
  void Close();

  size_t count() const { return count_; }
  // The most that are free on one server.
  size_t LargestHole();
  // One of the room that was given, and one that was free.
  void Release(uint32_t room, AcceleratorId id);
  void Claim(uint32_t room, AcceleratorId id);

  // `wanted` accelerators, ascending: on one server when any has room, else on
  // the fewest. `home_server` first among servers that serve as well, `own`
  // accelerators first on their server. Empty when there are not as many.
  std::vector<AcceleratorId> Take(const Cluster& cluster, size_t wanted,
                                  const std::string& home_server,
                                  std::span<const AcceleratorId> own);

 private:
  // One server's accelerators of the type. The free ones are
  // free_[begin, begin + free), ascending.
  struct Room {
    uint32_t server = 0;
    AcceleratorId first;  // one of them
    size_t begin = 0;
    size_t free = 0;
    size_t size = 0;  // usable ones, free or not
  };

  std::span<AcceleratorId> FreeIn(const Room& room) {
    return {free_.data() + room.begin, room.free};
  }
  void File(size_t room);
  // Not 0: the room is in rooms_with_[free], free > 0.
  uint8_t& Filed(size_t room, size_t free) {
    return filed_[rooms_[room].begin + free - 1];
  }
  std::optional<size_t> BestWith(size_t free);
  size_t BestRoom(size_t needed, std::optional<size_t> home);
  std::optional<size_t> Find(const Cluster& cluster,
                             const std::string& server) const;

  std::vector<AcceleratorId> free_;  // room by room
  std::vector<Room> rooms_;          // by the server's name
  size_t count_ = 0;                 // that are free
  // By the number of free accelerators: a heap of rooms, those in use first,
  // then by name. A room that has another number by now is passed over.
  std::vector<std::vector<uint64_t>> rooms_with_;
  std::vector<uint8_t> filed_;
};

class FreePlaces {
 public:
  // Of a cluster in which no accelerator comes or goes from then on. `given`:
  // by accelerator id - 1, not 0 for one that a unit has.
  FreePlaces(const Cluster& cluster, std::span<const uint8_t> given);

  // By type: how many are free.
  std::vector<int> Counts() const;
  // Of one type: how many are free, and how many of them on one server.
  size_t Count(size_t type) const { return types_[type].count(); }
  size_t LargestHole(size_t type) { return types_[type].LargestHole(); }
  bool IsFree(AcceleratorId id) const { return given_[id.value() - 1] == 0; }
  // Usable ones: of one that is given, and of one that is free.
  void Release(AcceleratorId id);
  void Claim(AcceleratorId id);
  // As FreeAccelerators::Take.
  std::vector<AcceleratorId> Take(const Cluster& cluster, size_t type,
                                  size_t wanted, const std::string& home_server,
                                  std::span<const AcceleratorId> own);

 private:
  FreeAccelerators& OfType(AcceleratorId id) {
    return types_[type_of_[id.value() - 1]];
  }

  std::vector<FreeAccelerators> types_;
  std::vector<uint32_t> type_of_;  // by accelerator id - 1, as the next two
  std::vector<uint8_t> given_;
  std::vector<uint32_t> rooms_;  // of its type
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_FREE_PLACES_H_
