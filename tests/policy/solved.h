// Solves problems with a policy given by name, for tests.
#ifndef GAVEL_TESTS_POLICY_SOLVED_H_
#define GAVEL_TESTS_POLICY_SOLVED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {

inline PolicyResult Solved(std::string_view name,
                           const PolicyProblem& problem) {
  const absl::StatusOr<std::unique_ptr<Policy>> policy = MakePolicy(name);
  EXPECT_OK(policy.status());
  if (!policy.ok()) return {};
  absl::StatusOr<PolicyResult> result = (*policy)->Solve(problem);
  EXPECT_OK(result.status());
  return result.ok() ? *std::move(result) : PolicyResult();
}

// The assigned type by (job, partner); partner 0 means that the job runs alone.
using Assigned = std::map<std::pair<uint64_t, uint64_t>, size_t>;

inline Assigned AssignedBy(std::string_view name,
                           const PolicyProblem& problem) {
  const PolicyResult result = Solved(name, problem);
  EXPECT_TRUE(result.is_assignment);
  Assigned assigned;
  for (const TypeAssignment& entry : result.assignment) {
    const std::pair unit(entry.unit.job.value(), entry.unit.partner.value());
    EXPECT_TRUE(assigned.emplace(unit, entry.type).second);
  }
  return assigned;
}

inline PolicyResult SolvedBy(SolverChoice choice, std::string_view name,
                             PolicyProblem problem) {
  problem.solver = choice;
  return Solved(name, problem);
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_SOLVED_H_
