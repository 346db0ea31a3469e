#include <cmath>

#include "gtest/gtest.h"
#include "tests/policy/checker.h"
#include "tests/policy/problems.h"
#include "tests/policy/solved.h"

namespace gavel::testing {
namespace {

constexpr char kInnerPolicy[] = "max_min_fairness_water_filling_perf";

// Equal jobs of one type; `entity_of`: by job.
PolicyProblem Organisations(int capacity, std::vector<PolicyEntity> entities,
                            const std::vector<int>& entity_of) {
  PolicyProblem problem = MakeProblem(
      {capacity},
      std::vector<std::vector<double>>(entity_of.size(), std::vector{2.0}));
  problem.entities = std::move(entities);
  for (size_t m = 0; m < entity_of.size(); ++m) {
    problem.jobs[m].entity = entity_of[m];
  }
  return problem;
}

// With one type the normalised throughput is the time that the job runs.
void ExpectTimes(const PolicyProblem& problem,
                 const std::vector<double>& expected) {
  const PolicyResult result = Solved(kInnerPolicy, problem);
  ASSERT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
  EXPECT_EQ(ShareErrors(problem, result), "");
  EXPECT_LE(result.gap, 1e-9);
  for (size_t m = 0; m < expected.size(); ++m) {
    EXPECT_NEAR(result.allocation.Row(problem.jobs[m].id)[0], expected[m], 1e-9)
        << "job " << m + 1;
  }
}

TEST(Hierarchy, EntitiesShareByWeightAndDivideTheirPartFairly) {
  PolicyProblem problem = Organisations(
      1, {{"product", 2, "fairness"}, {"research", 1, "fairness"}}, {0, 0, 1});
  ExpectTimes(problem, {1.0 / 3, 1.0 / 3, 1.0 / 3});
  problem.jobs[1].weight = 3;  // within its entity
  ExpectTimes(problem, {1.0 / 6, 1.0 / 2, 1.0 / 3});
  problem.jobs[2].weight = 9;  // alone in its
  ExpectTimes(problem, {1.0 / 6, 1.0 / 2, 1.0 / 3});
}

TEST(Hierarchy, WhatAnEntityCannotUseGoesToTheOthers) {
  ExpectTimes(Organisations(3, {{"a", 1, "fairness"}, {"b", 1, "fairness"}},
                            {0, 1, 1, 1}),
              {1, 2.0 / 3, 2.0 / 3, 2.0 / 3});
}

TEST(Hierarchy, FifoServesTheEarliestJobFirst) {
  PolicyProblem problem =
      Organisations(2, {{"a", 1, "fairness"}, {"b", 1, "fifo"}}, {0, 0, 1, 1});
  ExpectTimes(problem, {0.5, 0.5, 1, 0});
  problem.jobs[3].arrival_s = -1;
  ExpectTimes(problem, {0.5, 0.5, 0, 1});
  problem.capacity = {3};  // the second of b has what is left of b's part
  ExpectTimes(problem, {0.75, 0.75, 0.5, 1});
}

TEST(Hierarchy, AJobWithoutAnEntityIsOneOfItsOwn) {
  PolicyProblem problem = Organisations(1, {{"a", 1, "fairness"}}, {0, 0, -1});
  ExpectTimes(problem, {0.25, 0.25, 0.5});
  problem.jobs[2].weight = 3;
  ExpectTimes(problem, {0.125, 0.125, 0.75});
}

TEST(Hierarchy, AnEntityWithoutJobsTakesNothing) {
  ExpectTimes(
      Organisations(1, {{"a", 9, "fifo"}, {"b", 1, "fairness"}}, {1, 1}),
      {0.5, 0.5});
}

// The shortest job first, within an entity that has one of two accelerators.
TEST(Hierarchy, AnyPolicyCanDivideTheEntitysPart) {
  PolicyProblem problem =
      Organisations(2, {{"a", 1, "fairness"}, {"b", 1, "sjf"}}, {0, 0, 1, 1});
  problem.jobs[2].steps_remaining = 500;
  problem.jobs[3].steps_remaining = 20;
  ExpectTimes(problem, {0.5, 0.5, 0, 1});
  problem.entities[1].policy = "max_min_fairness_perf";
  ExpectTimes(problem, {0.5, 0.5, 0.5, 0.5});
  problem.jobs[3].weight = 3;
  ExpectTimes(problem, {0.5, 0.5, 0.25, 0.75});
  for (const std::string& name : PolicyNames()) {
    SCOPED_TRACE(name);
    problem.entities[1].policy = name;
    const PolicyResult result = Solved(kInnerPolicy, problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
    EXPECT_NEAR(result.allocation.Row(JobId(1))[0], 0.5, 1e-9);
    EXPECT_NEAR(
        result.allocation.Row(JobId(3))[0] + result.allocation.Row(JobId(4))[0],
        1, 1e-9);
  }
}

TEST(Hierarchy, APolicyThatDoesNotExistIsNamedWithItsEntity) {
  const PolicyProblem problem =
      Organisations(1, {{"product", 1, "lottery"}}, {0, 0});
  EXPECT_THAT((*MakePolicy(kInnerPolicy))->Solve(problem),
              StatusIs(kInvalidArgument, "entity product"));
}

// Each job an entity, with the job's weight: nothing else than flat.
TEST(Hierarchy, OfEntitiesOfOneJobIsFlat) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const PolicyProblem flat = RandomProblem(seed + 1600, 15);
    PolicyProblem problem = flat;
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      problem.entities.push_back(
          {"e", problem.jobs[m].weight, m % 2 == 0 ? "fifo" : "fairness"});
      problem.jobs[m].entity = static_cast<int>(m);
    }
    const std::vector<double> a =
        JobValues(flat, Solved(kInnerPolicy, flat).allocation, false);
    const std::vector<double> b =
        JobValues(problem, Solved(kInnerPolicy, problem).allocation, false);
    for (size_t m = 0; m < a.size(); ++m) {
      if (std::isnan(a[m])) continue;
      EXPECT_NEAR(a[m], b[m], 1e-7 * a[m]);
    }
  }
}

// With all in one fair entity the weights of the jobs decide, as in the flat
// form, up to where the first job can have no more.
TEST(Hierarchy, OfOneEntityHasTheFlatLeastValue) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    PolicyProblem problem = RandomProblem(seed + 1700, 15);
    const double flat = Solved(kInnerPolicy, problem).objective;
    problem.entities = {{"all", 2, "fairness"}};
    for (PolicyJob& job : problem.jobs) job.entity = 0;
    const PolicyResult result = Solved(kInnerPolicy, problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    if (result.allocation.units().empty()) continue;
    EXPECT_NEAR(LeastValue(JobValues(problem, result.allocation, false)), flat,
                1e-7 * flat);
  }
}

TEST(Hierarchy, MixedProblemsAreSolvedAndTheBoundHolds) {
  const char* const policies[] = {"fairness", "fifo", "isolated", "drf"};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const bool packs = seed % 2 == 0;
    PolicyProblem problem = seed % 3 == 0
                                ? RandomPlacement(seed + 1800, 12, packs)
                                : RandomPairs(seed + 1800, 12);
    for (size_t e = 0; e < 4; ++e) {
      problem.entities.push_back(
          {policies[e], 1 + static_cast<double>(e), policies[e]});
    }
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      problem.jobs[m].entity = static_cast<int>(m % 5) - 1;
    }
    const PolicyResult result =
        Solved(packs ? "max_min_fairness_water_filling_packed" : kInnerPolicy,
               problem);
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal) << result.detail;
    EXPECT_EQ(ShareErrors(problem, result), "");
    EXPECT_LE(result.objective, result.bound);
    EXPECT_GE(result.objective, result.bound * (1 - 1e-7));
  }
}

}  // namespace
}  // namespace gavel::testing
