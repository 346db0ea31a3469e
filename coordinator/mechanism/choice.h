// The greedy choice of a round: which units run, and on which type. Gavel
// section 5.2, algorithm 1. Used inside the round mechanism only; not
// thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_CHOICE_H_
#define GAVEL_COORDINATOR_MECHANISM_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/mechanism/debts.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_view.h"

namespace gavel {

// One unit on one type. The smaller key goes first.
struct Candidate {
  uint64_t key = 0;
  uint32_t unit = 0;
  uint32_t type = 0;
};

// Types [begin, end).
struct TypeRange {
  size_t begin = 0;
  size_t end = 0;
};

// What is chosen so far and what is left of each type.
class Choice {
 public:
  // Borrows the view, which must outlive it and not change.
  Choice(const RoundView& view, const RoundOptions& options);

  // Units that hold accelerators keep their type.
  void KeepRunning();
  // By priority, then, if the options say so, what is left.
  void TakeAll();
  // Nothing happens when a job of the unit has a type already or the gang
  // doesn't fit.
  void Take(size_t unit, size_t type);

  // RoundAssignment::claims.
  std::vector<RoundAssignment::Claim> Claims() const;

  // By unit: the type chosen, or kNoIndex.
  const std::vector<uint32_t>& type_of() const { return type_of_; }
  // The units chosen, the first one first.
  const std::vector<uint32_t>& in_turn() const { return in_turn_; }

 private:
  // Of one kind of candidates. Key: (unit, type) to the key, kNoClaim where it
  // is none; and Below(high), by which (unit, type) is surely none, or above
  // `high`, where it says false. Ties: the order of equal keys.
  template <class Key, class Ties>
  void TakeInOrder(TypeRange types, Key key, Ties ties);
  // Candidates with keys in [low, high], of units and types that are free.
  template <class Key>
  void Gather(TypeRange types, Key key, uint64_t low, uint64_t high);
  template <class Key>
  uint64_t HighestOf(TypeRange types, Key key, uint64_t low, size_t wanted);
  template <class Before>
  void TakeGathered(TypeRange types, size_t piece, Before before);

  void TakeByPriority(TypeRange types);
  void TakeLeftovers(TypeRange types, bool packed);
  void Upgrade();
  struct Better {
    double gain = 0;
    uint32_t unit = 0;
    uint32_t from = 0;
    uint32_t to = 0;
  };
  // What there is room for now, the largest gain first.
  std::vector<Better> Upgrades() const;
  void Move(uint32_t unit, uint32_t to);
  // Of an accelerator in this round, what a move takes of it deducted.
  double Worth(size_t unit, size_t type) const;
  bool MayMove(size_t unit) const;
  bool Free(size_t unit) const {
    return !taken_[view_.Job(unit)] && !taken_[view_.Partner(unit)];
  }
  bool HasRoom(TypeRange types) const;
  bool HasRoom(size_t unit, size_t type) const {
    return room_[type] >= view_.table().scale_factor(unit);
  }

  const RoundView& view_;
  const RoundOptions options_;
  std::optional<Debts> debts_;     // of the move-aware mechanism
  std::vector<int> room_;          // by type: accelerators
  int scale_factor_min_ = 0;       // of all units
  std::vector<uint32_t> type_of_;  // by unit
  std::vector<uint32_t> in_turn_;
  std::vector<uint32_t> claimed_;  // by unit, where it has moved; or empty
  std::vector<bool> taken_;        // by job
  std::vector<Candidate> candidates_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_CHOICE_H_
