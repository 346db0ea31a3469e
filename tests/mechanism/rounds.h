// Many rounds in a row, with the books that the engine keeps.
#ifndef GAVEL_TESTS_MECHANISM_ROUNDS_H_
#define GAVEL_TESTS_MECHANISM_ROUNDS_H_

#include <map>
#include <vector>

#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"

namespace gavel::testing {

class Rounds {
 public:
  // Borrows the cluster.
  Rounds(const Cluster& cluster, std::vector<RoundUnit> units);

  // Time received and deficits, as they stand, into `units`.
  void SetOut();
  // One round: planned, checked (RoundErrors), held and booked.
  RoundAssignment Run(const RoundOptions& options);
  void Run(const RoundOptions& options, int rounds);

  std::vector<RoundUnit> units;
  TimeReceived received;

  int rounds() const { return rounds_; }
  // Units that lost or changed their accelerators, and the work that it cost.
  int changes() const { return changes_; }
  double lost_s() const { return lost_s_; }
  // Onto other accelerators of the same type.
  int moves_within_type() const { return moves_within_type_; }
  // Fraction of the time so far.
  double Share(const RoundUnit& unit, size_t type) const;
  // The least of received / meant over units that were meant to have
  // `share_min` or more; at most 1.
  double WorstShare(double share_min) const;
  // The most that a unit was ever owed on one type, in rounds.
  double WorstDebt() const { return worst_debt_s_ / kRound_s; }

  static constexpr double kRound_s = 360;

 private:
  void Count(const RoundUnit& unit, const std::vector<AcceleratorId>& next);
  void Book(const RoundUnit& unit, const std::vector<AcceleratorId>& next);

  const Cluster& cluster_;
  int rounds_ = 0;
  int changes_ = 0;
  double lost_s_ = 0;
  int moves_within_type_ = 0;
  double worst_debt_s_ = 0;
  std::map<ShareUnit, std::vector<double>> meant_s_;  // by type, never aged
  std::map<ShareUnit, std::vector<double>> total_s_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_MECHANISM_ROUNDS_H_
