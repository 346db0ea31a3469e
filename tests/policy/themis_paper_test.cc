// Statements of Themis (Mahajan et al., NSDI'20), each with its section in the
// name of the suite: finish-time fairness (section 3) and the arbiter (section
// 4). Tests of what the paper leaves open follow them. The auction alone has
// partial_allocation_test.cc.
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

// `n` apps of one job each, of 600 s, on a cluster of one type.
PolicyProblem Apps(int accelerators, size_t n) {
  PolicyProblem problem =
      MakeProblem({accelerators}, std::vector<std::vector<double>>(n, {1}));
  problem.round_s = 60;
  for (PolicyJob& job : problem.jobs) {
    job.steps_remaining = 600;
    job.apps_average = static_cast<double>(n);
  }
  return problem;
}

std::vector<JobId> Offered(const PolicyResult& result) {
  std::vector<JobId> offered;
  for (const AppBid& bid : result.bids) {
    if (bid.offered) offered.push_back(bid.app);
  }
  return offered;
}

// ---- section 3: finish-time fairness

// rho compares with the app's time alone: with the whole cluster to itself from
// the beginning, an app has a rho of 1.
TEST(ThemisPaper3, AnAppAloneOnTheClusterHasARhoOfOne) {
  for (const double age_s : {0.0, 200.0}) {
    PolicyProblem problem = MakeProblem({4}, {{1}, {1}});
    problem.apps = {{.age_s = age_s}};
    for (PolicyJob& job : problem.jobs) {
      job.app = 0;
      job.scale_factor = 2;
      job.running_on = 0;
      job.steps_done = age_s;
      job.steps_remaining = 300 - age_s;
    }
    const Assigner assigner(problem);
    const FairApp app = FairAppsOf(problem, assigner)[0];
    EXPECT_DOUBLE_EQ(PresentRho(assigner, app, 60), 1);
  }
}

// The sharing incentive: of n equal apps that each have an nth of the cluster
// all the time, none has a rho above 1.
TEST(ThemisPaper3, AnEqualPartOfTheClusterMeansARhoOfOne) {
  constexpr size_t kApps = 4;
  // Each app has four jobs and one accelerator for them.
  PolicyProblem problem =
      MakeProblem({4}, std::vector<std::vector<double>>(4 * kApps, {1}));
  problem.apps.resize(kApps, {.apps_average = kApps});
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    problem.jobs[m].app = static_cast<int>(m / 4);
    problem.jobs[m].steps_remaining = 300;
    if (m % 4 == 0) problem.jobs[m].running_on = 0;
  }
  const Assigner assigner(problem);
  for (const FairApp& app : FairAppsOf(problem, assigner)) {
    EXPECT_DOUBLE_EQ(PresentRho(assigner, app, 60), 1);
  }
}

TEST(ThemisPaper3, TheIdealIsTheTimeAloneTimesTheAppsPresent) {
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

TEST(ThemisPaper3, JobsThatHaveEndedCountInTheIdeal) {
  PolicyProblem problem = TwoApps();
  problem.apps[0].ended_longest_s = 100;
  problem.apps[0].ended_area_s = 3000;
  const Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  EXPECT_DOUBLE_EQ(apps[0].ideal_s, (3000 + 400 + 200) / 4.0 * 2);
}

TEST(ThemisPaper3, TheWorkLeftTakesAsLongAsItsLongestJobOrItsArea) {
  const PolicyProblem problem = TwoApps();
  const Assigner assigner(problem);
  const FairApp app = FairAppsOf(problem, assigner)[0];
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 1), 500);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 2), 300);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 4), 300);
  EXPECT_DOUBLE_EQ(Rho(app, 500), (100 + 500) / 800.0);
}

// Jobs that the optimiser has yet to submit are work of the app.
TEST(ThemisPaper3, WorkThatIsToComeCountsInBothTimes) {
  PolicyProblem problem = TwoApps();
  problem.apps[0].goal = AppGoal{.steps_to_come = 3000, .longest_to_come = 700};
  const Assigner assigner(problem);
  const FairApp app = FairAppsOf(problem, assigner)[0];
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 1), 500 + 3000);
  EXPECT_DOUBLE_EQ(SecondsLeft(assigner, app, 0, 10), 700);
  // The area is larger than the 700 s of its longest trial.
  EXPECT_DOUBLE_EQ(app.ideal_s, (400 + 200 + 3000) / 4.0 * 2);
}

// A trial that trained in several jobs is one trial, and its steps count once.
TEST(ThemisPaper3, AllWorkAsTheOptimiserSaysReplacesThatOfEndedJobs) {
  PolicyProblem problem = TwoApps();
  problem.apps[0].ended_longest_s = 5000;
  problem.apps[0].ended_area_s = 9000;
  problem.apps[0].goal = AppGoal{.steps_total = 2800, .longest_total = 500};
  const auto ideal_s = [&] {
    const Assigner assigner(problem);
    return FairAppsOf(problem, assigner)[0].ideal_s;
  };
  EXPECT_DOUBLE_EQ(ideal_s(), 2800 / 4.0 * 2);
  problem.apps[0].goal->longest_total = 900;
  EXPECT_DOUBLE_EQ(ideal_s(), 900 * 2);
  // Less than its jobs have is not believed.
  problem.apps[0].goal = AppGoal{.steps_total = 1};
  EXPECT_DOUBLE_EQ(ideal_s(), 400 * 2);
}

TEST(ThemisPaper3, AGoalThatIsNoNumberIsRefused) {
  PolicyProblem problem = TwoApps();
  problem.apps[0].goal = AppGoal{.steps_to_come = -1};
  EXPECT_THAT(CheckProblem(problem), IsInvalid("app 0: -1 steps"));
}

TEST(ThemisPaper3, RhoFollowsWhatTheAppHolds) {
  PolicyProblem problem = TwoApps();
  problem.jobs[0].running_on = 0;
  const Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  EXPECT_DOUBLE_EQ(PresentRho(assigner, apps[0], 60), (100 + 500) / 800.0);
  // It waits for a round and then runs on one accelerator.
  EXPECT_DOUBLE_EQ(PresentRho(assigner, apps[1], 60), (50 + 60 + 300) / 450.0);
}

TEST(ThemisPaper3, TheStrawmanGivesTheLargestRhoAllThatItCanUse) {
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

// An app that overstates its rho starves the others under the strawman. Where
// all apps bid, scaling all values of one of them changes nothing.
TEST(ThemisPaper3, ALiePaysUnderTheStrawmanAndNotInTheAuction) {
  for (const double lie : {2.0, 5.0}) {
    PolicyProblem problem = Apps(1, 4);
    problem.jobs[0].time_since_start_s = 500;
    const Assigned honest = AssignedBy("themis_f=0", problem);
    EXPECT_EQ(AssignedBy("strawman", problem), (Assigned{{{1, 0}, 0}}));
    problem.jobs[3].rho_factor = lie;
    EXPECT_EQ(AssignedBy("strawman", problem), (Assigned{{{4, 0}, 0}}));
    EXPECT_EQ(AssignedBy("themis_f=0", problem), honest);
  }
}

// ---- section 4: the arbiter

// The worst-off fraction 1 - f of the apps sees the offer.
TEST(ThemisPaper4, TheOfferGoesToTheWorstOff) {
  PolicyProblem problem = Apps(1, 10);
  problem.jobs[6].time_since_start_s = 5000;
  problem.jobs[2].time_since_start_s = 4000;
  EXPECT_THAT(Offered(Solved("themis", problem)),
              ElementsAre(JobId(7), JobId(3)));
  EXPECT_THAT(Offered(Solved("themis_f=1", problem)), ElementsAre(JobId(7)));
  EXPECT_THAT(Offered(Solved("themis_f=0", problem)), SizeIs(10));
}

TEST(ThemisPaper4, TheOnlyBidderKeepsItsWholeBundle) {
  PolicyProblem problem = Apps(2, 4);
  problem.jobs[3].time_since_start_s = 5000;
  const PolicyResult result = Solved("themis", problem);
  ASSERT_FALSE(result.bids.empty());
  const AppBid& worst = result.bids.front();
  EXPECT_EQ(worst.app, JobId(4));
  EXPECT_EQ(worst.bid, 1);
  EXPECT_EQ(worst.given, 1);
  EXPECT_DOUBLE_EQ(worst.kept, 1);
  // The other accelerator goes to the app that is the next worst-off.
  EXPECT_THAT(result.assignment, SizeIs(2));
}

TEST(ThemisPaper4, AnAppOfSeveralJobsBidsForThemTogether) {
  PolicyProblem problem = Apps(4, 4);
  problem.apps = {{.age_s = 9000, .apps_average = 2}};
  for (size_t m = 0; m < 3; ++m) problem.jobs[m].app = 0;
  const PolicyResult result = Solved("themis", problem);
  ASSERT_THAT(result.bids, SizeIs(2));
  EXPECT_EQ(result.bids[0].app, JobId(1));
  EXPECT_EQ(result.bids[0].bid, 3);
  EXPECT_EQ(result.bids[0].given, 3);
  EXPECT_FALSE(result.bids[1].offered);
  EXPECT_THAT(result.assignment, SizeIs(4));
}

// The rest is given away after the auction: the arbiter is work-conserving.
TEST(ThemisPaper4, NothingThatAJobCanUseStaysIdle) {
  EXPECT_THAT(Solved("themis", Apps(7, 20)).assignment, SizeIs(7));
  EXPECT_THAT(Solved("themis_f=0", Apps(7, 20)).assignment, SizeIs(7));
  EXPECT_THAT(Solved("themis", Apps(20, 7)).assignment, SizeIs(7));
}

// ---- what the paper leaves open

// If two equal apps bid for one accelerator, the first one wins each round.
// Without it the other would have the accelerator a round of 60 s sooner, so
// the winner keeps 600 / 660 of it, and the other has its turn in the rest of
// the rounds.
TEST(Themis, AppsThatKeepAFractionHaveItOverTheRounds) {
  PolicyProblem problem = Apps(1, 2);
  std::map<JobId, int> turns;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    problem.round = static_cast<uint64_t>(round);
    const PolicyResult result = Solved("themis_f=0", problem);
    ASSERT_THAT(result.assignment, SizeIs(1));
    ++turns[result.assignment.front().unit.job];
  }
  EXPECT_NEAR(turns[JobId(1)], kRounds * 600 / 660, 2);
  EXPECT_NEAR(turns[JobId(2)], kRounds * 60 / 660, 2);
}

TEST(Themis, AnAppPrefersTheTypeWhereItIsFaster) {
  PolicyProblem problem = MakeProblem({1, 1}, {{1, 4}});
  problem.jobs[0].steps_remaining = 600;
  EXPECT_EQ(AssignedBy("themis", problem), (Assigned{{{1, 0}, 1}}));
}

TEST(Themis, AJobThatRunsStaysOnItsType) {
  PolicyProblem problem = Apps(3, 3);
  problem.types = {"a", "b"};
  problem.capacity = {3, 3};
  problem.throughputs = {1, 1, 1, 1, 1, 1};
  problem.jobs[1].running_on = 1;
  EXPECT_EQ(AssignedBy("themis", problem).at({2, 0}), 1u);
}

TEST(Themis, TheCertificateIsThatOfItsFirstAuction) {
  const PolicyResult result = Solved("themis_f=0", Apps(3, 6));
  EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
  EXPECT_GE(result.bound, result.objective - 1e-9);
  EXPECT_LE(result.gap, 1e-6);
}

TEST(Themis, KnobsOutsideTheRangeAreRefused) {
  for (const char* name :
       {"themis_f=", "themis_f=-0.1", "themis_f=1.5", "themis_f=nan"}) {
    EXPECT_THAT(MakePolicy(name),
                StatusIs(absl::StatusCode::kNotFound, "f is from 0"))
        << name;
  }
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

TEST(AppFairness, BadAppsAreRefused) {
  PolicyProblem problem = TwoApps();
  problem.jobs[2].app = 1;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("app 1 of 1"));
  problem = TwoApps();
  problem.apps[0].apps_average = 0;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("an average of 0 apps"));
  problem = TwoApps();
  problem.jobs[2].apps_average = 0.5;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("an average of 0.5 apps"));
  problem = TwoApps();
  problem.apps[0].rho_factor = 0;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("rho times 0"));
  problem = TwoApps();
  problem.apps[0].ended_area_s = -1;
  EXPECT_THAT(CheckProblem(problem), IsInvalid("a time of -1"));
}

}  // namespace
}  // namespace gavel::testing
