// Allocations as plain rows while a policy works on them: making them feasible
// and measuring them. Called by policies that solve linear programs. Pure
// functions, thread-safe.
//
// Everywhere k jobs, J types; `shares` is X, [k x J] row-major.
#ifndef GAVEL_COORDINATOR_POLICY_SHARES_H_
#define GAVEL_COORDINATOR_POLICY_SHARES_H_

#include <cstddef>
#include <span>
#include <vector>

namespace gavel {

// What makes X feasible: X >= 0, rows sum to at most 1, and the sum over jobs
// of scale_factor[m] X[m][j] is at most capacity[j]. Gavel section 3.1.
struct Limits {
  std::vector<double> capacity;      // [J], N_j >= 0
  std::vector<double> scale_factor;  // [k], s_m >= 1
};

// Brings a solver's X, right only to its tolerance, into its limits: clips
// negatives, then scales rows, then columns down. Feasible to rounding after.
void RepairShares(const Limits& limits, std::span<double> shares);

// A max-min problem: max over X of min over jobs of sum_j values[m][j] X[m][j].
struct MaxMinProblem {
  Limits limits;
  std::vector<double> values;  // [k x J], 0 where the job cannot run

  size_t types() const { return limits.capacity.size(); }
  size_t jobs() const { return limits.scale_factor.size(); }
  std::span<const double> Row(size_t m) const {
    return {values.data() + m * types(), types()};
  }
};

// Each type split evenly over the accelerators asked for by those who can use
// it: feasible, and above zero for every job. What a solver must beat.
std::vector<double> EvenShares(const MaxMinProblem& problem);

// min over jobs of values . shares: the objective. k >= 1.
double SmallestValue(const MaxMinProblem& problem,
                     std::span<const double> shares);

// No X has a higher objective than this, whatever the arguments: by weak
// duality, with `job_weight` >= 0 ([k]) as the prices of the jobs' values and
// `price` >= 0 ([J]) as those of the accelerators. Negative ones count as 0.
// Tight when they are the dual optimum of the linear program.
double UpperBound(const MaxMinProblem& problem,
                  std::span<const double> job_weight,
                  std::span<const double> price);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_SHARES_H_
