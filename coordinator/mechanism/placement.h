// Placement: which accelerators of a type a unit gets. Units that stay keep
// theirs; gangs go to as few servers as possible, single workers fill up
// servers that are partly used. Gavel section 5 ("Placement").
// Used by the round mechanism only. Not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
#define GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/mechanism/round_view.h"
#include "core/ids.h"

namespace gavel {

// The free accelerators of one type, server by server. Filled once; only taken
// from afterwards.
class FreeAccelerators {
 public:
  // Servers one after the other, by name. Borrows the name. `given`: somebody
  // has it.
  void Add(const std::string& server, AcceleratorId id, bool given);
  // All are there.
  void Close();

  // `wanted` accelerators, ascending: on one server when any has room, else on
  // the fewest. `home_server` first among servers that serve as well, `own`
  // accelerators first on their server. Empty when there are not as many.
  std::vector<AcceleratorId> Take(size_t wanted, const std::string& home_server,
                                  std::span<const AcceleratorId> own);

 private:
  // One server's accelerators of the type. The free ones are
  // free_[begin, begin + free), ascending.
  struct Room {
    const std::string* server = nullptr;  // borrowed from the cluster
    size_t begin = 0;
    size_t free = 0;
    size_t size = 0;  // usable ones, free or not
  };

  void File(size_t room);
  std::optional<size_t> BestWith(size_t free);
  size_t BestRoom(size_t needed, std::optional<size_t> home);
  std::optional<size_t> Find(const std::string& server) const;

  std::vector<AcceleratorId> free_;  // room by room
  std::vector<Room> rooms_;          // by the server's name
  size_t count_ = 0;                 // that are free
  // By the number of free accelerators: a heap of rooms, those in use first,
  // then by name. A room that has become smaller since is passed over.
  std::vector<std::vector<uint64_t>> rooms_with_;
};

// Places the units of one round; each accelerator is given away at most once.
// Borrows the view, which must not change meanwhile.
class Placement {
 public:
  explicit Placement(const RoundView& view);

  // Gives away exactly these. False, and nothing given, when one of them is
  // gone already. Before any Place.
  bool Keep(std::span<const AcceleratorId> accelerators);

  // scale_factor free accelerators of `type`, as FreeAccelerators::Take.
  std::vector<AcceleratorId> Place(size_t unit, size_t type);

 private:
  void FindFree();

  const RoundView& view_;
  std::vector<bool> given_;             // by accelerator id - 1
  std::vector<FreeAccelerators> free_;  // by type; empty until needed
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
