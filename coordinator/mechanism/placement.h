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
#include <vector>

#include "coordinator/mechanism/free_places.h"
#include "coordinator/mechanism/round_view.h"
#include "core/ids.h"

namespace gavel {

// Places the units of one round; each accelerator is given away at most once.
// Borrows the view, which must not change meanwhile, and `free`, from which it
// takes; null: all accelerators are free.
class Placement {
 public:
  Placement(const RoundView& view, FreePlaces* free);

  // Gives away exactly these. False, and nothing given, when one of them is
  // gone already. Before any Place.
  bool Keep(std::span<const AcceleratorId> accelerators);

  // scale_factor free accelerators of `type`, as FreeAccelerators::Take.
  std::vector<AcceleratorId> Place(size_t unit, size_t type);

 private:
  bool IsFree(AcceleratorId id) const;
  void Give(AcceleratorId id, bool given);

  const RoundView& view_;
  FreePlaces* free_;
  std::vector<uint8_t> given_;     // by accelerator id - 1, before own_
  std::optional<FreePlaces> own_;  // made when needed
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
