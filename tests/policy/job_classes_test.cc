#include "coordinator/policy/job_classes.h"

#include <cmath>
#include <cstddef>
#include <random>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace policy;
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
  EXPECT_EQ(classes.class_of, (std::vector<uint32_t>{0, 1, 0, 2, 3}));
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

void ExpectSame(const PolicyResult& a, const PolicyResult& b) {
  EXPECT_EQ(a.objective, b.objective);
  EXPECT_EQ(a.bound, b.bound);
  EXPECT_EQ(a.left_out, b.left_out);
  ASSERT_TRUE(std::ranges::equal(a.allocation.units(), b.allocation.units()));
  for (const ShareUnit& unit : a.allocation.units()) {
    ASSERT_EQ(a.allocation.Row(unit), b.allocation.Row(unit));
  }
}

// Straight from the problem, where some jobs can run nowhere and some are equal
// only on the types that they fit on.
TEST(ClassesOf, AreThoseOfTheJobsOneByOne) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem problem =
        Copied(seed % 2 == 0 ? RandomProblem(seed, 10)
                             : RandomPlacement(seed, 8, /*pairs=*/false),
               seed % 3 == 0 ? 1 : 3);
    const ShareOptions options{.agnostic = seed % 4 < 2};
    const ShareProblem shares = MakeShareProblem(problem, options);
    const JobClasses expected = ClassifyJobs(shares);
    const JobClasses classes = ClassesOf(problem, options);
    EXPECT_EQ(classes.problem.left_out, shares.left_out);
    EXPECT_EQ(classes.members, expected.members);
    EXPECT_EQ(classes.problem.jobs, expected.problem.jobs);
    EXPECT_EQ(classes.problem.throughputs, expected.problem.throughputs);
    EXPECT_EQ(classes.problem.limits, expected.problem.limits);
    ASSERT_EQ(classes.problem.cells.size(), expected.problem.cells.size());
    for (size_t i = 0; i < classes.problem.cells.size(); ++i) {
      EXPECT_EQ(classes.problem.cells[i].scale_factor,
                expected.problem.cells[i].scale_factor);
      EXPECT_EQ(classes.problem.cells[i].placement,
                expected.problem.cells[i].placement);
    }
    for (size_t m = 0; m < shares.size(); ++m) {
      EXPECT_EQ(classes.class_of[shares.jobs[m]], expected.class_of[m]);
    }
    // And no job is taken for one that can't be at its best with the others.
    EXPECT_TRUE(MayAllBeAtBest(classes.problem) ||
                !EveryoneAtBest(shares).has_value());
  }
}

TEST(ClassesOf, FewJobsForTheirAcceleratorsMayAllBeAtBest) {
  const std::vector<std::vector<double>> rows = {{2, 2}, {2, 2}, {3, 1}};
  EXPECT_TRUE(MayAllBeAtBest(ClassesOf(MakeProblem({1, 2}, rows)).problem));
  EXPECT_FALSE(MayAllBeAtBest(ClassesOf(MakeProblem({1, 1}, rows)).problem));
  // Two that want the one of the first type.
  EXPECT_FALSE(MayAllBeAtBest(
      ClassesOf(MakeProblem({1, 3}, {{2, 1}, {2, 1}, {1, 1}})).problem));
  // Equal jobs on different types.
  const PolicyResult result =
      Solved("max_min_fairness_perf", MakeProblem({2, 1}, rows));
  EXPECT_EQ(result.solver, "all-at-best");
  EXPECT_NE(result.allocation.Row(JobId(1)), result.allocation.Row(JobId(2)));
}

TEST(ClassesOf, EqualJobsHaveOneRowOfTheAllocation) {
  const PolicyResult result = Solved(
      "max_min_fairness_perf",
      MakeProblem({1, 1}, {{2, 1}, {3, 2}, {2, 1}, {3, 2}, {2, 1}, {2, 1}}));
  EXPECT_EQ(result.allocation.RowAt(0).data(),
            result.allocation.RowAt(5).data());
  EXPECT_NE(result.allocation.RowAt(0).data(),
            result.allocation.RowAt(1).data());
}

// Jobs come, go and change ten times: what is known of rows is carried over,
// and gives what finding out anew gives, to the bit.
TEST(JobRows, CarriedOverTenChangesGiveTheSameAllocation) {
  for (const char* name : {"max_min_fairness", "max_min_fairness_perf"}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      const PolicyProblem source = RandomProblem(seed + 900, 8);
      PolicyProblem problem = Copied(source, 6);
      problem.rows = JobRows(problem);
      uint64_t next = problem.jobs.size() + 1;
      for (int change = 0; change < 10; ++change) {
        const size_t gone = random() % problem.jobs.size();
        const auto at = [&](auto& values, size_t width) {
          return values.begin() + static_cast<std::ptrdiff_t>(gone * width);
        };
        const size_t columns = problem.columns();
        problem.jobs.erase(at(problem.jobs, 1));
        problem.rows.row_of.erase(at(problem.rows.row_of, 1));
        const auto row = at(problem.throughputs, columns);
        problem.throughputs.erase(row,
                                  row + static_cast<std::ptrdiff_t>(columns));
        const size_t like = random() % source.jobs.size();
        PolicyJob job = source.jobs[like];
        job.id = JobId(next++);
        if (change % 3 == 0) job.weight = 1 + change;  // a row never seen
        problem.rows.row_of.push_back(
            problem.rows.Number(job, source.Row(like)));
        problem.jobs.push_back(job);
        problem.throughputs.insert(problem.throughputs.end(),
                                   source.Row(like).begin(),
                                   source.Row(like).end());
        PolicyProblem anew = problem;
        anew.rows = {};
        ExpectSame(Solved(name, problem), Solved(name, anew));
      }
    }
  }
}

TEST(JobRows, EndWhereThereAreTooMany) {
  const PolicyProblem problem = MakeProblem({2}, {{1}, {2}, {1}, {3}});
  EXPECT_EQ(JobRows(problem).row_of, (std::vector<uint32_t>{0, 1, 0, 2}));
  EXPECT_TRUE(JobRows(problem, 2).row_of.empty());
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
