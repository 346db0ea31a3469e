// Finish-time fairness of apps (Themis, NSDI'20, section 3), and the strawman.
#include "coordinator/policy/app_fairness.h"

#include "tests/policy/problems.h"
#include "tests/policy/solved.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using policy::FairApp;
using policy::FairAppsOf;
using policy::SecondsLeft;

// Four accelerators; app 0 has jobs 1 and 2, job 3 is an app of its own.
PolicyProblem TwoApps() {
  PolicyProblem problem = MakeProblem({4}, {{1}, {1}, {2}});
  problem.apps = {{.age_s = 100, .apps_average = 2}};
  problem.jobs[0].app = problem.jobs[1].app = 0;
  problem.jobs[0].steps_remaining = 300;
  problem.jobs[0].steps_done = 100;
  problem.jobs[1].steps_remaining = 200;
  problem.jobs[2].steps_remaining = 600;
  problem.jobs[2].time_since_start_s = 50;
  problem.jobs[2].apps_average = 1.5;
  return problem;
}

TEST(AppFairness, TheIdealIsTheTimeAloneTimesTheAppsPresent) {
  const PolicyProblem problem = TwoApps();
  const Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  ASSERT_EQ(apps.size(), 2u);
  EXPECT_EQ(apps[0].jobs, (std::vector<size_t>{0, 1}));
  // The longest job takes 400 s; the area, 600, would take 150 s.
  EXPECT_DOUBLE_EQ(apps[0].ideal_s, 400 * 2);
  EXPECT_DOUBLE_EQ(apps[0].age_s, 100);
  EXPECT_EQ(apps[1].jobs, (std::vector<size_t>{2}));
  EXPECT_DOUBLE_EQ(apps[1].ideal_s, 300 * 1.5);
  EXPECT_DOUBLE_EQ(apps[1].age_s, 50);
}

TEST(AppFairness, JobsThatHaveEndedCountInTheIdeal) {
  PolicyProblem problem = TwoApps();
  problem.apps[0].ended_longest_s = 100;
  problem.apps[0].ended_area_s = 3000;
  const Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  EXPECT_DOUBLE_EQ(apps[0].ideal_s, (3000 + 400 + 200) / 4.0 * 2);
}

TEST(AppFairness, TheWorkLeftTakesAsLongAsItsLongestJobOrItsArea) {
  const PolicyProblem problem = TwoApps();
  const Assigner assigner(problem);
  const FairApp app = FairAppsOf(problem, assigner)[0];
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 1), 500);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 2), 300);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 4), 300);
  EXPECT_DOUBLE_EQ(Rho(app, 500), (100 + 500) / 800.0);
}

TEST(AppFairness, RhoFollowsWhatTheAppHolds) {
  PolicyProblem problem = TwoApps();
  problem.jobs[0].running_on = 0;
  const Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  EXPECT_DOUBLE_EQ(PresentRho(assigner, apps[0], 60), (100 + 500) / 800.0);
  // It waits for a round and then runs on one accelerator.
  EXPECT_DOUBLE_EQ(PresentRho(assigner, apps[1], 60), (50 + 60 + 300) / 450.0);
}

TEST(AppFairness, AJobOfUnknownLengthIsHalfDone) {
  PolicyProblem problem = MakeProblem({1}, {{2}});
  problem.jobs[0].steps_done = 500;
  problem.jobs[0].time_since_start_s = 250;
  const Assigner assigner(problem);
  const FairApp app = FairAppsOf(problem, assigner)[0];
  EXPECT_DOUBLE_EQ(app.ideal_s, 500);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, 0, 0), 250);
}

TEST(AppFairness, TheRatesOnSeveralTypesAddUp) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 3}, {1, 3}});
  problem.apps = {{}};
  for (PolicyJob& job : problem.jobs) {
    job.app = 0;
    job.steps_remaining = 300;
  }
  problem.jobs[0].running_on = 0;
  problem.jobs[1].running_on = 1;
  const Assigner assigner(problem);
  const FairApp app = FairAppsOf(problem, assigner)[0];
  // 600 s on the first type, 200 s on the second.
  EXPECT_DOUBLE_EQ(PresentRho(assigner, app, 60), 150 / app.ideal_s);
}

TEST(Strawman, TheAppOfTheLargestRhoTakesAllThatItCanUse) {
  PolicyProblem problem = TwoApps();
  problem.capacity = {2};
  problem.apps[0].age_s = 2000;
  EXPECT_EQ(AssignedBy("strawman", problem),
            (Assigned{{{1, 0}, 0}, {{2, 0}, 0}}));
  problem.apps[0].age_s = 0;
  problem.jobs[2].time_since_start_s = 2000;
  EXPECT_EQ(AssignedBy("strawman", problem),
            (Assigned{{{3, 0}, 0}, {{1, 0}, 0}}));
}

TEST(AppFairness, BadAppsAreRefused) {
  PolicyProblem problem = TwoApps();
  problem.jobs[2].app = 1;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("app 1 of 1"));
  problem = TwoApps();
  problem.apps[0].apps_average = 0.5;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("an average of 0.5 apps"));
  problem = TwoApps();
  problem.apps[0].ended_area_s = -1;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("a time of -1"));
}

}  // namespace
}  // namespace gavel::testing
