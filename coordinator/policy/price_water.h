// Water filling by prices (Gavel section 4.3), in at most J stages however many
// levels there are, and without integer variables. Amounts of all jobs rise
// with the level t, min(t rate_m, cap_m), to the highest feasible level. There
// the prices show which jobs cannot rise further: those that need more than the
// accelerators that cost nothing. These jobs are frozen at their amounts, the
// types with a price are full, and the other jobs rise on the rest of the other
// types. Where frozen jobs could exchange their shares, the filling ends
// without a proof.
//
// Caps make C (price_levels.h) neither convex nor concave in t, so a stage
// comes down from above: at the best bound t so far the master looks for a
// mixture of columns that fits. If the cost at new prices is above 1, the root
// below t is the next bound; older columns then give more than the demand, and
// stay valid. The stage ends when a mixture fits.
//
// Called by water_filling.cc. Pure function, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_PRICE_WATER_H_
#define GAVEL_COORDINATOR_POLICY_PRICE_WATER_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"

namespace gavel::policy {

// The demand curves of water filling (Gavel section 4.3): the amount that each
// job should have at each water level. Called by water_filling.cc and the
// policies built on it. Not thread-safe.
//
// An amount is the quantity that the policy makes equal: normalised throughput,
// or a share of the accelerators. There are k jobs; indices are those of
// ShareProblem.

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

struct PriceWater {
  std::vector<double> shares;  // [n x J]
  double first_bound = 0;      // no allocation gives all jobs a higher one
  int stages = 0;
  int passes = 0;
  bool converged = false;  // all stages met their bounds
};

// `rates` and `caps`: [n] steps/s, > 0; caps are at most the jobs' fastest.
PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> rates,
                        std::span<const double> caps);
// The same of demands that are at their start, as factor[m] times steps/s.
PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> factor,
                        Demands demands, std::span<const double> caps);

// The capacity that frozen jobs leave to the others: columns that are not
// scarce, and the rest of them. Water filling calls it between its stages
// (price_water.cc), and PriceProgram for the leftovers of a level. Not
// thread-safe.

// [J] columns whose accelerators cost nothing.
std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity);
// The most that the job can have on those, steps/s.
double FastestFree(const PriceJobs& jobs, const std::vector<bool>& free,
                   size_t job);
// Whether a job that has this much still rises where it could have `most`.
bool RisesOn(double has, double most);

// A job that is not frozen. A frozen one that divides its time between scarce
// columns and several others, all equally fast, stays as a `tied` one: it
// demands that time on those others, at a speed of 1 and at any level.
struct RestMember {
  size_t job = 0;
  bool tied = false;
  double time = 0;   // of a tied one
  double speed = 0;  // of a tied one, where it is tied
};

class PriceRest {
 public:
  // Begins with all jobs and the whole capacity. Borrows `jobs`.
  explicit PriceRest(const PriceJobs& jobs);

  std::span<const RestMember> members() const { return members_; }
  // The columns of the original problem that are left.
  std::span<const size_t> columns() const { return columns_; }
  // Whether no member can get anything.
  bool empty() const { return members_.empty() || columns_.empty(); }
  // The members on the remaining columns, with their remaining capacity.
  PriceJobs Jobs() const;

  // Freezes the members that do not rise, and drops columns that are full or
  // not free. `shares` [members x columns] are those of Jobs().
  void Freeze(std::span<const double> shares, const std::vector<bool>& free,
              const std::vector<bool>& rises);
  // All of them keep these shares.
  void FreezeAll(std::span<const double> shares);

  // [n x J] of frozen jobs.
  std::vector<double> TakeShares() { return std::move(shares_); }

 private:
  double Speed(const RestMember& member, size_t column) const;
  void Keep(size_t i, std::span<const double> shares, bool but_tied);
  RestMember TiedPart(size_t i, std::span<const double> shares) const;

  const PriceJobs& jobs_;
  std::vector<RestMember> members_;
  std::vector<size_t> columns_;  // of jobs_
  std::vector<bool> free_;       // [J] those that are so in the last Freeze
  std::vector<double> left_;     // [J]
  std::vector<double> shares_;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PRICE_WATER_H_
