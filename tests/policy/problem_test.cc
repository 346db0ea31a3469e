#include "coordinator/policy/problem.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/policy/certificate.h"
#include "tests/support/status_matchers.h"

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

TEST(FindUsableJobs, ATypeSmallerThanTheGangIsNoTypeForIt) {
  PolicyProblem problem = Good();
  problem.jobs[0].scale_factor = 3;
  const UsableJobs usable = FindUsableJobs(problem);
  EXPECT_EQ(usable.jobs, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(usable.throughputs, (std::vector<double>{0, 2, 3, 0}));
  EXPECT_TRUE(usable.left_out.empty());
}

TEST(FindUsableJobs, AJobWithoutAnyTypeIsLeftOut) {
  PolicyProblem problem = Good();
  problem.jobs[1].scale_factor = 3;
  const UsableJobs usable = FindUsableJobs(problem);
  EXPECT_EQ(usable.jobs, (std::vector<size_t>{0}));
  EXPECT_EQ(usable.left_out, (std::vector<JobId>{JobId(2)}));
}

}  // namespace
}  // namespace gavel::testing
