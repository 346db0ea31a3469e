#include <map>
#include <memory>

#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

using Types = std::map<uint64_t, size_t>;  // by job id

Types Assigned(const PolicyProblem& problem) {
  absl::StatusOr<std::unique_ptr<Policy>> policy = MakePolicy("fifo");
  absl::StatusOr<PolicyResult> result = (*policy)->Solve(problem);
  EXPECT_OK(result.status());
  if (!result.ok()) return {};
  EXPECT_TRUE(result->is_assignment);
  EXPECT_EQ(result->outcome, SolveOutcome::kOptimal);
  Types types;
  for (const TypeAssignment& entry : result->assignment) {
    EXPECT_TRUE(types.emplace(entry.unit.job.value(), entry.type).second);
  }
  return types;
}

TEST(Fifo, JobsTakeTheFirstTypeWithRoomInOrderOfArrival) {
  PolicyProblem problem = MakeProblem({1, 2}, {{1, 9}, {1, 9}, {1, 9}, {1, 9}});
  EXPECT_EQ(Assigned(problem), (Types{{1, 0}, {2, 1}, {3, 1}}));
  problem.jobs[3].arrival_s = -1;
  EXPECT_EQ(Assigned(problem), (Types{{4, 0}, {1, 1}, {2, 1}}));
}

TEST(Fifo, JobsThatArriveTogetherGoByTheirIds) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  for (PolicyJob& job : problem.jobs) job.arrival_s = 5;
  EXPECT_EQ(Assigned(problem), (Types{{1, 0}}));
}

TEST(Fifo, AGangThatDoesNotFitBlocksTheQueueBehindIt) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}, {1}});
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 4;
  EXPECT_EQ(Assigned(problem), (Types{{1, 0}}));
}

TEST(Fifo, AJobThatCanRunNowhereBlocksNobody) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}, {0}, {1}});
  problem.jobs[0].scale_factor = 8;
  EXPECT_EQ(Assigned(problem), (Types{{2, 0}, {4, 0}}));
}

TEST(Fifo, ATypeWithoutThroughputIsPassedOver) {
  EXPECT_EQ(Assigned(MakeProblem({1, 1}, {{0, 1}, {1, 1}})),
            (Types{{1, 1}, {2, 0}}));
}

TEST(Fifo, RunningJobsStayWhereTheyAre) {
  // Type 0 has become free; the job on type 1 is not moved there.
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 1}, {1, 1}});
  problem.jobs[0].running_on = 1;
  EXPECT_EQ(Assigned(problem), (Types{{1, 1}, {2, 0}}));
}

TEST(Fifo, ARunningJobIsNotPreemptedByAnEarlierOneThatCameBack) {
  PolicyProblem problem = MakeProblem({1}, {{1}, {1}});
  problem.jobs[1].running_on = 0;
  EXPECT_EQ(Assigned(problem), (Types{{2, 0}}));
}

TEST(Fifo, AJobRunsNoLongerOnATypeThatShrankOrIsUnknown) {
  PolicyProblem problem = MakeProblem({0, 1}, {{1, 1}});
  for (const int type : {0, 7}) {
    problem.jobs[0].running_on = type;
    EXPECT_EQ(Assigned(problem), (Types{{1, 1}}));
  }
}

TEST(Fifo, NeverGivesMoreThanThereIs) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    PolicyProblem problem = RandomProblem(seed, 40);
    std::vector<int> room = problem.capacity;
    for (const auto& [id, type] : Assigned(problem)) {
      const PolicyJob& job = problem.jobs[id - 1];
      room[type] -= job.scale_factor;
      EXPECT_GT(problem.Row(id - 1)[type], 0);
    }
    for (const int left : room) EXPECT_GE(left, 0);
  }
}

}  // namespace
}  // namespace gavel::testing
