// Apps in the engine: what a policy learns of them (Themis, NSDI'20, section 3)
// and how an auction is explained.
#include "coordinator/engine/apps.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

std::map<JobId, double> RhoOfAll(const Engine& engine, Time now) {
  RhoProblem rho = engine.EmptyRhoProblem();
  for (const auto& [id, job] : engine.jobs()) engine.AddToRho(job, now, rho);
  return RhoOfJobs(rho);
}

class EngineAppsTest : public ::testing::Test {
 protected:
  JobId Submit(const std::string& name, const std::string& app,
               uint64_t steps = 1000) {
    JobSpec spec;
    spec.owner = "ann";
    spec.app = app;
    spec.steps_total = steps;
    spec.throughputs = {{"v100", 10}};
    return driver_.Submit(name, 1, spec);
  }
  // The app is present from now on also without jobs.
  void Tell(AppGoal goal, const std::string& owner = "ann") {
    goal.app = "search";
    driver_.Step(event::AppGoalSet{owner, std::move(goal), 9});
  }
  void Cancel(JobId id) {
    driver_.Step(event::JobCommanded{id, CommandKind::kCancel, 1});
  }
  // The apps that were present on average since the app began.
  double Average() const {
    return driver_.problem.apps.empty() ? 0
                                        : driver_.problem.apps[0].apps_average;
  }
  const PolicyJob& Row(JobId id) const {
    for (const PolicyJob& job : driver_.problem.jobs) {
      if (job.id == id) return job;
    }
    ADD_FAILURE() << "the problem lacks job " << id.value();
    return driver_.problem.jobs.front();
  }

  EngineDriver driver_{
      2, "themis", [](EngineOptions& options) { options.app_timeout_s = 150; }};
};

TEST_F(EngineAppsTest, JobsOfOneUserWithOneNameAreOneApp) {
  const JobId first = Submit("a", "search");
  const JobId second = Submit("b", "search");
  const JobId alone = Submit("c", "");
  ASSERT_EQ(driver_.problem.apps.size(), 1u);
  EXPECT_EQ(Row(first).app, 0);
  EXPECT_EQ(Row(second).app, 0);
  EXPECT_EQ(Row(alone).app, -1);
}

TEST_F(EngineAppsTest, TheAverageOfAppsPresentIsOverTheAppsLife) {
  Submit("a", "search");  // alone for 100 s
  driver_.At(100);
  const JobId other = Submit("b", "");
  driver_.At(200);
  Submit("c", "search");
  ASSERT_EQ(driver_.problem.apps.size(), 1u);
  EXPECT_NEAR(driver_.problem.apps[0].age_s, 200, 1e-9);
  EXPECT_NEAR(driver_.problem.apps[0].apps_average, 1.5, 1e-9);
  EXPECT_NEAR(Row(other).apps_average, 2, 1e-9);
}

TEST_F(EngineAppsTest, WorkOfEndedJobsCountsUntilTheAppEnds) {
  const JobId first = Submit("a", "search");
  const JobId second = Submit("b", "search");
  const WorkerKey worker = driver_.Run(first);
  Progress progress;
  progress.steps_done = 400;
  driver_.GiveBack(worker, progress);
  driver_.Step(event::JobCommanded{first, CommandKind::kCancel, 1});
  ASSERT_EQ(driver_.problem.apps.size(), 1u);
  EXPECT_NEAR(driver_.problem.apps[0].ended_longest_s, 40, 1e-9);
  EXPECT_NEAR(driver_.problem.apps[0].ended_area_s, 40, 1e-9);
  driver_.Step(event::JobCommanded{second, CommandKind::kCancel, 1});
  driver_.At(50);
  Submit("c", "search");
  ASSERT_EQ(driver_.problem.apps.size(), 1u);
  EXPECT_EQ(driver_.problem.apps[0].ended_area_s, 0);
  EXPECT_EQ(driver_.problem.apps[0].age_s, 0);
}

TEST_F(EngineAppsTest, ARestartAndASnapshotKeepThem) {
  Submit("a", "search");
  driver_.At(100);
  const JobId other = Submit("b", "");
  driver_.At(150);
  const auto rho_of = [&](const Engine& engine) {
    return RhoOfAll(engine, driver_.now);
  };
  const std::map<JobId, double> before = rho_of(driver_.engine());
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(rho_of(driver_.Restored()), before);
  driver_.Restart();
  EXPECT_EQ(rho_of(driver_.engine()).size(), 2u);
  EXPECT_NEAR(rho_of(driver_.engine()).at(other), before.at(other), 0.5);
}

// Otherwise an app of which one job was measured and one was not would seem to
// have far more or far less work left than it has.
TEST_F(EngineAppsTest, AJobThatNobodyHasMeasuredIsEstimatedByItsApp) {
  const auto submit = [&](const std::string& name, const std::string& workload,
                          int scale_factor) {
    JobSpec spec;
    spec.app = "search";
    spec.workload = workload;
    spec.steps_total = 1000;
    return driver_.Submit(name, scale_factor, spec);
  };
  const JobId first = submit("a", "", 1);
  const JobId second = submit("b", "", 1);
  const JobId other = submit("c", "another", 1);
  driver_.Run(first);
  driver_.ReportSpeed(first, 20);
  const JobId later = submit("d", "", 1);
  const auto of = [&](JobId id) {
    return driver_.engine().throughputs().Get(id, "v100").steps_per_s;
  };
  EXPECT_NEAR(of(second), 20, 1e-9);
  EXPECT_NEAR(of(later), 20, 1e-9);
  EXPECT_NEAR(of(other), 1, 1e-9);
  driver_.Restart();
  EXPECT_NEAR(of(second), 20, 1e-9);
}

// Between two rungs of a search no trial has a job.
TEST_F(EngineAppsTest, AnAppWithAGoalStaysWithoutJobsAndCountsAsPresent) {
  const JobId first = Submit("a", "search");
  Submit("c", "");
  Tell({});
  EXPECT_EQ(driver_.LastReply(), "");
  driver_.At(100);
  Cancel(first);
  driver_.At(200);
  Submit("b", "search");
  ASSERT_EQ(driver_.problem.apps.size(), 1u);
  EXPECT_NEAR(driver_.problem.apps[0].age_s, 200, 1e-9);
  EXPECT_NEAR(Average(), 2, 1e-9);
}

TEST_F(EngineAppsTest, AnAppEndsWhenItsOptimiserSaysSo) {
  const JobId first = Submit("a", "search");
  Tell({});
  driver_.At(100);
  Cancel(first);
  Tell({.ended = true});
  EXPECT_FALSE(driver_.engine().HasApps());
  Tell({.ended = true});
  EXPECT_THAT(driver_.LastReply(), HasSubstr("you have no app \"search\" now"));
  // Said before, it ends with its last job.
  const JobId second = Submit("b", "search");
  Tell({});
  Tell({.ended = true});
  EXPECT_TRUE(driver_.engine().HasApps());
  Cancel(second);
  EXPECT_FALSE(driver_.engine().HasApps());
}

TEST_F(EngineAppsTest, AnAppWithoutJobsEndsWhenItsOptimiserIsSilent) {
  const JobId first = Submit("a", "search");
  Tell({});
  driver_.At(300);  // it has a job
  EXPECT_TRUE(driver_.engine().HasApps());
  Cancel(first);
  driver_.At(375);
  Tell({});
  driver_.At(510);
  EXPECT_TRUE(driver_.engine().HasApps());
  driver_.Restart();  // nobody could have heard it meanwhile
  driver_.At(645);
  EXPECT_TRUE(driver_.engine().HasApps());
  driver_.At(675);
  EXPECT_FALSE(driver_.engine().HasApps());
}

TEST_F(EngineAppsTest, OnlyTheOwnerOfTheJobsSetsAGoal) {
  const JobId first = Submit("a", "search");
  Tell({}, "bob");
  EXPECT_THAT(driver_.LastReply(), HasSubstr("submit a job with app = "));
  Cancel(first);
  EXPECT_FALSE(driver_.engine().HasApps());
}

TEST_F(EngineAppsTest, AnOwnerHasSoManyGoals) {
  EngineDriver driver;
  const auto set = [&](const std::string& app) {
    driver.Step(event::AppGoalSet{"", {app}, 9});
    return driver.LastReply();
  };
  for (size_t i = 0; i <= engine::kGoalsOfOwnerMax; ++i) {
    JobSpec spec;
    spec.app = StrCat("app-", i);
    driver.Submit(StrCat("a", i), 1, spec);
    const std::string error = set(spec.app);
    if (i < engine::kGoalsOfOwnerMax) {
      ASSERT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr("256 of your apps have a goal already"));
    }
  }
  EXPECT_EQ(set("app-0"), "");  // it has one
}

TEST_F(EngineAppsTest, TheGoalReachesThePolicyAndSurvivesRestarts) {
  const JobId first = Submit("a", "search");
  Tell({.steps_to_come = 500,
        .longest_to_come = 100,
        .steps_total = 2000,
        .longest_total = 300,
        .stop_at = 400});
  const auto expect = [&] {
    ASSERT_EQ(driver_.problem.apps.size(), 1u);
    ASSERT_TRUE(driver_.problem.apps[0].goal.has_value());
    EXPECT_EQ(driver_.problem.apps[0].goal->steps_to_come, 500);
    // It has 1000 steps of its own.
    EXPECT_EQ(Row(first).steps_remaining, 400);
    EXPECT_NEAR(*driver_.engine().AppToCome(driver_.job(first)), 50, 1e-9);
    EXPECT_NEAR(*driver_.engine().SecondsLeft(driver_.job(first), driver_.now),
                40, 1e-9);
  };
  expect();
  const auto rho = RhoOfAll(driver_.engine(), driver_.now);
  EXPECT_EQ(RhoOfAll(driver_.Restored(), driver_.now), rho);
  driver_.Restart();
  expect();
}

TEST_F(EngineAppsTest, AJobAtItsStopHasAlmostNothingLeft) {
  const JobId first = Submit("a", "search");
  Tell({.stop_at = 400});
  const WorkerKey worker = driver_.Run(first);
  Progress progress;
  progress.steps_done = 450;
  driver_.GiveBack(worker, progress);
  Submit("b", "search");
  EXPECT_EQ(Row(first).steps_remaining, 1);  // 0 would be: not known
}

TEST_F(EngineAppsTest, AnAuctionIsExplained) {
  const JobId first = Submit("a", "search");
  Submit("b", "search");
  const JobId alone = Submit("c", "");
  const AppBid* bid = driver_.engine().BidOf(driver_.job(first));
  ASSERT_NE(bid, nullptr);
  EXPECT_EQ(bid->app, first);
  EXPECT_GT(bid->rho, 0);
  ASSERT_NE(driver_.engine().BidOf(driver_.job(alone)), nullptr);
}

// Section 4: no accelerator that a job can use stays idle.
TEST_F(EngineAppsTest, ThemisFillsTheCluster) {
  Submit("a", "search");
  Submit("b", "search");
  Submit("c", "other");
  int assigned = 0;
  for (const auto& [id, job] : driver_.engine().jobs()) {
    assigned += job.assigned.empty() ? 0 : 1;
  }
  EXPECT_EQ(assigned, 2);
}

}  // namespace
}  // namespace gavel
