// Checks the answer of any policy against the problem alone: feasibility,
// objective, bound, and the throughputs of jobs. For tests and benchmarks. The
// functions are pure. Those named ...Errors return a text, which is empty when
// they find no error.
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

// The result's allocation. An assignment becomes one in which each unit has all
// of its time on the assigned type.
Allocation AllocationOf(const PolicyProblem& problem,
                        const PolicyResult& result);

// Lists everything that makes the answer infeasible by more than kFeasibility:
// negative shares, time where a unit can't run, more than all of a job's time
// or of a type's accelerators, more consolidated gangs than servers have room
// for, and jobs that are wrongly left out or in.
std::string ShareErrors(const PolicyProblem& problem,
                        const PolicyResult& result);
// Lists the ShareErrors, and also: an outcome that is not optimal (a result
// that reports deadlines as infeasible is accepted), a bound on the wrong side
// of the objective, a gap that does not follow from the two, and a gap above
// kOptimality. With `minimises` the bound lies below the objective.
std::string AnswerErrors(const PolicyProblem& problem,
                         const PolicyResult& result, bool minimises);

// [n] steps/s of all jobs. With `agnostic`, the time that they run.
std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const Allocation& allocation, bool agnostic);
// [n] s_m / (w_m prop_m) T_m(X), Gavel section 4.1; NaN for jobs that run
// nowhere. prop_m treats placement as ProportionalThroughputs does.
std::vector<double> JobValues(const PolicyProblem& problem,
                              const Allocation& allocation, bool agnostic);
// The least of the values that are not NaN.
double LeastValue(const std::vector<double>& values);
// The values that are not NaN, in ascending order.
std::vector<double> Sorted(std::vector<double> values);

// The objective of the allocation by the formula of the policy named `policy`.
double ObjectiveOf(std::string_view policy, const PolicyProblem& problem,
                   const Allocation& allocation);
// Lists an objective of the result that differs from ObjectiveOf. For policies
// with deadlines it also lists each job that lacks the throughput to meet its
// deadline, to a relative kOptimality, unless the result is not optimal.
std::string FormulaErrors(std::string_view policy, const PolicyProblem& problem,
                          const PolicyResult& result);

// Checks the goal of water filling: lists the jobs whose value some feasible
// allocation could raise by more than kOptimality without lowering a value that
// is not higher. Such jobs exist if and only if the sorted values are not the
// lexicographically largest ones. Solves one linear program for each job.
// `values` [n] are linear in throughputs, and NaN for jobs that run nowhere.
std::string LexicographicErrors(const PolicyProblem& problem,
                                const Allocation& allocation,
                                const std::vector<double>& values, bool packs,
                                bool agnostic);

// The functions below are for large problems without pairs and placement.
// Shares X are [n x types], row-major.

std::vector<double> SharesOf(const Allocation& allocation,
                             const PolicyProblem& problem);
// The factor by which X is too large for the jobs' time or for the
// accelerators, at least 1: X divided by it fits. Shares below 0 count as 0.
double Excess(const PolicyProblem& problem, std::span<const double> shares);
// [n] steps/s with X divided by its excess.
std::vector<double> FittingThroughputs(const PolicyProblem& problem,
                                       std::span<const double> shares);
// The least cost of giving each job demand(job) steps/s, where all accelerators
// together cost 1 at `prices` [types]; infinite if some job can't have it. If
// the cost is 1 or more, no allocation gives every job more than its demand.
double CheapestCost(const PolicyProblem& problem,
                    std::span<const double> prices,
                    const std::function<double(size_t)>& demand);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_CHECKER_H_
