#include "coordinator/policy/job_classes.h"

#include <algorithm>
#include <cmath>

#include "coordinator/policy/pair_table.h"
#include "gtest/gtest.h"
#include "tests/policy/certificate.h"
#include "tests/policy/share_kit.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

// Each job of `problem` as often as `copies`, in turns.
PolicyProblem Copied(const PolicyProblem& problem, size_t copies) {
  PolicyProblem many = problem;
  many.jobs.clear();
  many.throughputs.clear();
  for (size_t i = 0; i < copies * problem.jobs.size(); ++i) {
    const size_t m = i % problem.jobs.size();
    many.jobs.push_back(problem.jobs[m]);
    many.jobs.back().id = JobId(i + 1);
    const std::span<const double> row = problem.Row(m);
    many.throughputs.insert(many.throughputs.end(), row.begin(), row.end());
  }
  return many;
}

TEST(ClassifyJobs, EqualJobsAreOneClass) {
  PolicyProblem problem =
      MakeProblem({2, 4}, {{1, 2}, {3, 4}, {1, 2}, {1, 2}, {1, 2}});
  problem.jobs[3].weight = 2;
  problem.jobs[4].scale_factor = 2;
  const JobClasses classes = ClassifyJobs(MakeShareProblem(problem));
  EXPECT_EQ(classes.class_of, (std::vector<size_t>{0, 1, 0, 2, 3}));
  EXPECT_EQ(classes.members, (std::vector<double>{2, 1, 1, 1}));
  EXPECT_EQ(classes.problem.size(), 4u);
  EXPECT_EQ(classes.problem.cells[0].scale_factor, 2);
  EXPECT_EQ(classes.problem.cells[6].scale_factor, 2);
  EXPECT_EQ(classes.problem.scale_factor, (std::vector<double>{1, 1, 1, 2}));
}

TEST(ClassifyJobs, AProblemWithPairsIsLeftAlone) {
  PolicyProblem problem = MakeProblem({2}, {{1}, {1}});
  AddPair(0, 1, 0.9, 0.9, &problem);
  const ShareProblem shares = MakeShareProblem(problem, {.pairs = true});
  const JobClasses classes = ClassifyJobs(shares);
  EXPECT_EQ(classes.members, (std::vector<double>{1, 1}));
  EXPECT_EQ(classes.problem.cells.size(), shares.cells.size());
}

// Two kinds of two and of three equal jobs: as many pairs as there are jobs,
// and all of a kind have as much of each other kind.
TEST(ClassifyJobs, PairsOfClassesAreSpreadOverTheirMembers) {
  PolicyProblem problem = MakeProblem({9}, {{1}, {1}, {2}, {2}, {2}});
  problem.kinds = {0, 0, 2, 2, 2};
  problem.pairs = {{0, 0}, {0, 2}, {2, 2}};
  problem.pair_throughputs = {0.9, 0.9, 0.8, 1.6, 1.8, 1.8};
  ShareProblem shares =
      MakeShareProblem(problem, {.pairs = true, .pairs_unlisted = true});
  EXPECT_EQ(shares.units.size(), 5u);
  JobClasses classes = ClassifyJobs(shares);
  EXPECT_EQ(classes.members, (std::vector<double>{2, 3}));
  const std::vector<ListedCell> all = {{0, 0, 0}, {0, 1, 1}, {1, 1, 2}};
  ListCells(all, &classes.problem);
  // Alone, and in all pairs; both of the first kind at a time in those with
  // the second, of which two thirds are.
  EXPECT_EQ(classes.problem.Cells(0).size(), 3u);
  EXPECT_EQ(classes.problem.Cells(1)[1].time, 2.0 / 3);
  const std::vector<double> x = {0.1, 0.1, 0.3, 0.6, 0.5};
  const std::vector<double> of_members = SharesOfMembers(classes, x, &shares);
  EXPECT_EQ(ShareErrors(problem, ToResult(shares, of_members, 0, 0)), "");
  EXPECT_EQ(shares.units.size(), 5u + 1 + 4 + 3);
  const std::vector<double> of_classes = Throughputs(classes.problem, x);
  const std::vector<double> throughputs = Throughputs(shares, of_members);
  for (size_t m = 0; m < throughputs.size(); ++m) {
    EXPECT_NEAR(throughputs[m], of_classes[classes.class_of[m]], 1e-12) << m;
  }
}

TEST(ClassifyJobs, SharesOfMembersAreFeasibleWhereThoseOfClassesAre) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem =
        Copied(RandomPlacement(seed, 8, /*pairs=*/false), 3);
    ShareProblem shares = MakeShareProblem(problem);
    const JobClasses classes = ClassifyJobs(shares);
    std::vector<double> x(classes.problem.cells.size(), 1.0);
    RepairShares(classes.problem, x);
    EXPECT_EQ(ShareErrors(
                  problem,
                  ToResult(shares, SharesOfMembers(classes, x, &shares), 0, 0)),
              "");
  }
}

// With three of each job, and three times the accelerators: the same values.
TEST(ClassifyJobs, PoliciesGiveEqualJobsEqualShares) {
  for (const char* name :
       {"max_min_fairness_perf", "max_min_fairness_water_filling_perf"}) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(seed);
      const PolicyProblem problem = RandomProblem(seed + 2100, 10);
      PolicyProblem many = Copied(problem, 3);
      for (size_t j = 0; j < problem.types.size(); ++j) {
        // Not where a larger type would let a gang in.
        for (const PolicyJob& job : problem.jobs) {
          if (job.scale_factor > problem.capacity[j]) many.capacity[j] = 0;
        }
      }
      PolicyProblem one = problem;
      one.capacity = many.capacity;
      for (int& count : many.capacity) count *= 3;
      const PolicyResult a = Solved(name, one);
      const PolicyResult b = Solved(name, many);
      if (a.allocation.units().empty()) continue;
      EXPECT_NEAR(a.objective, b.objective, 1e-7 * a.objective);
      const size_t jobs = problem.jobs.size();
      for (size_t i = 0; i < many.jobs.size(); ++i) {
        EXPECT_EQ(b.allocation.Row(many.jobs[i].id),
                  b.allocation.Row(many.jobs[i % jobs].id));
      }
    }
  }
}

}  // namespace
}  // namespace gavel::testing
