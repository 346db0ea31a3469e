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
#include "coordinator/mechanism/round_table.h"

namespace gavel {

// One unit on one type.
struct Candidate {
  double standing = 0;  // smaller goes first
  double deficit_s = 0;
  double share = 0;
  uint32_t position = 0;  // of the unit, among all of them
  uint32_t unit = 0;
  uint32_t type = 0;
  bool holds = false;   // the unit runs on this type now
  bool packed = false;  // among leftovers, jobs alone go first
};

// What is chosen so far and what is left of each type.
class Choice {
 public:
  // Borrows the table, which must outlive it and not change.
  Choice(const RoundTable& table, const RoundOptions& options);

  // Whoever holds accelerators keeps their type.
  void KeepRunning();
  // By priority, then, if the options say so, what is left.
  void TakeAll();
  // Nothing happens when a job of the unit has a type already or the gang
  // doesn't fit.
  void Take(size_t unit, size_t type);

  // By unit: the type chosen, or kNone.
  const std::vector<uint32_t>& type_of() const { return type_of_; }

 private:
  // Of types in [begin, end).
  void TakeByPriority(size_t begin, size_t end);
  void TakeLeftovers(size_t begin, size_t end);
  // The unit on a type as a candidate by priority; nullopt: it has no claim.
  std::optional<Candidate> Claim(uint32_t unit, size_t type) const;
  bool Free(const RoundRow& row) const {
    return !taken_[row.job] && !taken_[row.partner];
  }
  bool HasRoom(size_t begin, size_t end) const;
  template <class Before>
  void TakeInOrder(std::vector<Candidate>& candidates, size_t begin, size_t end,
                   Before before);

  const RoundTable& table_;
  const RoundOptions options_;
  std::optional<Debts> debts_;     // of the move-aware mechanism
  std::vector<int> room_;          // by type: accelerators
  int scale_factor_min_ = 0;       // of all units
  std::vector<uint32_t> type_of_;  // by unit
  std::vector<bool> taken_;        // by job
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_CHOICE_H_
