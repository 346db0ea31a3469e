// The engine learns from jobs while they run: trial turns and their cost, slow
// accelerators, and throughput estimates that turn out to be wrong.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

JobSpec Submitted(double steps_per_s) {
  JobSpec spec;
  spec.throughputs["v100"] = steps_per_s;
  return spec;
}

// Workers that were asked to pause give back their leases, launched workers say
// hello, and workers of assigned jobs ask for leases.
void ChangeLeases(EngineDriver& driver) {
  const auto each = [&](const auto& change) {
    for (const auto& [id, job] : driver.engine().jobs()) {
      for (int rank = 0; rank < job.world_size; ++rank) {
        change(job, job.workers[static_cast<size_t>(rank)],
               driver.Key(id, rank));
      }
    }
  };
  each([&](const Job&, const Worker& worker, const WorkerKey& key) {
    if (worker.held_epoch == 0 || worker.pause_sent_at == kNever) return;
    driver.GiveBack(key);
  });
  each([&](const Job&, const Worker& worker, const WorkerKey& key) {
    if (worker.process == ProcessState::kLaunching) driver.Hello(key);
  });
  each([&](const Job& job, const Worker& worker, const WorkerKey& key) {
    if (job.assigned.empty()) return;
    const bool opens = key.rank == 0 && job.is_gang();
    driver.Request(key, worker.held_epoch == job.epoch);
    if (opens) driver.Request(key, /*holding=*/true, 0, "here:1");
  });
}

void NextRound(EngineDriver& driver) {
  driver.At(driver.engine().round_ends_at());
  ChangeLeases(driver);
}

// A job with a known throughput ran first; a new job without one then got the
// only accelerator.
class OneOnTrial : public ::testing::Test {
 protected:
  OneOnTrial() : driver_(1, "max_min_fairness") {
    driver_.Submit("known", 1, Submitted(5));
    ChangeLeases(driver_);
    job_ = driver_.Submit("new");
    NextRound(driver_);
    began_ = driver_.now;
    EXPECT_NE(driver_.worker(job_).held_epoch, 0u);
  }
  TrialCost ToldAt(Time at) const { return driver_.engine().ProfilingAt(at); }

  EngineDriver driver_;
  JobId job_;
  Time began_ = 0;
};

TEST_F(OneOnTrial, IsChargedForOneRoundAtMost) {
  EXPECT_EQ(ToldAt(began_).accelerators, 1);
  EXPECT_EQ(ToldAt(began_).accelerator_s, 0);
  EXPECT_EQ(ToldAt(began_ + 40).accelerator_s, 40);
  // A round takes 100 s.
  EXPECT_EQ(ToldAt(began_ + 500).accelerator_s, 100);
  EXPECT_EQ(ToldAt(began_ + 500).accelerators, 0);
  driver_.now = began_ + 30;
  driver_.GiveBack(job_);
  EXPECT_EQ(ToldAt(began_ + 90).accelerators, 0);
  EXPECT_EQ(ToldAt(began_ + 90).accelerator_s, 30);
}

TEST_F(OneOnTrial, IsNotAnyMoreInTheRoundsThatFollow) {
  for (int round = 0; round < 4; ++round) NextRound(driver_);
  EXPECT_EQ(ToldAt(driver_.now + 50).accelerators, 0);
  EXPECT_EQ(ToldAt(driver_.now + 50).accelerator_s, 100);
}

TEST_F(OneOnTrial, IsSoAfterASnapshotAndAReplay) {
  EXPECT_EQ(driver_.Restored().ProfilingAt(began_ + 40).accelerator_s, 40);
  driver_.Restart();
  EXPECT_EQ(ToldAt(began_ + 40).accelerator_s, 40);
}

// No job had to wait for the accelerator.
TEST(Trials, AJobThatTakesWhatIsIdleIsOnNone) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("new");
  driver.Run(job);
  ASSERT_NE(driver.worker(job).held_epoch, 0u);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerators, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerator_s, 0);
}

TEST(Trials, RunOnNoMoreThanTheirPartOfAType) {
  EngineDriver driver(8, "max_min_fairness", [](EngineOptions& options) {
    options.profiling_percentage = 25;
  });
  for (int i = 0; i < 16; ++i) driver.Submit(StrCat("new ", i));
  ChangeLeases(driver);
  int most = 0;
  for (int round = 0; round < 8; ++round) {
    NextRound(driver);
    int running = 0;
    for (const auto& [id, job] : driver.engine().jobs()) {
      running += job.HoldsAny() ? 1 : 0;
    }
    EXPECT_EQ(running, 8);
    const TrialCost told = driver.engine().ProfilingAt(driver.now + 1);
    EXPECT_LE(told.accelerators, 2) << "round " << round;
    most = std::max(most, told.accelerators);
  }
  EXPECT_EQ(most, 2);
  EXPECT_GT(driver.engine().ProfilingAt(driver.now).accelerator_s, 0);
}

TEST(Trials, OfWhatIsKnownCostNothing) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("known", 1, Submitted(5));
  driver.Run(job);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerators, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 50).accelerator_s, 0);
}

// Whether any two of three jobs on one accelerator are tried as a pair.
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
  EXPECT_TRUE(TriesPairs(1));  // at least one trial
  EXPECT_FALSE(TriesPairs(0));
}

TEST(Trials, HowMuchTheyMayTakeIsInTheJournal) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.profiling_percentage = 7;
    options.reference_models = 3;
  });
  const Engine other = driver.Restored({});
  EXPECT_EQ(other.options().profiling_percentage, 7);
  EXPECT_EQ(other.options().reference_models, 3);
}

// There is nothing to compare where a job can run on one type alone.
TEST(EngineTrials, UnknownJobsTakeTurnsOnTheirOnlyType) {
  EngineDriver driver(2, "max_min_fairness");
  const JobId first = driver.Submit("first", 2);
  const JobId second = driver.Submit("second", 2);
  driver.At(driver.engine().round_ends_at() / 4);
  ChangeLeases(driver);
  ASSERT_THAT(driver.job(first).assigned, SizeIs(2));
  NextRound(driver);
  EXPECT_THAT(driver.job(second).assigned, SizeIs(2));
}

// A job without throughputs, alone on servers of two types.
class UnknownOnTwoTypes : public ::testing::Test {
 protected:
  UnknownOnTwoTypes()
      : driver_(1, "max_min_fairness", [](EngineOptions& options) {
          options.launch_timeout_s = 3600;
          options.agent_timeout_s = kNever;
        }) {
    driver_.Step(event::ServerJoined{EngineDriver::HelloOf("slow", "k80")});
    job_ = driver_.Submit("new");
    place_ = driver_.job(job_).assigned.front();
  }
  bool StaysThere() const {
    return driver_.job(job_).assigned == std::vector{place_};
  }

  EngineDriver driver_;
  JobId job_;
  AcceleratorId place_;
};

TEST_F(UnknownOnTwoTypes, IsNotTriedElsewhereWhileItStarts) {
  for (int round = 0; round < 3; ++round) {
    driver_.At(driver_.engine().round_ends_at());
    EXPECT_TRUE(StaysThere());
  }
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
}

TEST_F(UnknownOnTwoTypes, KeepsAYoungLeaseUntilItIsMeasured) {
  driver_.At(driver_.engine().round_ends_at() - 1);
  ChangeLeases(driver_);
  ASSERT_NE(driver_.worker(job_).held_epoch, 0u);
  NextRound(driver_);
  EXPECT_TRUE(StaysThere());
  // Then another type is tried, and the reason says so.
  for (int round = 0; round < 2 && StaysThere(); ++round) NextRound(driver_);
  EXPECT_FALSE(StaysThere());
  EXPECT_THAT(
      driver_.engine().WhyPaused(driver_.job(job_), 0, place_, driver_.now),
      HasSubstr("is to be measured"));
}

// A gang of two with its ranks on two servers of one accelerator each.
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
  // The steps that the policy believes the job made in ten seconds.
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
  driver_.ReportSpeed(job, 30);
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
  driver_.ReportSpeed(job, 30, 1e6);
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
  driver_.ReportSpeed(job, 20, 1e6);
  EXPECT_NEAR(StepsInTen(job), 200, 0.01);
  ASSERT_TRUE(driver_.problem.placement_sensitive());
  EXPECT_NEAR(driver_.problem.throughputs[1], 20, 0.001);
}

TEST(Trials, OfAGangTakeAllOfItsAcceleratorsOnce) {
  EngineDriver driver(2, "max_min_fairness", [](EngineOptions& options) {
    options.profiling_percentage = 100;
    options.placement_sensitive = true;
  });
  driver.Submit("known", 2, Submitted(5));
  ChangeLeases(driver);
  const JobId job = driver.Submit("new", 2);
  NextRound(driver);
  ASSERT_TRUE(driver.job(job).HoldsAny());
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 10).accelerators, 2);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 10).accelerator_s, 20);
  for (int round = 0; round < 4; ++round) NextRound(driver);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 10).accelerators, 0);
  EXPECT_EQ(driver.engine().ProfilingAt(driver.now + 10).accelerator_s, 200);
}

TEST(Notes, AUserWhoseEstimateIsOffIsTold) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("wrong", 1, Submitted(40));
  driver.Run(job);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)), "");
  driver.ReportSpeed(job, 22);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)),
            "submitted 40 steps/s on v100, measured 22");
  // The policy gets a value close to the measured one.
  EXPECT_NEAR(driver.engine().throughputs().Get(job, "v100").steps_per_s, 22,
              1);
}

TEST(Notes, AnEstimateThatIsAboutRightIsNot) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("right", 1, Submitted(40));
  driver.Run(job);
  driver.ReportSpeed(job, 36);
  EXPECT_EQ(driver.engine().ThroughputNotes(driver.job(job)), "");
}

TEST(Notes, AJobThatSlowsDownIsNoticed) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("drifts");
  driver.Run(job);
  for (int i = 0; i < 20; ++i) driver.ReportSpeed(job, 40, 60);
  driver.ReportSpeed(job, 20, 60);
  EXPECT_THAT(driver.engine().ThroughputNotes(driver.job(job)),
              HasSubstr("slower on v100 than before: 20 steps/s"));
}

// Two jobs lose their accelerators and move, one after the other, to the third
// one.
TEST(Stragglers, AreFoundByTheJobsThatCameFromElsewhere) {
  EngineDriver driver(3, "max_min_fairness");
  JobSpec spec = Submitted(20);
  spec.steps_total = 100'000;
  const JobId first = driver.Submit("first", 1, Submitted(10));
  const JobId second = driver.Submit("second", 1, spec);
  driver.Run(first);
  driver.Run(second);
  driver.ReportSpeed(first, 10);
  driver.ReportSpeed(second, 20);
  driver.MoveByLoss(first);
  driver.ReportSpeed(first, 5);
  const AcceleratorId slow = driver.worker(first).held;
  EXPECT_FALSE(driver.engine().speeds().any());  // one job alone
  driver.Gone(driver.Key(first), 0);
  driver.MoveByLoss(second);
  driver.ReportSpeed(second, 10);
  ASSERT_EQ(driver.worker(second).held, slow);
  EXPECT_NEAR(driver.engine().speeds().Of(slow), 0.5, 1e-9);
  // From now on its measurements are corrected for the straggler, so the
  // throughput of the type stays right.
  for (int i = 0; i < 10; ++i) driver.ReportSpeed(second, 10, 60);
  EXPECT_NEAR(driver.engine().throughputs().Get(second, "v100").steps_per_s, 20,
              0.5);
  // The steps since its last report, however, are estimated at the straggler's
  // pace.
  driver.now += 100;
  driver.Submit("third");
  ASSERT_EQ(driver.problem.jobs[0].id, second);
  EXPECT_NEAR(driver.problem.jobs[0].steps_remaining, 100'000 - 100 * 10, 30);
  // The agent restarts and lists the process that still runs.
  driver.JoinServer("here", 2, {{driver.Key(second), 1}});
  EXPECT_FALSE(driver.engine().speeds().any());
}

TEST(Stragglers, AreGivenAwayLastAndLeftForAnIdleAccelerator) {
  EngineDriver driver(3, "max_min_fairness");
  const JobId first = driver.Submit("first", 1, Submitted(10));
  const JobId second = driver.Submit("second", 1, Submitted(20));
  driver.Run(first);
  driver.Run(second);
  driver.ReportSpeed(first, 10);
  driver.ReportSpeed(second, 20);
  driver.MoveByLoss(first);
  driver.ReportSpeed(first, 5);
  const std::vector<AcceleratorId> slow = driver.job(first).assigned;
  driver.Gone(driver.Key(first), 0);
  driver.MoveByLoss(second);
  driver.ReportSpeed(second, 10);
  driver.Gone(driver.Key(second), 0);
  ASSERT_TRUE(driver.engine().speeds().slow().contains(slow.front()));
  // Adds three accelerators that are as fast as their type.
  driver.JoinServer("there", 1);
  std::vector<JobId> jobs;
  for (const std::string name : {"a", "b", "c", "d"}) {
    jobs.push_back(driver.Submit(name, 1, Submitted(10)));
    driver.At(driver.now + 1);
    driver.Run(jobs.back());
    EXPECT_EQ(driver.job(jobs.back()).assigned == slow, name == "d") << name;
  }
  WorkerExited ended = driver.ExitOf(jobs[1]);
  ended.finished_code = 0;
  driver.Step(event::WorkerGone{ended});
  EXPECT_EQ(driver.job(jobs.back()).assigned, slow) << "until the round ends";
  for (int round = 0; round < 2; ++round) {
    driver.EndRound();
    EXPECT_THAT(driver.job(jobs.back()).assigned, AllOf(SizeIs(1), Ne(slow)));
  }
}

// Gangs of two on two servers of one rack, of one accelerator each.
class RackGang : public SpreadGang {
 protected:
  RackGang() {
    driver_.rack = "r";
    for (const char* server : {"here", "there"}) driver_.JoinServer(server, 2);
  }
};

TEST_F(RackGang, CorrectsTheFigureOfItsRack) {
  JobSpec spec;
  spec.steps_total = 10000;
  spec.throughputs = {
      {"v100", 90}, {"v100@rack", 80}, {"v100_unconsolidated", 60}};
  const JobId job = Start(2, spec);
  driver_.ReportSpeed(job, 40, 1e6);
  EXPECT_EQ(SourceOf(job, "v100"), ThroughputSource::kGiven);
  EXPECT_EQ(SourceOf(job, "v100_unconsolidated"), ThroughputSource::kGiven);
  EXPECT_EQ(SourceOf(job, "v100@rack"), ThroughputSource::kMeasured);
  EXPECT_NEAR(StepsInTen(job), 400, 0.01);
  // Policies see the tightest level beyond a server that has room.
  ASSERT_TRUE(driver_.problem.placement_sensitive());
  EXPECT_EQ(driver_.problem.throughputs[0], 90);
  EXPECT_NEAR(driver_.problem.throughputs[1], 40, 0.001);
  EXPECT_NEAR(driver_.problem.ThroughputAt(0, 0, Locality::kRack), 40, 0.001);
  EXPECT_EQ(driver_.problem.ThroughputAt(0, 0, Locality::kCluster), 60);
  EXPECT_EQ(driver_.problem.ThroughputAt(0, 0, Locality::kGroup), 90);
}

TEST_F(RackGang, WithoutAFigureOfItsRackHasTheOneOfSpreadGangs) {
  JobSpec spec;
  spec.steps_total = 10000;
  spec.throughputs = {{"v100", 90}, {"v100_unconsolidated", 60}};
  const JobId job = Start(2, spec);
  driver_.ReportSpeed(job, 30, 1e6);
  EXPECT_NEAR(StepsInTen(job), 300, 0.01);
  EXPECT_TRUE(driver_.problem.level_throughputs.empty());
  EXPECT_NEAR(driver_.problem.throughputs[1], 30, 0.001);
}

TEST(GroupGang, HasTheFigureOfItsGroup) {
  EngineDriver driver(4, "max_min_fairness", [](EngineOptions& options) {
    options.placement_sensitive = true;
    options.progress = true;
  });
  driver.declare = [](AcceleratorInfo& info) {
    info.group = info.uuid == "here-1" || info.uuid == "here-3" ? "odd" : "";
  };
  driver.JoinServer("here", 2);
  JobSpec spec;
  spec.throughputs = {{"v100", 50}, {"v100@group", 70}};
  const JobId gang = driver.Submit("gang", 2, spec);
  JobSpec large;
  large.throughputs = {{"v100", 100}, {"v100@group", 150}};
  driver.Submit("large", 4, large);
  EXPECT_EQ(driver.engine().cluster().LevelOf(driver.job(gang).assigned),
            Locality::kGroup);
  EXPECT_EQ(driver.problem.throughputs[0], 70);
  EXPECT_EQ(driver.problem.throughputs[2], 100) << "no group has four";
  ASSERT_THAT(driver.problem.hosts, SizeIs(1));
  EXPECT_EQ(driver.problem.hosts[0].group, 2);
  EXPECT_EQ(driver.problem.hosts[0].rack, -1);
}

}  // namespace
}  // namespace gavel
