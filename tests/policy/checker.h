// What is right about an answer of any policy, worked out from the problem
// alone: feasibility, objective, bound, and what jobs have. For tests and
// benchmarks. Pure functions; those that look for errors return a text, empty:
// none.
#ifndef GAVEL_TESTS_POLICY_CHECKER_H_
#define GAVEL_TESTS_POLICY_CHECKER_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

inline constexpr double kFeasibility = 1e-9;  // relative, of limits
inline constexpr double kOptimality = 1e-6;   // relative, of objectives

// The result's allocation; an assignment as one with all of the time.
Allocation AllocationOf(const PolicyProblem& problem,
                        const PolicyResult& result);

// All that makes the answer infeasible by more than kFeasibility: negative
// shares, time where a unit can't run, more than all of a job's time or of a
// type's accelerators, more consolidated gangs than servers have room for, jobs
// wrongly left out or in.
std::string ShareErrors(const PolicyProblem& problem,
                        const PolicyResult& result);
// That, an outcome that is not optimal (but for deadlines that can't be met,
// where that is told), a bound or gap that is not true of the objective, a gap
// above kOptimality. `minimises`: the bound is below the objective.
std::string AnswerErrors(const PolicyProblem& problem,
                         const PolicyResult& result, bool minimises);

// [n] steps/s of all jobs. `agnostic`: the time that they run.
std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const Allocation& allocation, bool agnostic);
// [n] s_m / (w_m prop_m) T_m(X), Gavel section 4.1; NaN for jobs that run
// nowhere. Shares of servers' types as for ProportionalThroughputs.
std::vector<double> JobValues(const PolicyProblem& problem,
                              const Allocation& allocation, bool agnostic);
// The least of them, NaN left aside.
double LeastValue(const std::vector<double>& values);
// Ascending, without NaN.
std::vector<double> Sorted(std::vector<double> values);

// Of the allocation, by the formula of the policy of that name.
double ObjectiveOf(std::string_view policy, const PolicyProblem& problem,
                   const Allocation& allocation);
// Whether the result's objective is that, and every job has what it needs for
// its deadline, to a millionth, where the result does not tell otherwise.
std::string FormulaErrors(std::string_view policy, const PolicyProblem& problem,
                          const PolicyResult& result);

// Of what water filling is for: the jobs whose value some feasible allocation
// could raise by more than kOptimality without lowering one that is not higher.
// There are some if and only if the sorted values are not the lexicographically
// largest ones. By one linear program for each job. `values`: [n], linear in
// throughputs; NaN for jobs that run nowhere.
std::string LexicographicErrors(const PolicyProblem& problem,
                                const Allocation& allocation,
                                const std::vector<double>& values, bool packs,
                                bool agnostic);

// The rest is for large problems without pairs and placement; shares X are
// [n x types], row-major.

std::vector<double> SharesOf(const Allocation& allocation,
                             const PolicyProblem& problem);
// The part by which X is too large for the jobs' time or for the accelerators:
// it fits when divided by this. At least 1. Shares below 0 count as none.
double Excess(const PolicyProblem& problem, std::span<const double> shares);
// [n] steps/s with X divided by its excess.
std::vector<double> FittingThroughputs(const PolicyProblem& problem,
                                       std::span<const double> shares);
// What it costs at least that each job has demand(job), steps/s, where all
// accelerators are worth 1 together at `prices` [types]; infinite where a job
// can't. From 1 on no allocation gives all jobs more.
double CheapestCost(const PolicyProblem& problem,
                    std::span<const double> prices,
                    const std::function<double(size_t)>& demand);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_CHECKER_H_
