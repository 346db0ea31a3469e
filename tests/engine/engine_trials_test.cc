// What is learnt of jobs while they run: turns on trial, what they cost, slow
// accelerators, and figures that turn out to be wrong.
#include "gmock/gmock.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

using ::testing::HasSubstr;

void ReportSpeed(EngineDriver& driver, JobId job, double steps_per_s,
                 double window_s = 30) {
  Progress progress;
  progress.throughput_steps_per_s = steps_per_s;
  progress.window_s = window_s;
  driver.Step(event::StepsReported{driver.Key(job),
                                   driver.worker(job).held_epoch, progress});
}

JobSpec Submitted(double steps_per_s) {
  JobSpec spec;
  spec.throughputs["v100"] = steps_per_s;
  return spec;
}

TEST(Trials, AreChargedForOneRoundAtMost) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("new");
  driver.Run(job);
  const Time began = driver.now;
  EXPECT_EQ(driver.engine().ProfilingAt(began).accelerators, 1);
  EXPECT_EQ(driver.engine().ProfilingAt(began).accelerator_s, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(began + 40).accelerator_s, 40);
  // Rounds are of 100 s.
  EXPECT_EQ(driver.engine().ProfilingAt(began + 500).accelerator_s, 100);
  EXPECT_EQ(driver.engine().ProfilingAt(began + 500).accelerators, 0);
  driver.now = began + 30;
  driver.Step(event::LeaseEnded{driver.Key(job), driver.worker(job).held_epoch,
                                Progress(), false});
  EXPECT_EQ(driver.engine().ProfilingAt(began + 90).accelerators, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(began + 90).accelerator_s, 30);
}

TEST(Trials, OfWhatIsKnownCostNothing) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("known", 1, Submitted(5));
  driver.Run(job);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerators, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerator_s, 0);
}

// Three jobs on one accelerator, of which two might share it.
bool TriesPairs(double profiling_percentage) {
  EngineDriver driver(1, "max_min_fairness", [&](EngineOptions& options) {
    options.packing = true;
    options.pair_trials = true;
    options.profiling_percentage = profiling_percentage;
  });
  for (const char* name : {"a", "b", "c"}) {
    driver.Submit(name, 1, Submitted(1));
  }
  for (int round = 0; round < 5; ++round) {
    driver.At(driver.engine().round_ends_at());
    for (const auto& [id, job] : driver.engine().jobs()) {
      if (job.partner.valid()) return true;
    }
  }
  return false;
}

TEST(Trials, TakeNoMoreThanTheyMay) {
  EXPECT_TRUE(TriesPairs(50));
  EXPECT_TRUE(TriesPairs(1));  // one at least
  EXPECT_FALSE(TriesPairs(0));
}

TEST(Trials, HowMuchTheyMayTakeIsInTheJournal) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.profiling_percentage = 7;
    options.reference_models = 3;
  });
  const auto bytes = driver.engine().Snapshot();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  Engine other{EngineOptions()};
  ASSERT_TRUE(other.Restore(*bytes).ok());
  EXPECT_EQ(other.options().profiling_percentage, 7);
  EXPECT_EQ(other.options().reference_models, 3);
}

// A gang of two whose ranks are on two servers of one accelerator each.
class SpreadGang : public ::testing::Test {
 protected:
  SpreadGang()
      : driver_(1, "max_min_fairness", [](EngineOptions& options) {
          options.placement_sensitive = true;
        }) {
    driver_.JoinServer("there", 1);
  }
  JobId Start(int asked, const JobSpec& spec) {
    const JobId job = driver_.Submit("gang", asked, spec);
    for (const int rank : {0, 1}) driver_.Hello(driver_.Key(job, rank));
    driver_.Request(driver_.Key(job));
    driver_.Request(driver_.Key(job), /*holding=*/true, 0, "here:1");
    driver_.Request(driver_.Key(job, 1));
    for (const Worker& worker : driver_.job(job).gang()) {
      EXPECT_EQ(worker.held_epoch, driver_.job(job).epoch);
    }
    return job;
  }
  // Steps that the policy thinks it has made in ten seconds.
  double StepsInTen(JobId job) {
    driver_.now += 10;
    driver_.Submit(StrCat("other ", driver_.now));
    return static_cast<double>(driver_.job(job).spec.steps_total) -
           driver_.problem.jobs[0].steps_remaining;
  }
  ThroughputSource SourceOf(JobId job, const std::string& name) const {
    return driver_.engine().throughputs().Get(job, name).source;
  }
  EngineDriver driver_;
};

TEST_F(SpreadGang, IsMeasuredAsOfItsTypeWhereNobodyTellsPlacementsApart) {
  JobSpec spec;
  spec.steps_total = 10000;
  const JobId job = Start(2, spec);
  ReportSpeed(driver_, job, 30);
  EXPECT_FALSE(driver_.problem.placement_sensitive());
  EXPECT_EQ(SourceOf(job, "v100"), ThroughputSource::kMeasured);
  EXPECT_EQ(SourceOf(job, "v100_unconsolidated"), ThroughputSource::kGuessed);
  EXPECT_DOUBLE_EQ(StepsInTen(job), 300);
  EXPECT_THAT(driver_.problem.throughputs[0], 30);
}

TEST_F(SpreadGang, CorrectsTheFigureOfItsPlacement) {
  JobSpec spec;
  spec.steps_total = 10000;
  spec.throughputs = {{"v100", 90}, {"v100_unconsolidated", 60}};
  const JobId job = Start(2, spec);
  ReportSpeed(driver_, job, 30, 1e6);
  EXPECT_EQ(SourceOf(job, "v100"), ThroughputSource::kGiven);
  EXPECT_NEAR(StepsInTen(job), 300, 0.01);
  ASSERT_TRUE(driver_.problem.placement_sensitive());
  EXPECT_THAT(driver_.problem.throughputs[0], 90);
  EXPECT_NEAR(driver_.problem.throughputs[1], 30, 0.001);
}

TEST_F(SpreadGang, OfAnotherSizeIsReadAsItWasMeasured) {
  JobSpec spec;
  spec.steps_total = 10000;
  spec.scale_factor_min = 2;
  spec.throughputs = {{"v100", 90}, {"v100_unconsolidated", 60}};
  const JobId job = Start(3, spec);
  ASSERT_EQ(driver_.job(job).world_size, 2);
  ReportSpeed(driver_, job, 20, 1e6);
  EXPECT_NEAR(StepsInTen(job), 200, 0.01);
  ASSERT_TRUE(driver_.problem.placement_sensitive());
  EXPECT_NEAR(driver_.problem.throughputs[1], 20, 0.001);
}

TEST_F(SpreadGang, IsOnTrialOnce) {
  const JobId job = Start(2, JobSpec());
  const auto told = [&](Time at) { return driver_.engine().ProfilingAt(at); };
  EXPECT_EQ(told(driver_.now).accelerators, 2);
  const auto give_back = [&] {
    for (const int rank : {0, 1}) {
      driver_.Step(event::LeaseEnded{
          driver_.Key(job, rank),
          driver_.job(job).workers[static_cast<size_t>(rank)].held_epoch,
          Progress(), false});
    }
  };
  driver_.now += 10;
  give_back();
  EXPECT_EQ(told(driver_.now).accelerator_s, 20);
  driver_.At(driver_.now + 1);
  driver_.Request(driver_.Key(job));
  ASSERT_NE(driver_.worker(job).held_epoch, 0u);
  EXPECT_EQ(told(driver_.now + 50).accelerators, 0);
  EXPECT_EQ(told(driver_.now + 50).accelerator_s, 20);
}

TEST(Notes, AUserWhoseEstimateIsOffIsTold) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("wrong", 1, Submitted(40));
  driver.Run(job);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)), "");
  ReportSpeed(driver, job, 22);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)),
            "submitted 40 steps/s on v100, measured 22");
  // And the policy is told what was measured, nearly.
  EXPECT_NEAR(driver.engine().throughputs().Get(job, "v100").steps_per_s, 22,
              1);
}

TEST(Notes, AnEstimateThatIsAboutRightIsNot) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("right", 1, Submitted(40));
  driver.Run(job);
  ReportSpeed(driver, job, 36);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)), "");
}

TEST(Notes, AJobThatSlowsDownIsNoticed) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("drifts");
  driver.Run(job);
  for (int i = 0; i < 20; ++i) ReportSpeed(driver, job, 40, 60);
  ReportSpeed(driver, job, 20, 60);
  EXPECT_THAT(driver.engine().ThroughputNotes(driver.job(job)),
              HasSubstr("slower on v100 than before: 20 steps/s"));
}

// Two jobs lose their accelerators and come, one after the other, to the third.
TEST(Stragglers, AreFoundByTheJobsThatCameFromElsewhere) {
  EngineDriver driver(3, "max_min_fairness");
  const JobId first = driver.Submit("first", 1, Submitted(10));
  const JobId second = driver.Submit("second", 1, Submitted(20));
  driver.Run(first);
  driver.Run(second);
  ReportSpeed(driver, first, 10);
  ReportSpeed(driver, second, 20);
  const auto lose = [&](JobId job, double steps_per_s) {
    const Accelerator lost =
        driver.engine().cluster().accelerator(driver.worker(job).held);
    driver.Step(event::AcceleratorLost{lost.server, lost.info.uuid});
    driver.Step(event::LeaseEnded{
        driver.Key(job), driver.worker(job).held_epoch, Progress(), false});
    driver.At(driver.now + 1);
    if (driver.worker(job).process != ProcessState::kJoined) {
      driver.Hello(driver.Key(job));
    }
    driver.Request(driver.Key(job));
    ASSERT_NE(driver.worker(job).held_epoch, 0u);
    ReportSpeed(driver, job, steps_per_s);
  };
  lose(first, 5);
  const AcceleratorId slow = driver.worker(first).held;
  EXPECT_FALSE(driver.engine().speeds().any());  // one job alone
  driver.Gone(driver.Key(first), 0);
  lose(second, 10);
  ASSERT_EQ(driver.worker(second).held, slow);
  EXPECT_NEAR(driver.engine().speeds().Of(slow), 0.5, 1e-9);
  // From now on what it tells is of the type, not of the straggler.
  for (int i = 0; i < 10; ++i) ReportSpeed(driver, second, 10, 60);
  EXPECT_NEAR(driver.engine().throughputs().Get(second, "v100").steps_per_s, 20,
              0.5);
  // The agent is started anew, and says what still runs.
  driver.JoinServer("here", 2, {{driver.Key(second), 1}});
  EXPECT_FALSE(driver.engine().speeds().any());
}

}  // namespace
}  // namespace gavel
