// The greedy choice of a round: which units run, and on which type. Gavel
// section 5.2, algorithm 1. Used inside the round mechanism only; not
// thread-safe.
#ifndef GAVEL_COORDINATOR_MECHANISM_CHOICE_H_
#define GAVEL_COORDINATOR_MECHANISM_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"

namespace gavel {

// The order of the move-aware mechanism: by what each unit
// is owed, with a lead for those that run. Used inside the round mechanism
// only; a value that borrows the round's view.
//
// A change of the units that run costs work, so it has to pay. With slices of q
// seconds a change of cost c takes the part c / q of the time, while debts of
// up to q build up; c / q + q / (2 H) is least at q = sqrt(2 c H), the economic
// order quantity, where H says how long a debt is worth as much as its own
// length of lost work. That q is the lead: as far as a unit that runs may get
// ahead of those that wait before it has to go.

// H above, in rounds.
inline constexpr double kLeadHorizonRounds = 24;
// No lead is longer than this, whatever the change costs. On 1,050 random
// clusters, no single worker with shares that can be met was ever owed more on
// a type than 2 leads + 3.2 rounds (the paper's mechanism: 3.5 rounds). That is
// no proof: with shares on several types, one unit may be owed the most on
// each.
inline constexpr double kLeadRoundsMax = 6;
// A share below this has the lead in proportion: a full one would be many times
// what the unit is to have for a long while.
inline constexpr double kLeadShareMin = 0.3;

// Seconds of lead for changes of `cost_s` (not positive: none).
double LeadSeconds(double cost_s, double round_duration_s);

// A waiting unit that is owed more than this part of all that it was to receive
// also gets the lead, and so is ordered by debts alone. Long jobs are seldom
// owed so much; short ones would end with the time that two leads have cost
// them.
inline constexpr double kOwedPartMax = 0.1;

class Debts {
 public:
  // Borrows the view, which must outlive it and not change.
  Debts(const RoundView& view, double round_duration_s);

  // Where the unit stands on a type; smaller goes first. Its debt, with the
  // lead if it runs there, as a time: divided by its share. A job that has not
  // received anything yet comes before all others. Where a unit runs comes
  // before its other types unless one of them is ahead even of the lead that a
  // move is worth.
  double Standing(size_t unit, size_t type) const;

  // The unit runs where it has no share (any more), and a move to its own types
  // would cost more than it is owed there. It claims nothing, and stays as long
  // as its accelerators are left over.
  bool StaysForNow(size_t unit) const;

  // Among leftovers; smaller goes first. Debts on all types together.
  double LeftoverStanding(size_t unit, size_t type) const;

 private:
  double Debt(size_t unit, size_t type) const {
    return table_.deficit_s(unit)[type];
  }
  double OwnStanding(size_t unit, size_t type, double cost_s) const;
  bool IsNew(size_t unit) const;
  bool HasShare(size_t unit, uint32_t type) const;

  const RoundView& view_;
  const RoundTable& table_;
  double round_duration_s_;
  std::vector<bool> served_;  // by job: it has received time
};

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

// The units chosen so far and the accelerators left of each type.
class Choice {
 public:
  // Borrows the view, which must outlive it and not change.
  Choice(const RoundView& view, const RoundOptions& options);

  // Units that hold accelerators keep their type.
  void KeepRunning();
  // Chooses by priority, and then gives out the remainder if the options say
  // so.
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
  // Takes candidates of one kind. Key maps (unit, type) to the key, or to
  // kNoClaim if there is none. Below(high) gives a test: where it is false,
  // (unit, type) has no key, or one above `high`. Ties orders candidates with
  // equal keys.
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
  // The upgrades that there is room for now, the largest gain first.
  std::vector<Better> Upgrades() const;
  void Move(uint32_t unit, uint32_t to);
  // The worth of an accelerator in this round, less the cost of a move there.
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
