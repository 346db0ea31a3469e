// Checks any policy for what it promises. A new policy is one line in the table
// of policy_kit.cc; policy_kit_test.cc runs all checks on it, over random
// problems of three families. Each check returns what is wrong; empty: nothing.
#ifndef GAVEL_TESTS_POLICY_POLICY_KIT_H_
#define GAVEL_TESTS_POLICY_POLICY_KIT_H_

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// The throughputs by which a policy compares: the real ones, none (all time
// counts alike), or those of one type.
enum class PolicyView : uint8_t { kReal, kTime, kReferenceType };

struct PolicyPromises {
  std::string_view name;
  PolicyView view = PolicyView::kReal;
  // The objective is made small, and the bound is below it.
  bool minimises = false;
  // No allocation gives all jobs as much and one of them more.
  bool pareto = false;
  // That holds without gangs: gangs leave time that others may need.
  bool limits_gangs = false;
  // Each job has at least what an nth of the cluster would give it. Promised
  // for equal jobs of one accelerator, not fewer than accelerators.
  bool sharing_incentive = false;
  // No job would rather have another one's accelerators. The same.
  bool envy_free = false;
  // No job has more by telling wrong throughputs. The same.
  bool strategy_proof = false;
  // No job waits for accelerators that are free and that it could use.
  bool work_conserving = false;
};

// For messages of gtest.
inline void PrintTo(const PolicyPromises& promises, std::ostream* stream) {
  *stream << promises.name;
}

// In the order of names.
std::span<const PolicyPromises> AllPromises();

// Small problems, the same for the same seed. General: gangs, weights, types
// that are too small or slow to the point of 0, deadlines, jobs of unknown
// length, jobs that fit nowhere. Equal: one accelerator each, equal weights,
// all throughputs above 0, at least as many jobs as accelerators.
// Extreme: general, with lengths, speeds and times that differ by many orders.
PolicyProblem GeneralProblem(uint64_t seed);
PolicyProblem ExtremeProblem(uint64_t seed);
PolicyProblem EqualProblem(uint64_t seed);

// [n] steps/s of all jobs, as `view` sees them.
std::vector<double> JobThroughputs(const PolicyProblem& problem,
                                   const PolicyResult& result, PolicyView view);

// Shares or assignments outside of their limits by more than 1e-9, of a job
// that can't run there, jobs wrongly left out or in, a bound or gap that is not
// true of the objective.
std::string CheckAnswer(const PolicyProblem& problem,
                        const PolicyResult& result, bool minimises);

std::string CheckPareto(const PolicyProblem& problem,
                        const PolicyResult& result, PolicyView view,
                        bool packs);
std::string CheckSharingIncentive(const PolicyProblem& problem,
                                  const PolicyResult& result, PolicyView view);
std::string CheckEnvy(const PolicyProblem& problem, const PolicyResult& result,
                      PolicyView view);
// `seed`: of the wrong throughputs.
std::string CheckMisreports(const Policy& policy, const PolicyProblem& problem,
                            const PolicyResult& result, PolicyView view,
                            uint64_t seed);
std::string CheckWorkConserving(const PolicyProblem& problem,
                                const PolicyResult& result);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_POLICY_KIT_H_
