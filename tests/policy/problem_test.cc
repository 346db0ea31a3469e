#include <cmath>

#include "coordinator/policy/policy.h"
#include "tests/policy/problems.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

PolicyProblem Good() { return MakeProblem({2, 4}, {{1, 2}, {3, 0}}); }

TEST(CheckProblem, AGoodProblemPasses) {
  EXPECT_OK(CheckProblem(Good()));
  EXPECT_OK(CheckProblem(MakeProblem({}, {})));
}

TEST(CheckProblem, SizesMustMatch) {
  PolicyProblem problem = Good();
  problem.capacity.pop_back();
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "capacities"));
  problem = Good();
  problem.throughputs.pop_back();
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "throughputs"));
}

TEST(CheckProblem, ACapacityIsNotNegative) {
  PolicyProblem problem = Good();
  problem.capacity[1] = -1;
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "type1"));
}

TEST(CheckProblem, JobsComeOnceAndInOrder) {
  PolicyProblem problem = Good();
  problem.jobs[1].id = JobId(1);
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "job 1"));
}

TEST(CheckProblem, BadNumbersOfAJobNameTheJob) {
  for (const double weight : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    PolicyProblem problem = Good();
    problem.jobs[1].weight = weight;
    EXPECT_THAT(CheckProblem(problem),
                StatusIs(kInvalidArgument, "job 2: weight"));
  }
  for (const double throughput : {-1.0, HUGE_VAL, std::nan("")}) {
    PolicyProblem problem = Good();
    problem.throughputs[3] = throughput;
    EXPECT_THAT(CheckProblem(problem),
                StatusIs(kInvalidArgument, "job 2: throughput"));
  }
  PolicyProblem problem = Good();
  problem.jobs[0].scale_factor = 0;
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "job 1: scale factor"));
}

TEST(CheckProblem, TimesAndStepsAreNumbersFromZero) {
  for (const double bad : {-1.0, HUGE_VAL, std::nan("")}) {
    double PolicyJob::*const fields[] = {
        &PolicyJob::steps_remaining, &PolicyJob::time_since_start_s,
        &PolicyJob::time_received_s, &PolicyJob::isolated_s};
    for (const auto field : fields) {
      PolicyProblem problem = Good();
      problem.jobs[1].*field = bad;
      EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "job 2: "));
    }
  }
  PolicyProblem problem = Good();
  problem.jobs[0].arrival_s = -5;
  problem.jobs[0].deadline_s = -5;  // missed
  EXPECT_OK(CheckProblem(problem));
  problem.jobs[0].deadline_s = std::nan("");
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "job 1: deadline"));
  problem = Good();
  problem.jobs[0].arrival_s = HUGE_VAL;
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "job 1: arrival"));
}

TEST(CheckProblem, AJobsEntityIsThere) {
  PolicyProblem problem = Good();
  problem.entities = {{"a", 1, "fifo"}};
  problem.jobs[1].entity = 0;
  EXPECT_OK(CheckProblem(problem));
  problem.jobs[1].entity = 1;
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "job 2: entity 1"));
  problem.jobs[1].entity = -2;
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "job 2: entity -2"));
}

TEST(CheckProblem, AnEntityHasAWeight) {
  for (const double weight : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    PolicyProblem problem = Good();
    problem.entities = {{"research", weight, "fifo"}};
    EXPECT_THAT(CheckProblem(problem),
                StatusIs(kInvalidArgument, "entity research: weight"));
  }
}

TEST(CheckProblem, CostsAreOnePerTypeAndNotNegative) {
  PolicyProblem problem = Good();
  problem.cost = {0, 2.5};
  EXPECT_OK(CheckProblem(problem));
  problem.cost = {1};
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "1 costs"));
  problem.cost = {1, std::nan("")};
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "type type1: cost"));
}

TEST(CheckProblem, PairsAreOrderedOfEqualGangsAndHaveThroughputs) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {2}, {3}});
  problem.pairs = {{0, 1}, {0, 2}};
  problem.pair_throughputs = {1, 1, 1, 1};
  EXPECT_OK(CheckProblem(problem));

  PolicyProblem bad = problem;
  std::swap(bad.pairs[0], bad.pairs[1]);
  EXPECT_THAT(CheckProblem(bad),
              StatusIs(kInvalidArgument, "pair of job 1 and job 2: out of"));
  bad = problem;
  bad.pairs[1] = bad.pairs[0];
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "out of order"));
  bad = problem;
  bad.pairs[1] = {1, 1};
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "pair 1"));
  bad.pairs[1] = {1, 3};
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "pair 1"));
  bad = problem;
  bad.jobs[2].scale_factor = 2;
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "job 3: scale"));
  bad = problem;
  bad.pair_throughputs[3] = -1;
  EXPECT_THAT(CheckProblem(bad),
              StatusIs(kInvalidArgument, "throughput -1 of job 3 on type0"));
  bad.pair_throughputs.pop_back();
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "3 pair thr"));
}

TEST(CheckProblem, KindsHaveJobsOfOneScaleFactor) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {2}, {3}});
  problem.kinds = {0, 2, 0};
  problem.pairs = {{0, 0}, {0, 2}};
  problem.pair_throughputs = {1, 1, 1, 0.5};
  EXPECT_OK(CheckProblem(problem));
  EXPECT_EQ(FindPair(problem, 0, 2), 0u);
  EXPECT_EQ(FindPair(problem, 1, 2), 1u);
  EXPECT_EQ(FindPair(problem, 1, 1), std::nullopt);

  PolicyProblem bad = problem;
  bad.kinds.pop_back();
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "kinds of 2 jobs"));
  bad = problem;
  bad.kinds[1] = 3;
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "job 2: kind 3"));
  bad = problem;
  bad.jobs[2].scale_factor = 2;
  EXPECT_THAT(CheckProblem(bad),
              StatusIs(kInvalidArgument, "job 3: scale factor 2, that of job"));
  bad = problem;
  bad.pairs[1] = {0, 1};
  EXPECT_THAT(CheckProblem(bad),
              StatusIs(kInvalidArgument, "pair 1: kind 1 has no jobs"));
  bad = problem;
  bad.pair_throughputs[1] = 0.9;
  EXPECT_THAT(CheckProblem(bad), StatusIs(kInvalidArgument, "of one kind"));
}

TEST(CheckProblem, ServersAddUpToTheCapacity) {
  PolicyProblem problem = MakeProblem({4}, {{2}});
  problem.servers = {{2, 2}};
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "throughputs"));
  problem.throughputs = {2, 1};
  EXPECT_OK(CheckProblem(problem));
  problem.throughputs[1] = -1;
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "type0 unconsolidated"));
  problem.throughputs[1] = 1;
  problem.servers = {{2, 1}};
  EXPECT_THAT(CheckProblem(problem),
              StatusIs(kInvalidArgument, "3 accelerators, capacity 4"));
  problem.servers = {{5, -1}};
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "type0"));
  problem.servers = {{4}, {}};
  EXPECT_THAT(CheckProblem(problem), StatusIs(kInvalidArgument, "servers"));
}

}  // namespace
}  // namespace gavel::testing
