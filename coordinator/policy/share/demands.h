// What each job is to have as the water rises: the demand curves of water
// filling (Gavel section 4.3). Called by water_filling.cc and the policies on
// it. Not thread-safe.
//
// Amounts are what the policy makes equal: normalised throughput, or a share of
// the accelerators. k jobs, indices as in ShareProblem.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_DEMANDS_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_DEMANDS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace gavel::policy {

// Jobs whose amounts rise together by `weight` times the level. All of it goes
// to the first tier until its jobs are at their caps or frozen, then to the
// next; within a tier in proportion to the jobs' rates, a job at its cap
// leaving its part to the others.
struct DemandGroup {
  double weight = 1;  // > 0
  std::vector<std::vector<size_t>> tiers;
};

class Demands {
 public:
  // `rates`, `caps`: [k], > 0. Each job is in one tier of one group.
  Demands(std::vector<double> rates, std::vector<double> caps,
          std::vector<DemandGroup> groups);
  // A group for each job, with its rate as weight: flat water filling. `floors`
  // [k], at most the caps: amounts that jobs have from level 0 on, until what
  // rises with the level is more. Empty: none.
  static Demands Flat(std::vector<double> rates, std::vector<double> caps,
                      std::vector<double> floors = {});

  // The level from which on all jobs are at their caps. 0: no job is left.
  double TopLevel() const;
  // [k] amounts at a level >= 0 above the last Advance; continuous and never
  // falling in it. Frozen jobs stay where they are.
  void At(double level, std::span<double> amounts) const;
  // Levels count from `level` on. Amounts rise from `amounts`, those at the
  // level or a little less; jobs that are to be frozen, and those within
  // rounding of their caps, no longer do.
  void Advance(double level, std::span<const double> amounts,
               const std::vector<bool>& to_freeze);
  // The job can have no more than this, at least what it has.
  void LowerCap(size_t m, double cap) {
    caps_[m] = std::max({base_[m], floors_[m], cap});
  }
  bool frozen(size_t m) const { return frozen_[m]; }
  size_t unfrozen() const { return unfrozen_; }
  double cap(size_t m) const { return caps_[m]; }

 private:
  void Sort();
  // [k] as At, but for the floors.
  void RisenTo(double level, std::span<double> amounts) const;
  double Room(size_t m) const { return caps_[m] - base_[m]; }

  std::vector<double> rates_;
  std::vector<double> caps_;
  std::vector<DemandGroup> groups_;  // jobs that are not frozen
  std::vector<double> base_;    // [k] amounts at level 0, but for the floors
  std::vector<double> floors_;  // [k]
  std::vector<bool> frozen_;    // [k]
  size_t unfrozen_ = 0;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_DEMANDS_H_
