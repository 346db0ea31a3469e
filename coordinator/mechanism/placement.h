// Placement: which accelerators of a type a job gets. Jobs that stay keep
// theirs; gangs go to as few servers as possible, single workers fill up
// servers that are partly used. Gavel section 5 ("Placement").
// Used by the round mechanism only. Not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
#define GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"

namespace gavel {

// Type of what `job` holds, if it may keep it: as many as its scale factor, all
// usable, all of one type.
std::optional<size_t> TypeHeld(const Cluster& cluster, const RoundJob& job);

// Places the jobs of one round; each accelerator is given away at most once.
// Borrows the cluster, which must not change meanwhile.
class Placement {
 public:
  explicit Placement(const Cluster& cluster);

  // Gives the job what it holds. False, and nothing given, when it can't keep
  // it (TypeHeld) or another job has got some of it.
  bool Keep(const RoundJob& job);

  // scale_factor free accelerators of `type`, ascending: all on one server when
  // any has room, else on the fewest. The job's home server goes first among
  // servers that serve as well. Empty, and nothing given, when there is no room
  // for all of the gang.
  std::vector<AcceleratorId> Place(const RoundJob& job, size_t type);

 private:
  // One server's accelerators of one type.
  struct Room {
    const std::string* server = nullptr;  // borrowed from the cluster
    std::vector<AcceleratorId> free;      // ascending
    size_t size = 0;                      // usable ones, free or not
  };

  // Where a usable accelerator is.
  Room& RoomOf(AcceleratorId id);
  Room& BestRoom(std::vector<Room>& rooms, size_t needed,
                 const std::string& home_server) const;

  const Cluster& cluster_;
  std::vector<std::vector<Room>> rooms_;  // by type; servers by name
  std::vector<bool> given_;               // by accelerator id - 1
};

// Places every job that `type_of` gives a type ([jobs], index into the
// cluster's types): those that stay first, then the largest gangs.
RoundAssignment PlaceAll(const Cluster& cluster, std::span<const RoundJob> jobs,
                         std::span<const std::optional<size_t>> type_of);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
