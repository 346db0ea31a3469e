// Every policy that has a name, checked for what it promises.
#include "tests/policy/policy_kit.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kGeneralProblems = 150;
constexpr uint64_t kExtremeProblems = 100;
constexpr uint64_t kEqualProblems = 40;

std::string NameOf(const ::testing::TestParamInfo<PolicyPromises>& promises) {
  return std::string(promises.param.name);
}

class PolicyKit : public ::testing::TestWithParam<PolicyPromises> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(policy_, MakePolicy(GetParam().name));
  }
  PolicyResult Solve(const PolicyProblem& problem) const {
    absl::StatusOr<PolicyResult> result = policy_->Solve(problem);
    EXPECT_OK(result.status());
    return result.ok() ? *std::move(result) : PolicyResult();
  }
  // Run `check`, which returns what is wrong, on a family of problems.
  template <class Check>
  void OnGeneralProblems(Check check) const {
    for (uint64_t seed = 0; seed < kGeneralProblems; ++seed) {
      const PolicyProblem problem = GeneralProblem(seed);
      ASSERT_EQ(check(problem, Solve(problem)), "") << "general, seed " << seed;
    }
  }
  template <class Check>
  void OnExtremeProblems(Check check) const {
    for (uint64_t seed = 0; seed < kExtremeProblems; ++seed) {
      const PolicyProblem problem = ExtremeProblem(seed);
      ASSERT_EQ(check(problem, Solve(problem)), "") << "extreme, seed " << seed;
    }
  }
  template <class Check>
  void OnEqualProblems(Check check) const {
    for (uint64_t seed = 0; seed < kEqualProblems; ++seed) {
      const PolicyProblem problem = EqualProblem(seed);
      ASSERT_EQ(check(problem, Solve(problem)), "") << "equal, seed " << seed;
    }
  }

  std::unique_ptr<Policy> policy_;
};

TEST_P(PolicyKit, AnswersAreFeasibleAndTheirBoundsHold) {
  const auto check = [&](const PolicyProblem& problem,
                         const PolicyResult& result) {
    return CheckAnswer(problem, result, GetParam().minimises);
  };
  OnGeneralProblems(check);
  OnExtremeProblems(check);
  OnEqualProblems(check);
}

TEST_P(PolicyKit, TheSameProblemHasTheSameAnswer) {
  OnGeneralProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        const PolicyResult again = Solve(problem);
        const PolicyView view = PolicyView::kReal;
        return JobThroughputs(problem, again, view) ==
                           JobThroughputs(problem, result, view) &&
                       again.assignment == result.assignment &&
                       again.objective == result.objective
                   ? ""
                   : "another answer";
      });
}

TEST_P(PolicyKit, NoAllocationIsBetterForAll) {
  if (!GetParam().pareto) GTEST_SKIP() << "not promised";
  const auto check = [&](const PolicyProblem& problem,
                         const PolicyResult& result) {
    if (!GetParam().limits_gangs) {
      return CheckPareto(problem, result, GetParam().view, policy_->packs());
    }
    PolicyProblem alone = problem;
    for (PolicyJob& job : alone.jobs) job.scale_factor = 1;
    return CheckPareto(alone, Solve(alone), GetParam().view, policy_->packs());
  };
  OnGeneralProblems(check);
  OnEqualProblems(check);
}

TEST_P(PolicyKit, EachJobHasWhatAnNthOfTheClusterGives) {
  if (!GetParam().sharing_incentive) GTEST_SKIP() << "not promised";
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckSharingIncentive(problem, result, GetParam().view);
      });
}

TEST_P(PolicyKit, NoJobWouldRatherBeAnother) {
  if (!GetParam().envy_free) GTEST_SKIP() << "not promised";
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckEnvy(problem, result, GetParam().view);
      });
}

TEST_P(PolicyKit, WrongThroughputsGainNothing) {
  if (!GetParam().strategy_proof) GTEST_SKIP() << "not promised";
  OnEqualProblems(
      [&](const PolicyProblem& problem, const PolicyResult& result) {
        return CheckMisreports(*policy_, problem, result, GetParam().view,
                               /*seed=*/problem.jobs.size());
      });
}

TEST_P(PolicyKit, NoJobWaitsForWhatIsFree) {
  if (!GetParam().work_conserving) GTEST_SKIP() << "not promised";
  OnGeneralProblems(CheckWorkConserving);
  OnEqualProblems(CheckWorkConserving);
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyKit,
                         ::testing::ValuesIn(AllPromises().begin(),
                                             AllPromises().end()),
                         NameOf);

TEST(PolicyKitTable, EveryPolicyHasALine) {
  std::vector<std::string> names;
  for (const PolicyPromises& promises : AllPromises()) {
    names.emplace_back(promises.name);
  }
  EXPECT_EQ(names, PolicyNames());
}

}  // namespace
}  // namespace gavel::testing
