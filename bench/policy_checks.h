// Whether an allocation is what its solver says: rates and loads of X, and what
// a bound's prices prove, worked out from the arrays by code that no solver
// uses. Of bench/policy_solver.cc and packing.cc.
#ifndef GAVEL_BENCH_POLICY_CHECKS_H_
#define GAVEL_BENCH_POLICY_CHECKS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/policy_instances.h"
#include "coordinator/policy/policy.h"

namespace gavel::bench {

// Of sums over a million jobs, relative.
inline constexpr double kRounding = 1e-10;

// The part by which X [jobs x types] is too large for the jobs' time or for the
// accelerators: it fits when divided by this. At least 1. Shares below 0 count
// as none.
double Excess(const Arrays& arrays, std::span<const double> shares);

// The least value(job, steps/s) of all jobs, with X divided by its excess.
double LeastValue(const Arrays& arrays, std::span<const double> shares,
                  const std::function<double(size_t, double)>& value);

// What all accelerators cost at `prices` [types] together is 1. The least that
// it costs that each job has demand(job), steps/s; infinite where one can't.
// From 1 on no allocation gives all jobs more.
double LeastCost(const Arrays& arrays, std::span<const double> prices,
                 const std::function<double(size_t)>& demand);

// Of two allocations' rates of a job, first / second, the one furthest from 1.
double WorstRatio(const Arrays& arrays, std::span<const double> first,
                  std::span<const double> second);

// [jobs x types] the shares of an allocation of jobs 1, 2, ... that run alone.
std::vector<double> AllShares(const Allocation& allocation, size_t jobs,
                              size_t types);

// Prints what was checked, and counts what is wrong.
class Checks {
 public:
  // An allocation has `value`, and none has more than `bound`, whose demands
  // cost `cost` at its prices: the gap that this proves is at most `gap_max`, a
  // part of the bound.
  void Certified(const std::string& what, double value, double bound,
                 double cost, double gap_max);
  // Two solvers' values of the same differ by this part at most.
  void Agree(const std::string& what, double value, double other,
             double part_max);
  void Holds(const std::string& what, bool holds);

  int wrong() const { return wrong_; }

 private:
  int wrong_ = 0;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_POLICY_CHECKS_H_
