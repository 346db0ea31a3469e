// What jobs that are frozen leave to the others: columns that are not scarce,
// and what is left of them. Called by water filling between its stages
// (price_water.cc) and by PriceProgram for what a level leaves over. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_REST_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_REST_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"

namespace gavel::policy {

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
  // All jobs, and all that there is. Borrows them.
  explicit PriceRest(const PriceJobs& jobs);

  std::span<const RestMember> members() const { return members_; }
  // Those of all jobs that are left.
  std::span<const size_t> columns() const { return columns_; }
  // Nobody can have anything.
  bool empty() const { return members_.empty() || columns_.empty(); }
  // The members on the columns left, and what is left of these.
  PriceJobs Jobs() const;

  // Of Jobs(), which have `shares` [members x columns]: those that do not rise
  // are frozen, and columns that are not free or full are no more.
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

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_REST_H_
