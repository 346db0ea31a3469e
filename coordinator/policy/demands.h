// The demand curves of water filling (Gavel section 4.3): the amount that each
// job should have at each water level. Called by water_filling.cc and the
// policies built on it. Not thread-safe.
//
// An amount is the quantity that the policy makes equal: normalised throughput,
// or a share of the accelerators. There are k jobs; indices are those of
// ShareProblem.
#ifndef GAVEL_COORDINATOR_POLICY_DEMANDS_H_
#define GAVEL_COORDINATOR_POLICY_DEMANDS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace gavel::policy {

// Jobs whose amounts together rise by `weight` times the level. The whole rise
// goes to the first tier until its jobs are at their caps or frozen, then to
// the next. Within a tier it is divided in proportion to the jobs' rates, and a
// job at its cap leaves its part to the others.
struct DemandGroup {
  double weight = 1;  // > 0
  std::vector<std::vector<size_t>> tiers;
};

class Demands {
 public:
  // `rates`, `caps`: [k], > 0. Each job is in one tier of one group.
  Demands(std::vector<double> rates, std::vector<double> caps,
          std::vector<DemandGroup> groups);
  // Makes a group for each job, with its rate as the weight: flat water
  // filling. `floors` [k], at most the caps, are amounts that jobs have from
  // level 0 on, until the amount that rises with the level exceeds them. Empty:
  // none.
  static Demands Flat(std::vector<double> rates, std::vector<double> caps,
                      std::vector<double> floors = {});

  // The level from which on all jobs are at their caps; 0 if no job is left.
  double TopLevel() const;
  // Writes the amounts [k] at `level` >= 0, counted from the last Advance. They
  // are continuous in the level and never fall. Frozen jobs stay where they
  // are.
  void At(double level, std::span<double> amounts) const;
  // Makes `level` the new level 0. Amounts rise from `amounts`, which are those
  // at the level or a little less. Jobs in `to_freeze`, and jobs within
  // rounding of their caps, become frozen and no longer rise.
  void Advance(double level, std::span<const double> amounts,
               const std::vector<bool>& to_freeze);
  // Sets the cap of job m to `cap`, or to the amount that the job already has
  // if that is more.
  void LowerCap(size_t m, double cap) {
    caps_[m] = std::max({base_[m], floors_[m], cap});
  }
  bool frozen(size_t m) const { return frozen_[m]; }
  size_t unfrozen() const { return unfrozen_; }
  double cap(size_t m) const { return caps_[m]; }

 private:
  void Sort();
  // As At, without the floors.
  void RisenTo(double level, std::span<double> amounts) const;
  double Room(size_t m) const { return caps_[m] - base_[m]; }

  std::vector<double> rates_;
  std::vector<double> caps_;
  std::vector<DemandGroup> groups_;  // jobs that are not frozen
  std::vector<double> base_;    // [k] amounts at level 0, without the floors
  std::vector<double> floors_;  // [k]
  std::vector<bool> frozen_;    // [k]
  size_t unfrozen_ = 0;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_DEMANDS_H_
