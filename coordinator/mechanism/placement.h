// Chooses the accelerators of each unit that was chosen for a round, given the
// unit's type. Gavel section 5, "Placement": a unit that keeps its type keeps
// its accelerators, a gang gets as few servers as possible, and single workers
// fill up servers that are partly used. Stragglers (RoundTable::slow) are given
// away last, and a unit gets the accelerators that it avoids
// (RoundTable::Avoided) last. Used inside the round mechanism only. An object
// makes one plan. Not thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
#define GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"

namespace gavel {

class Placement {
 public:
  // Borrows its arguments, which must outlive the object. Takes accelerators
  // from `free`; null: all accelerators are free.
  Placement(const RoundView& view, const Choice& choice, FreePlaces* free);

  struct Chosen {
    uint32_t unit = 0;
    uint32_t type = 0;
  };

  // May be called once. A unit moves from a straggler to idle accelerators that
  // are not stragglers if it wins more time within `moves_within_s` than the
  // move costs. Units also leave accelerators that they avoid for idle ones. 0:
  // a unit moves only if it must.
  RoundAssignment PlaceAll(double moves_within_s);
  // The chosen units that avoid accelerators and got none, because none that
  // they may use was left.
  const std::vector<Chosen>& unplaced() const { return unplaced_; }

 private:
  void KeepOwn();
  void InheritFromPairs();
  bool Inherit(uint32_t c, uint32_t from);
  void PlaceOthers();

  // These take free stragglers out of the free accelerators and put them back;
  // see aside_.
  void SetAllAside();
  void SetAside(size_t type);
  void Return(size_t type);
  std::vector<bool> Late() const;
  void SortByTurn(std::vector<uint32_t>& chosen) const;
  std::vector<AcceleratorId> Take(uint32_t unit, size_t type);
  void LeaveStragglers(double moves_within_s);
  bool LeavePays(uint32_t unit, double moves_within_s) const;
  template <class Leaves>
  void Leave(uint32_t c, const Leaves& leaves);

  // Accelerators of one type that are free or set aside, but that a unit
  // avoids. Hide marks them as given away, except, with `only_never`, those
  // that the unit would take if it had to. Show undoes Hide.
  struct Hidden {
    size_t type = 0;
    std::vector<AcceleratorId> free;
    std::vector<AcceleratorId> aside;
  };
  Hidden Hide(uint32_t unit, size_t type, bool only_never);
  void Show(const Hidden& hidden);
  std::vector<AcceleratorId> TakeUnavoided(uint32_t unit, size_t type);
  bool MustLeave(uint32_t unit) const;
  void LeaveAvoided();
  void ChangePlaces();
  bool ChangePlaces(uint32_t c, uint32_t other);

  void Give(uint32_t c, std::span<const AcceleratorId> accelerators);
  bool Keep(std::span<const AcceleratorId> accelerators);
  bool IsSlow(AcceleratorId id) const { return table_.slow().contains(id); }
  size_t ServersOf(std::span<const AcceleratorId> accelerators) const;
  bool IsFree(AcceleratorId id) const {
    return free_ != nullptr ? free_->IsFree(id) : given_[id.value() - 1] == 0;
  }
  void SetGiven(AcceleratorId id, bool given);

  const RoundView& view_;
  const RoundTable& table_;
  const Choice& choice_;
  FreePlaces* free_;
  std::vector<uint8_t> given_;                  // by id - 1, before own_
  std::optional<FreePlaces> own_;               // made when needed
  std::vector<Chosen> chosen_;                  // ascending by unit
  std::vector<RoundAssignment::Entry> placed_;  // as chosen_
  std::vector<uint32_t> kept_;                  // indices into chosen_
  std::vector<uint32_t> moving_;                // the same
  // Free stragglers by type, held back until the others are given away. Empty
  // if no accelerator is a straggler.
  std::vector<std::vector<AcceleratorId>> aside_;
  std::vector<Chosen> unplaced_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_PLACEMENT_H_
