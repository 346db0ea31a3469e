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
#ifndef GAVEL_COORDINATOR_MECHANISM_DEBTS_H_
#define GAVEL_COORDINATOR_MECHANISM_DEBTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/mechanism/round_view.h"

namespace gavel {

// H above, in rounds.
inline constexpr double kLeadHorizonRounds = 24;
// No lead is longer, whatever the change costs. Of single workers whose shares
// can be met, none was ever owed more on a type than 2 leads + 3.2 rounds, on
// 1,050 random clusters (paper's mechanism: 3.5 rounds). That is no proof: with
// shares on several types, one unit may be owed the most on each.
inline constexpr double kLeadRoundsMax = 6;
// A share below this has the lead in proportion: a full one would be many times
// what the unit is to have for a long while.
inline constexpr double kLeadShareMin = 0.3;

// Seconds of lead for changes of `cost_s` (not positive: none).
double LeadSeconds(double cost_s, double round_duration_s);

// A unit that waits and is owed more than this part of all that it was to
// receive has the lead, too, and so goes by debts alone. Long jobs seldom are;
// short ones would end with what two leads have cost them.
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

  // The unit runs where it has no share (any more), and what it is owed on its
  // own types is less than a move there costs: it claims nothing, and stays as
  // long as what it has is left over.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_DEBTS_H_
