#include <cmath>
#include <stdexcept>

#include "coordinator/policy/policy.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::policy {
namespace {

// `n` equal jobs on two types.
PolicyProblem ProblemOf(int n) {
  PolicyProblem problem;
  problem.types = {"k80", "v100"};
  problem.capacity = {2, 2};
  for (int m = 1; m <= n; ++m) {
    PolicyJob job;
    job.id = JobId(static_cast<uint64_t>(m));
    job.steps_remaining = 1000;
    problem.jobs.push_back(job);
    problem.throughputs.insert(problem.throughputs.end(), {1.0, 4.0});
  }
  return problem;
}

double ShareOf(const PolicyResult& result, uint64_t job) {
  double share = 0;
  for (const double part : result.allocation.Row(JobId(job))) share += part;
  return share;
}

// Fails, in one way or the other, on whatever has a weight above 100.
class Delicate : public Policy {
 public:
  explicit Delicate(bool throws) : throws_(throws) {}
  std::string_view name() const override { return "delicate"; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    for (const PolicyJob& job : problem.jobs) {
      if (job.weight <= 100) continue;
      if (throws_) throw std::runtime_error("it can't be loaded");
      return absl::InternalError("it can't be loaded");
    }
    return (*MakePolicy("max_min_fairness_perf"))->Solve(problem);
  }

 private:
  bool throws_;
};

TEST(GuardedSolve, LeavesOutTheJobThatMakesItImpossibleAndNobodyElse) {
  for (const bool throws : {false, true}) {
    PolicyProblem problem = ProblemOf(8);
    problem.jobs[4].weight = 1000;
    const PolicyResult result = GuardedSolve(Delicate(throws), problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    EXPECT_THAT(result.too_extreme, ElementsAre(JobId(5)));
    EXPECT_EQ(ShareOf(result, 5), 0);
    for (const uint64_t job : {1, 2, 3, 4, 6, 7, 8}) {
      EXPECT_NEAR(ShareOf(result, job), 4 / 7.0, 0.2) << job;
    }
  }
}

TEST(GuardedSolve, WeightsThatNoSolverTakesCostNobodyElseTheirShare) {
  for (const char* name :
       {"max_min_fairness_perf", "max_min_fairness_water_filling_perf",
        "max_sum_throughput_perf", "min_total_duration_perf",
        "finish_time_fairness_perf"}) {
    PolicyProblem problem = ProblemOf(4);
    problem.jobs[1].weight = 1e308;
    problem.jobs[3].weight = 1e-300;
    const PolicyResult result = GuardedSolve(**MakePolicy(name), problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << name << result.detail;
    EXPECT_THAT(result.too_extreme, ElementsAre(JobId(2), JobId(4))) << name;
    EXPECT_GT(ShareOf(result, 1), 0.9) << name;
    EXPECT_GT(ShareOf(result, 3), 0.9) << name;
  }
}

TEST(GuardedSolve, PairsOfThoseThatAreLeftOutGoWithThem) {
  PolicyProblem problem = ProblemOf(3);
  problem.jobs[0].weight = 1e200;
  problem.pairs = {{0, 1}, {1, 2}};
  problem.pair_throughputs.assign(2 * 2 * 2, 0.9);
  const PolicyResult result =
      GuardedSolve(**MakePolicy("max_min_fairness_packed"), problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  EXPECT_THAT(result.too_extreme, ElementsAre(JobId(1)));
}

TEST(GuardedSolve, AnswersAsThePolicyWhereThatHasAnAnswer) {
  const PolicyProblem problem = ProblemOf(5);
  const auto policy = *MakePolicy("max_min_fairness_perf");
  const PolicyResult result = GuardedSolve(*policy, problem);
  EXPECT_THAT(result.too_extreme, IsEmpty());
  EXPECT_EQ(result.objective, policy->Solve(problem)->objective);
}

TEST(GuardedSolve, SaysWhyWhereNothingHelps) {
  PolicyProblem problem = ProblemOf(4);
  for (PolicyJob& job : problem.jobs) job.weight = 1000;
  const PolicyResult result = GuardedSolve(Delicate(false), problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kFailed);
  EXPECT_THAT(result.detail, HasSubstr("can't be loaded"));
  problem.throughputs.pop_back();
  EXPECT_EQ(GuardedSolve(Delicate(false), problem).outcome,
            SolveOutcome::kFailed);
}

}  // namespace
}  // namespace gavel::policy
