// Tests the policies of most throughput and of least cost, with and without
// deadlines.
#include <cmath>
#include <cstdio>

#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr char kSum[] = "max_sum_throughput_perf";
constexpr char kByCost[] = "max_sum_throughput_normalized_by_cost_perf";
constexpr char kDeadlines[] = "max_sum_throughput_normalized_by_cost_perf_SLOs";
constexpr char kPacked[] = "max_sum_throughput_normalized_by_cost_packed_SLOs";
constexpr char kRatio[] = "max_throughput_per_cost";

double Throughput(const PolicyProblem& problem, const PolicyResult& result,
                  size_t job) {
  return JobThroughputs(problem, result.allocation, false)[job];
}

void SetDeadline(size_t job, double steps, double seconds,
                 PolicyProblem* problem) {
  problem->jobs[job].steps_remaining = steps;
  problem->jobs[job].deadline_s = seconds;
}

TEST(MaxSumThroughput, TheFastestJobsRun) {
  const PolicyResult result =
      Solved(kSum, MakeProblem({1, 1}, {{5, 1}, {4, 3}}));
  EXPECT_NEAR(result.objective, 8, 1e-9);
  EXPECT_NEAR(result.bound, 8, 1e-9);
}

TEST(MaxSumThroughput, ByCostAStepOnACheapTypeCountsMore) {
  PolicyProblem problem = MakeProblem({1, 1}, {{5, 4}});
  problem.cost = {2, 1};
  const PolicyResult result = Solved(kByCost, problem);
  EXPECT_NEAR(result.objective, 4, 1e-9);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[1], 1, 1e-9);
}

TEST(MaxSumThroughput, ATypeThatCostsNothingIsRefused) {
  PolicyProblem problem = MakeProblem({1, 1}, {{5, 4}});
  problem.cost = {0, 1};
  for (const char* name : {kByCost, kDeadlines, kPacked, kRatio}) {
    ASSERT_OK_AND_ASSIGN(const auto policy, MakePolicy(name));
    EXPECT_THAT(policy->Solve(problem), StatusIs(kInvalidArgument, "type0"));
  }
  EXPECT_NEAR(Solved(kSum, problem).objective, 5, 1e-9);
}

TEST(MaxSumThroughput, ADeadlineIsMetThoughItCostsThroughput) {
  PolicyProblem problem = MakeProblem({1}, {{10}, {1}});
  SetDeadline(1, 30, 100, &problem);
  EXPECT_NEAR(Throughput(problem, Solved(kByCost, problem), 1), 0, 1e-9);
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_NEAR(Throughput(problem, result, 1), 0.3, 1e-8);
  EXPECT_NEAR(result.objective, 7.3, 1e-7);
}

TEST(Deadlines, OneThatCannotBeMetIsNamedAndTheOthersAreKept) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {1}, {1}});
  SetDeadline(0, 50, 100, &problem);
  SetDeadline(2, 300, 100, &problem);  // needs 3 steps/s, 1 is all there is
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  EXPECT_THAT(result.detail,
              AllOf(HasSubstr("infeasible"), HasSubstr("job 3 (needs 3 "),
                    Not(HasSubstr("job 1"))));
  // No prices are given as a proof, because job 3 can't meet its deadline even
  // alone.
  EXPECT_THAT(result.detail, Not(HasSubstr("proved")));
  EXPECT_NEAR(Throughput(problem, result, 2), 1, 1e-7);
  EXPECT_GE(Throughput(problem, result, 0), 0.5 - 1e-7);
  // The total throughput is still maximised.
  EXPECT_NEAR(result.objective, 2, 1e-7);
  EXPECT_NEAR(result.bound, 2, 1e-7);
}

TEST(Deadlines, TogetherTooManyFallShortByTheLeastInTotal) {
  // Each deadline alone can be met. Half of the need of job 1 is cheaper to
  // give up.
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  SetDeadline(0, 90, 100, &problem);
  SetDeadline(1, 40, 100, &problem);
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  // 0.3 accelerators are missing, which are a third of the need of job 1 and
  // three quarters of that of job 2.
  EXPECT_NEAR(Throughput(problem, result, 0), 0.6, 1e-6);
  EXPECT_NEAR(Throughput(problem, result, 1), 0.4, 1e-6);
  EXPECT_THAT(result.detail,
              AllOf(HasSubstr("job 1 "), Not(HasSubstr("job 2 "))));
}

TEST(Deadlines, AMissedOneIsToldAndItsJobFinishesAsSoonAsItCan) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {10}});
  SetDeadline(0, 10, -5, &problem);
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  EXPECT_THAT(result.detail, HasSubstr("job 1 (its deadline has passed)"));
  EXPECT_NEAR(Throughput(problem, result, 0), 1, 1e-6);
}

TEST(Deadlines, WithAMissedOnePricesGiveTheOthersTheSameAsHighs) {
  for (const char* name : {kDeadlines, kRatio}) {
    SCOPED_TRACE(name);
    PolicyProblem problem =
        MakeProblem({2, 1}, {{4, 1}, {3, 5}, {2, 2}, {6, 1}});
    problem.cost = {2, 1};
    SetDeadline(0, 10, 0, &problem);
    SetDeadline(2, 100, 100, &problem);
    problem.solver = SolverChoice::kPrices;
    const PolicyResult prices = Solved(name, problem);
    EXPECT_EQ(prices.solver, "prices");
    EXPECT_EQ(prices.outcome, SolveOutcome::kInfeasible);
    EXPECT_THAT(prices.detail,
                AllOf(HasSubstr("job 1 (its deadline has passed)"),
                      Not(HasSubstr("job 3"))));
    EXPECT_NEAR(Throughput(problem, prices, 0), 4, 1e-8);
    EXPECT_GE(Throughput(problem, prices, 2), 1 - 1e-8);
    problem.solver = SolverChoice::kHighs;
    const PolicyResult highs = Solved(name, problem);
    EXPECT_EQ(highs.detail, prices.detail);
    EXPECT_NEAR(highs.objective, prices.objective, 1e-6 * highs.objective);
  }
}

// The text contains the whole proof: at these prices the needs, each on the
// accelerators that are cheapest for its job, are worth more than all
// accelerators together.
TEST(Deadlines, ThePricesThatAreToldProveThatNotAllCanBeMet) {
  const std::vector<std::vector<double>> rows = {{4, 1}, {4, 2}, {1, 1}};
  const std::vector<double> needs = {3, 3, 0.8};
  PolicyProblem problem = MakeProblem({1, 1}, rows);
  for (size_t m = 0; m < needs.size(); ++m) {
    SetDeadline(m, needs[m] * 100, 100, &problem);
  }
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  const size_t proof = result.detail.find("no allocation gives all of them");
  ASSERT_NE(proof, std::string::npos) << result.detail;
  double level = 0;
  double prices[2] = {};
  ASSERT_EQ(std::sscanf(result.detail.c_str() + proof,
                        "no allocation gives all of them more than %lf of what "
                        "they need (proved by the prices type0 %lf, type1 %lf)",
                        &level, &prices[0], &prices[1]),
            3)
      << result.detail;
  double worth = 0;
  for (size_t m = 0; m < needs.size(); ++m) {
    worth +=
        needs[m] * std::min(prices[0] / rows[m][0], prices[1] / rows[m][1]);
  }
  EXPECT_NEAR(level, (prices[0] + prices[1]) / worth, 1e-3);
  EXPECT_NEAR(level, 6 / 7.6, 1e-3);
}

// Two servers of five hold one gang of four each. On the accelerators that are
// left over, a gang is spread and has a quarter of the speed.
TEST(Deadlines, PlacesOnOneServerHaveAPriceOfTheirOwn) {
  PolicyProblem problem = MakeProblem({10}, {{1, 0.25}, {1, 0.25}, {1, 0.25}});
  problem.servers = {{5, 5}};
  for (size_t m = 0; m < 3; ++m) {
    problem.jobs[m].scale_factor = 4;
    SetDeadline(m, 90, 100, &problem);
  }
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kInfeasible);
  EXPECT_THAT(result.detail,
              HasSubstr("more than 0.787 of what they need (proved by the "
                        "prices type0 0.02941, type0 for gangs of 4 on one "
                        "server 0.08824)"));
}

TEST(Deadlines, OneThatIsHopelessStillHasWhatIsLeft) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {10}});
  SetDeadline(0, 1e9, 1e-3, &problem);
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_THAT(result.detail, HasSubstr("job 1 (needs 1e+12 "));
  EXPECT_NEAR(Throughput(problem, result, 0), 1, 1e-3);
}

TEST(Deadlines, AJobThatFitsNowhereIsLeftOutWithItsDeadline) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[0].scale_factor = 4;
  SetDeadline(0, 10, 1, &problem);
  const PolicyResult result = Solved(kDeadlines, problem);
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_EQ(result.left_out, (std::vector<JobId>{JobId(1)}));
}

TEST(Deadlines, AJobWithNothingLeftOrOfUnknownLengthHasNone) {
  PolicyProblem problem = MakeProblem({1}, {{1}});
  SetDeadline(0, 0, -5, &problem);
  EXPECT_EQ(Solved(kDeadlines, problem).outcome, SolveOutcome::kOptimal);
}

TEST(Deadlines, PairsMeetWhatTimeSlicesCannot) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  AddPair(0, 1, 0.9, 0.9, &problem);
  SetDeadline(0, 80, 100, &problem);
  SetDeadline(1, 80, 100, &problem);
  EXPECT_EQ(Solved(kDeadlines, problem).outcome, SolveOutcome::kInfeasible);
  EXPECT_EQ(Solved(kPacked, problem).outcome, SolveOutcome::kOptimal);
}

TEST(MaxThroughputPerCost, OnlyTimeOfTheBestRatioIsBought) {
  // Per cost: 5 on type 0, 8 on type 1.
  PolicyProblem problem = MakeProblem({1, 1}, {{10, 8}});
  problem.cost = {2, 1};
  const PolicyResult result = Solved(kRatio, problem);
  // prop = 9: normalised throughput 8 / 9 for 1.
  EXPECT_NEAR(result.objective, 8.0 / 9, 1e-7);
  EXPECT_NEAR(result.bound, 8.0 / 9, 1e-7);
  EXPECT_EQ(result.allocation.Row(JobId(1)), (std::vector<double>{0, 1}));
}

TEST(MaxThroughputPerCost, OfEqualRatiosAllAreUsed) {
  const PolicyResult result = Solved(kRatio, MakeProblem({2}, {{3}, {7}, {5}}));
  EXPECT_NEAR(result.objective, 1, 1e-7);
  double used = 0;
  for (uint64_t id = 1; id <= 3; ++id) {
    used += result.allocation.Row(JobId(id))[0];
  }
  EXPECT_NEAR(used, 2, 1e-7);
}

TEST(MaxThroughputPerCost, DeadlinesBuyTimeOfAWorseRatio) {
  PolicyProblem problem = MakeProblem({1, 1}, {{10, 8}});
  problem.cost = {2, 1};
  SetDeadline(0, 90, 10, &problem);  // 9 steps/s: half of its time on type 0
  const PolicyResult result = Solved(kRatio, problem);
  EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-6);
  EXPECT_NEAR(result.objective, 1 / 1.5, 1e-6);
  EXPECT_NEAR(result.bound, result.objective, 1e-6);
}

}  // namespace
}  // namespace gavel::testing
