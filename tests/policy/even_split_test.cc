#include "gtest/gtest.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

using Row = std::vector<double>;

TEST(Isolated, EachJobHasAnNthOfEveryType) {
  const PolicyResult result =
      Solved("isolated", MakeProblem({2, 1}, {{1, 2}, {3, 4}, {5, 6}, {7, 8}}));
  EXPECT_FALSE(result.is_assignment);
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(result.allocation.Row(JobId(id)), (Row{0.5, 0.25}));
  }
  EXPECT_EQ(result.objective, 3);
}

TEST(Isolated, AGangHasItsPartOfTheAcceleratorsNotOfTheTime) {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}});
  problem.jobs[1].scale_factor = 4;
  const PolicyResult result = Solved("isolated", problem);
  EXPECT_EQ(result.allocation.Row(JobId(1)), (Row{1}));
  EXPECT_EQ(result.allocation.Row(JobId(2)), (Row{0.5}));
}

TEST(Isolated, NobodyHasMoreThanAllOfTheTime) {
  const PolicyResult result =
      Solved("isolated", MakeProblem({6, 2}, {{1, 1}, {1, 1}}));
  EXPECT_EQ(result.allocation.Row(JobId(1)), (Row{0.75, 0.25}));
}

TEST(Isolated, TypesThatAJobCannotUseAreNotGivenToIt) {
  PolicyProblem problem = MakeProblem({4, 1}, {{1, 0}, {1, 1}, {0, 0}});
  problem.jobs[1].scale_factor = 2;
  const PolicyResult result = Solved("isolated", problem);
  EXPECT_EQ(result.allocation.Row(JobId(1)), (Row{1, 0}));
  EXPECT_EQ(result.allocation.Row(JobId(2)), (Row{1, 0}));
  EXPECT_EQ(result.left_out, (std::vector<JobId>{JobId(3)}));
}

TEST(Proportional, TimeIsSplitAsTheAcceleratorsAre) {
  const PolicyResult result =
      Solved("proportional", MakeProblem({3, 1}, {{1, 2}, {3, 4}}));
  EXPECT_EQ(result.allocation.Row(JobId(1)), (Row{0.75, 0.25}));
  EXPECT_EQ(result.allocation.Row(JobId(2)), (Row{0.75, 0.25}));
}

TEST(Proportional, MoreJobsThanAcceleratorsShareThem) {
  const PolicyResult result =
      Solved("proportional", MakeProblem({1}, {{1}, {1}, {1}, {1}}));
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(result.allocation.Row(JobId(id)), (Row{0.25}));
  }
}

TEST(EvenSplits, WithPlacementTheTimeIsInTheFasterColumn) {
  PolicyProblem problem = MakeProblem({4}, {{8, 6}, {8, 6}});
  problem.servers = {{2, 2}};
  problem.jobs[0].scale_factor = 2;
  problem.jobs[1].scale_factor = 4;
  for (const char* name : {"isolated", "proportional"}) {
    const PolicyResult result = Solved(name, problem);
    EXPECT_GT(result.allocation.Row(JobId(1))[0], 0) << name;
    EXPECT_EQ(result.allocation.Row(JobId(1))[1], 0) << name;
    // No server has four.
    EXPECT_EQ(result.allocation.Row(JobId(2))[0], 0) << name;
    EXPECT_GT(result.allocation.Row(JobId(2))[1], 0) << name;
  }
}

}  // namespace
}  // namespace gavel::testing
