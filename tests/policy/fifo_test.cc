#include "coordinator/policy/policy.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

Assigned AssignedByFifo(const PolicyProblem& problem) {
  return AssignedBy("fifo", problem);
}

TEST(Fifo, JobsTakeTheFirstTypeWithRoomInOrderOfArrival) {
  PolicyProblem problem = MakeProblem({1, 2}, {{1, 9}, {1, 9}, {1, 9}, {1, 9}});
  EXPECT_EQ(AssignedByFifo(problem),
            (Assigned{{{1, 0}, 0}, {{2, 0}, 1}, {{3, 0}, 1}}));
  problem.jobs[3].arrival_s = -1;
  EXPECT_EQ(AssignedByFifo(problem),
            (Assigned{{{4, 0}, 0}, {{1, 0}, 1}, {{2, 0}, 1}}));
}

TEST(Fifo, JobsThatArriveTogetherGoByTheirIds) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  for (PolicyJob& job : problem.jobs) job.arrival_s = 5;
  EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Fifo, AGangThatDoesNotFitBlocksTheQueueBehindIt) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}, {1}});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 4;
  EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{1, 0}, 0}}));
}

TEST(Fifo, AJobThatCanRunNowhereBlocksNobody) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}, {0}, {1}});
  problem.jobs[0].scale_factor = 8;
  EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{2, 0}, 0}, {{4, 0}, 0}}));
}

TEST(Fifo, ATypeWithoutThroughputIsPassedOver) {
  EXPECT_EQ(AssignedByFifo(MakeProblem({1, 1}, {{0, 1}, {1, 1}})),
            (Assigned{{{1, 0}, 1}, {{2, 0}, 0}}));
}

TEST(Fifo, RunningJobsStayWhereTheyAre) {
  // Type 0 has become free; the job on type 1 is not moved there.
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 1}, {1, 1}});
  problem.jobs[0].running_on = 1;
  EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{1, 0}, 1}, {{2, 0}, 0}}));
}

TEST(Fifo, ARunningJobIsNotPreemptedByAnEarlierOneThatCameBack) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[1].running_on = 0;
  EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{2, 0}, 0}}));
}

TEST(Fifo, AJobRunsNoLongerOnATypeThatShrankOrIsUnknown) {
  PolicyProblem problem = MakeProblem({0, 1}, {{1, 1}});
  for (const int type : {0, 7}) {
    problem.jobs[0].running_on = type;
    EXPECT_EQ(AssignedByFifo(problem), (Assigned{{{1, 0}, 1}}));
  }
}

}  // namespace
}  // namespace gavel::testing
