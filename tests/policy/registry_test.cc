#include "coordinator/policy/policy.h"
#include "tests/policy/problems.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(PolicyRegistry, EveryNameMakesAPolicyThatCallsItselfSo) {
  const std::vector<std::string> names = PolicyNames();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name :
       {"fifo", "max_min_fairness", "max_min_fairness_perf"}) {
    EXPECT_THAT(names, Contains(name));
  }
  for (const std::string& name : names) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Policy> policy,
                         MakePolicy(name));
    EXPECT_EQ(policy->name(), name);
  }
}

TEST(PolicyRegistry, AnUnknownNameIsToldWhichExist) {
  EXPECT_THAT(MakePolicy("las"), StatusIs(kNotFound, "\"las\""));
  EXPECT_THAT(MakePolicy(""), StatusIs(kNotFound, "allox, drf, fifo, "));
}

TEST(PolicyRegistry, EveryPolicyRefusesAMalformedProblem) {
  PolicyProblem problem = MakeProblem({1}, {{1}});
  problem.jobs[0].weight = -1;
  for (const std::string& name : PolicyNames()) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Policy> policy,
                         MakePolicy(name));
    EXPECT_THAT(policy->Solve(problem), StatusIs(kInvalidArgument, "job 1"));
  }
}

TEST(PolicyRegistry, EveryPolicyLeavesOutWhatRunsNowhere) {
  PolicyProblem problem = MakeProblem({1, 2}, {{1, 1}, {0, 0}, {1, 1}});
  problem.jobs[2].scale_factor = 3;
  for (const std::string& name : PolicyNames()) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Policy> policy,
                         MakePolicy(name));
    ASSERT_OK_AND_ASSIGN(const PolicyResult result, policy->Solve(problem));
    EXPECT_EQ(result.left_out, (std::vector<JobId>{JobId(2), JobId(3)}))
        << name;
  }
}

}  // namespace
}  // namespace gavel::testing
