// Interactive jobs: they start at once, are never disturbed, and end when idle.
#include "coordinator/engine/interactive.h"

#include <algorithm>

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

JobSpec Interactive(std::string owner = "", double idle_limit_s = 0) {
  JobSpec spec;
  spec.job_class = JobClass::kInteractive;
  spec.owner = std::move(owner);
  if (idle_limit_s > 0) spec.idle_limit_s = idle_limit_s;
  return spec;
}

// Pauses of this job's workers that were asked for, and stops.
int Disturbances(const EngineDriver& driver, JobId job) {
  int count = 0;
  for (const Action& action : driver.actions) {
    const auto* pause = EngineDriver::MessageIn<PauseRequest>(action);
    const auto* stop = EngineDriver::MessageIn<StopWorker>(action);
    count += pause != nullptr && pause->worker.job == job;
    count += stop != nullptr && stop->worker.job == job;
  }
  return count;
}

// All training jobs that were asked to pause do so.
void Obey(EngineDriver& driver) {
  for (const auto& [id, job] : driver.engine().jobs()) {
    const Worker& worker = job.workers.front();
    if (job.spec.opaque() || worker.held_epoch == 0) continue;
    if (worker.pause_sent_at != kNever) driver.GiveBack(id, worker.progress);
  }
}

void Use(EngineDriver& driver, JobId job) {
  driver.Step(event::TerminalUsed{{"here", driver.Key(job), {}}});
}

TEST(InteractiveJob, HasAFreeAcceleratorAtOnceAndATerminal) {
  EngineDriver driver(2, "max_min_fairness");
  driver.Run(driver.Submit("a"));
  const JobId shell = driver.Submit("b", 1, Interactive());
  driver.At(driver.now);
  EXPECT_NE(driver.worker(shell).held_epoch, 0u);
  ASSERT_TRUE(driver.Last<LaunchWorker>().has_value());
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, shell);
  EXPECT_TRUE(driver.Last<LaunchWorker>()->terminal);
  EXPECT_EQ(driver.Count<PauseRequest>(), 0) << "nobody has to make room";
}

TEST(InteractiveJob, PausesATrainingJobInTheMiddleOfTheRound) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId training = driver.Submit("a");
  driver.Run(training);
  driver.At(10);  // of 100
  const JobId shell = driver.Submit("b", 1, Interactive());
  driver.At(driver.now);
  ASSERT_TRUE(driver.Last<PauseRequest>().has_value());
  EXPECT_EQ(driver.Last<PauseRequest>()->worker.job, training);
  EXPECT_EQ(driver.Last<PauseRequest>()->tier, PauseTier::kPark);
  EXPECT_EQ(driver.worker(shell).held_epoch, 0u) << "not beside it";
  EXPECT_THAT(driver.Why(shell), HasSubstr("job 1 has not yet released"));
  driver.At(10.5);
  Obey(driver);
  driver.At(driver.now);
  EXPECT_NE(driver.worker(shell).held_epoch, 0u);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, shell);
  EXPECT_THAT(driver.Why(shell), HasSubstr("it is interactive"));
  EXPECT_THAT(driver.Why(training),
              HasSubstr("interactive job 2 keeps its v100 on here until it "
                        "ends"));
}

TEST(InteractiveJob, TakesAcceleratorsFromTheSmallestAndLatestJob) {
  EngineDriver driver(4, "fifo");
  const JobId gang = driver.Submit("a", 2);
  const JobId first = driver.Submit("b");
  const JobId second = driver.Submit("c");
  driver.Hello(driver.Key(gang, 0));
  driver.Hello(driver.Key(gang, 1));
  driver.Run(first);
  driver.Run(second);
  driver.Submit("d", 1, Interactive());
  EXPECT_TRUE(driver.job(second).assigned.empty());
  EXPECT_FALSE(driver.job(first).assigned.empty());
  EXPECT_EQ(driver.job(gang).assigned.size(), 2u);
}

// In each policy: its accelerator is not there for others, and it is no job of
// the problem.
TEST(InteractiveJob, IsNeverPausedMovedOrPackedByAnyPolicy) {
  for (const char* policy :
       {"fifo", "max_min_fairness", "max_min_fairness_packed",
        "finish_time_fairness", "gandiva", "isolated"}) {
    EngineDriver driver(2, policy, [&](EngineOptions& options) {
      options.packing = std::string_view(policy).ends_with("packed") ||
                        std::string_view(policy) == "gandiva";
      options.introspection = true;
      options.trial_backoff_s = 1;
    });
    const JobId shell = driver.Submit("a", 1, Interactive());
    driver.At(driver.now);
    const std::vector<AcceleratorId> had = driver.job(shell).assigned;
    ASSERT_EQ(had.size(), 1u) << policy;
    for (const char* name : {"b", "c", "d"}) {
      driver.Run(driver.Submit(name));
    }
    for (int round = 0; round < 20; ++round) {
      Use(driver, shell);
      driver.Step(event::AgentHeard{{"here", 1, {1, 0}}});
      driver.EndRound();
      for (const auto& [id, job] : driver.engine().jobs()) {
        if (id != shell && !job.assigned.empty()) driver.Run(id);
      }
    }
    EXPECT_THAT(driver.problem.capacity, ElementsAre(1)) << policy;
    EXPECT_EQ(Disturbances(driver, shell), 0) << policy;
    EXPECT_EQ(driver.job(shell).assigned, had) << policy;
    EXPECT_FALSE(driver.job(shell).partner.valid()) << policy;
  }
}

TEST(InteractiveJob, IsNotGivenTheAcceleratorOfAnotherOne) {
  EngineDriver driver(1, "fifo");
  const JobId first = driver.Submit("a", 1, Interactive("ada"));
  driver.At(driver.now);
  const JobId second = driver.Submit("b", 1, Interactive("bob"));
  driver.At(50);
  EXPECT_EQ(Disturbances(driver, first), 0);
  EXPECT_TRUE(driver.job(second).assigned.empty());
  EXPECT_THAT(driver.Why(second),
              HasSubstr("interactive job 1 keeps its v100 on here until it "
                        "ends"));
  driver.Step(event::WorkerGone{driver.ExitOf(first)});
  driver.At(driver.now);
  EXPECT_NE(driver.worker(second).held_epoch, 0u);
}

TEST(InteractiveJob, WaitsBeyondTheQuotaOfItsOwner) {
  EngineDriver driver(4, "fifo");
  const JobId first = driver.Submit("a", 1, Interactive("ada"));
  driver.Submit("b", 1, Interactive("ada"));
  const JobId third = driver.Submit("c", 1, Interactive("ada"));
  const JobId other = driver.Submit("d", 1, Interactive("bob"));
  driver.At(driver.now);
  EXPECT_TRUE(driver.job(third).assigned.empty());
  EXPECT_NE(driver.worker(other).held_epoch, 0u) << "has a quota of its own";
  EXPECT_THAT(driver.Why(third),
              AllOf(HasSubstr("have 2 accelerators"), HasSubstr("at most 2"),
                    HasSubstr("--interactive-max")));
  driver.Step(event::WorkerGone{driver.ExitOf(first)});
  driver.At(driver.now);
  EXPECT_NE(driver.worker(third).held_epoch, 0u);
}

TEST(InteractiveJob, IsRefusedWhereItCouldNeverStart) {
  EngineDriver driver(4, "fifo");
  driver.Submit("a", 3, Interactive("ada"));
  EXPECT_THAT(driver.LastReply(),
              AllOf(HasSubstr("scale factor 3 exceeds the 2"),
                    HasSubstr("--interactive-max")));
  EngineDriver none(
      4, "fifo", [](EngineOptions& options) { options.interactive_max = 0; });
  none.Submit("a", 1, Interactive("ada"));
  EXPECT_THAT(none.LastReply(), HasSubstr("accepts no interactive jobs"));
}

TEST(InteractiveJob, IsWarnedAndEndedWhenItIsIdle) {
  EngineDriver driver(1, "fifo");
  const JobId shell = driver.Submit("a", 1, Interactive("ada", 300));
  driver.At(239);
  EXPECT_EQ(driver.Count<TerminalNotice>(), 0);
  driver.At(240);
  ASSERT_EQ(driver.Count<TerminalNotice>(), 1);
  EXPECT_THAT(driver.Last<TerminalNotice>()->text, HasSubstr("in 60 s"));
  EXPECT_EQ(driver.Last<TerminalNotice>()->worker, driver.Key(shell));
  EXPECT_THAT(driver.Why(shell),
              HasSubstr("idle for 240 s, and ended after 300 s"));
  driver.At(299);
  EXPECT_TRUE(driver.job(shell).active());
  driver.At(300);
  EXPECT_EQ(driver.job(shell).state, JobState::kCancelled);
  EXPECT_THAT(driver.Why(shell), HasSubstr("for 300 s its terminal had no"));
  EXPECT_EQ(driver.Count<StopWorker>(), 1);
  EXPECT_EQ(driver.Count<TerminalNotice>(), 1);
}

TEST(InteractiveJob, IsNotIdleWhileItsTerminalOrItsAcceleratorIsUsed) {
  EngineDriver driver(1, "fifo");
  const JobId shell = driver.Submit("a", 1, Interactive("ada", 300));
  driver.At(250);
  ASSERT_EQ(driver.Count<TerminalNotice>(), 1);
  Use(driver, shell);
  driver.At(500);
  EXPECT_TRUE(driver.job(shell).active());
  AgentHeartbeat beat{"here", 1, {1, 1}};
  beat.health.resize(1);
  beat.health[0].uuid = "here-0";
  beat.health[0].utilisation_percent = 7;
  driver.Step(event::AgentHeard{beat});
  driver.At(799);
  EXPECT_TRUE(driver.job(shell).active());
  // No use: the driver says that it rests.
  beat.health[0].utilisation_percent = 0;
  driver.Step(event::AgentHeard{beat});
  driver.At(800);
  EXPECT_FALSE(driver.job(shell).active());
}

TEST(InteractiveJob, KeepsItsAcceleratorAndItsTimeOverARestart) {
  EngineDriver driver(1, "fifo");
  const JobId shell = driver.Submit("a", 1, Interactive("ada", 300));
  driver.At(200);
  const std::vector<AcceleratorId> had = driver.job(shell).assigned;
  const WorkerKey key = driver.Key(shell);
  driver.Restart();
  driver.JoinServer("here", 1, {{key, 4711}});
  EXPECT_EQ(driver.job(shell).assigned, had);
  EXPECT_NE(driver.worker(shell).held_epoch, 0u);
  driver.At(499);
  EXPECT_TRUE(driver.job(shell).active()) << "use before it is not known";
  driver.At(500);
  EXPECT_FALSE(driver.job(shell).active());
}

TEST(InteractiveJob, IsFinishedWhateverItsExitCode) {
  EngineDriver driver(1, "fifo");
  const JobId shell = driver.Submit("a", 1, Interactive());
  driver.At(driver.now);
  driver.Gone(driver.Key(shell), 3);
  EXPECT_EQ(driver.job(shell).state, JobState::kFinished);
  EXPECT_EQ(driver.Why(shell), "finished with exit code 3");
  EXPECT_EQ(driver.Count<LaunchWorker>(), 1) << "it is not started again";
}

TEST(InteractiveJob, EndsWithItsShellHoweverManyWorkersItHas) {
  EngineDriver driver(2, "fifo");
  const JobId shell = driver.Submit("a", 2, Interactive());
  driver.At(driver.now);
  ASSERT_NE(driver.job(shell).workers[1].held_epoch, 0u);
  driver.Gone(driver.Key(shell, 0), 3);
  EXPECT_EQ(driver.job(shell).state, JobState::kFinished);
  EXPECT_EQ(driver.Why(shell), "finished with exit code 3");
  ASSERT_TRUE(driver.Last<StopWorker>().has_value());
  EXPECT_EQ(driver.Last<StopWorker>()->worker, driver.Key(shell, 1));
  driver.Gone(driver.Key(shell, 1), 0);
  EXPECT_EQ(driver.Why(shell), "finished with exit code 3");
}

TEST(InteractiveJob, OutlivesItsOtherWorkers) {
  EngineDriver driver(2, "fifo");
  const JobId shell = driver.Submit("a", 2, Interactive());
  driver.At(driver.now);
  driver.Gone(driver.Key(shell, 1), 4);
  EXPECT_TRUE(driver.job(shell).active());
  driver.Gone(driver.Key(shell, 0), 0);
  EXPECT_EQ(driver.Why(shell), "finished");
}

// Training jobs would write more checkpoints for it.
TEST(InteractiveJob, IsNoLossWhateverItsExitCode) {
  EngineDriver driver(1, "fifo");
  const double before_s = driver.engine().failure_rate().Interval_s();
  for (const int code : {1, 127, 130}) {
    const JobId shell = driver.Submit(StrCat("a", code), 1, Interactive());
    driver.At(driver.now);
    driver.Gone(driver.Key(shell), code);
    ASSERT_EQ(driver.job(shell).state, JobState::kFinished);
  }
  EXPECT_GE(driver.engine().failure_rate().Interval_s(), before_s);
  const JobId killed = driver.Submit("b", 1, Interactive());
  driver.At(driver.now);
  driver.Gone(driver.Key(killed), 0, 9);
  EXPECT_LT(driver.engine().failure_rate().Interval_s(), before_s);
}

void Drain(EngineDriver& driver, AcceleratorId accelerator) {
  driver.Step(event::AcceleratorsDrained{
      driver.engine().cluster().accelerator(accelerator).info.uuid});
  EXPECT_EQ(driver.LastReply(), "");
}

TEST(InteractiveJob, StartsElsewhereWhereItsAcceleratorIsDrainedBeforehand) {
  EngineDriver driver(2, "fifo");
  driver.Run(driver.Submit("a"));
  driver.Run(driver.Submit("b"));
  driver.At(5);
  const JobId shell = driver.Submit("c", 1, Interactive());
  ASSERT_EQ(driver.worker(shell).held_epoch, 0u) << "a job still pauses there";
  const AcceleratorId seat = driver.job(shell).assigned.front();
  Drain(driver, seat);
  // Its agent knows no such process.
  WorkerExited exit = driver.ExitOf(shell);
  exit.no_failure = true;
  exit.launch_error = "not running on this server";
  driver.Step(event::WorkerGone{exit});
  ASSERT_EQ(driver.job(shell).assigned.size(), 1u);
  EXPECT_NE(driver.job(shell).assigned.front(), seat);
  driver.At(driver.now);
  Obey(driver);
  driver.At(driver.now);
  EXPECT_NE(driver.worker(shell).held_epoch, 0u);
  // Once it has started it stays.
  Drain(driver, driver.job(shell).assigned.front());
  EXPECT_EQ(driver.job(shell).assigned.size(), 1u);
  EXPECT_FALSE(driver.worker(shell).leaving);
}

TEST(InteractiveJob, StartsOnceItsAcceleratorIsFreeOfALostProcess) {
  EngineDriver driver(1, "fifo");
  const WorkerKey lost = driver.Run(driver.Submit("a"));
  driver.Step(event::ServerLost{"here"});
  driver.At(50);
  driver.JoinServer("here", 1);
  ASSERT_EQ(driver.engine().quarantined().size(), 1u);
  const JobId shell = driver.Submit("b", 1, Interactive());
  driver.At(51);
  ASSERT_TRUE(driver.job(shell).assigned.empty());
  ASSERT_NE(driver.Key(lost.job), lost) << "it has a process of its own again";
  driver.Gone(lost, 0, 9);
  EXPECT_EQ(driver.job(shell).assigned.size(), 1u);
}

TEST(InteractiveJob, CountsForTheQuotaAfterARestartToo) {
  EngineDriver driver(4, "fifo");
  const JobId first = driver.Submit("a", 2, Interactive("ada"));
  driver.At(driver.now);
  const WorkerKey keys[] = {driver.Key(first, 0), driver.Key(first, 1)};
  driver.Restart();
  driver.JoinServer("here", 1, {{keys[0], 17}, {keys[1], 18}});
  const JobId second = driver.Submit("b", 1, Interactive("ada"));
  driver.At(driver.now);
  EXPECT_TRUE(driver.job(second).assigned.empty());
  EXPECT_THAT(driver.Why(second), HasSubstr("have 2 accelerators"));
  Engine restored = driver.Restored();
  EXPECT_EQ(RenderReason(restored.Why(second, driver.now)), driver.Why(second));
  driver.Gone(keys[0], 0);
  driver.Gone(keys[1], 0);
  driver.At(driver.now);
  EXPECT_EQ(driver.job(second).assigned.size(), 1u);
}

TEST(InteractiveJob, IsHeldAndNotStartedAgainWhenASignalEndsIt) {
  EngineDriver driver(1, "fifo");
  const JobId shell = driver.Submit("a", 1, Interactive());
  driver.At(driver.now);
  driver.Gone(driver.Key(shell), 0, 9);
  driver.At(99);
  EXPECT_EQ(driver.job(shell).state, JobState::kHeld);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 1);
  driver.Step(event::JobCommanded{shell, CommandKind::kRelease, 1});
  driver.At(driver.now);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 2) << "with consent";
}

TEST(InteractiveJob, HasItsAcceleratorsOverTheNextRoundThatWasPlannedAlready) {
  EngineDriver driver(2, "max_min_fairness");
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  driver.Run(first);
  driver.Run(second);
  driver.At(96);  // the round of 100 s is planned 5 s before its end
  const JobId shell = driver.Submit("c", 1, Interactive());
  driver.At(97);
  Obey(driver);
  driver.At(driver.now);
  EXPECT_NE(driver.worker(shell).held_epoch, 0u);
  const std::vector<AcceleratorId> had = driver.job(shell).assigned;
  driver.At(150);
  EXPECT_EQ(driver.job(shell).assigned, had);
  EXPECT_EQ(Disturbances(driver, shell), 0);
}

// All training jobs ask for their leases, or for more of them.
void Train(EngineDriver& driver) {
  std::vector<JobId> jobs;
  for (const auto& [id, job] : driver.engine().jobs()) {
    if (!job.spec.opaque() && job.active()) jobs.push_back(id);
  }
  for (const JobId id : jobs) {
    if (driver.worker(id).process == ProcessState::kLaunching) {
      driver.Hello(driver.Key(id));
    }
    if (driver.worker(id).process != ProcessState::kJoined) continue;
    driver.Request(driver.Key(id), driver.worker(id).held_epoch != 0);
  }
}

TEST(InteractiveJob, StartsWithinTwoSecondsWhereEveryAcceleratorIsBusy) {
  constexpr double kPause_s = 0.8;
  EngineDriver driver(20, "max_min_fairness");
  for (int i = 0; i < 24; ++i) driver.Submit(StrCat("job", i));
  Train(driver);
  std::vector<double> waits_s;
  for (int i = 0; i < 100; ++i) {
    driver.At(driver.now + 1.7);
    Obey(driver);
    Train(driver);
    const JobId shell =
        driver.Submit(StrCat("shell", i), 1, Interactive("ada"));
    const Time begin = driver.now;
    while (driver.worker(shell).held_epoch == 0 && driver.now < begin + 60) {
      driver.At(driver.now + 0.1);
      if (driver.now >= begin + kPause_s) Obey(driver);
      driver.At(driver.now);
    }
    waits_s.push_back(driver.now - begin);
    driver.At(driver.now + 2);
    driver.Gone(driver.Key(shell), 0);
    Train(driver);
  }
  std::ranges::sort(waits_s);
  EXPECT_LT(waits_s[98], 2);
  EXPECT_GT(waits_s[50], 0.5) << "the cluster was not busy";
}

TEST(InteractiveJob, TakesTheSameAcceleratorsInAReplay) {
  EngineDriver driver(2, "max_min_fairness");
  driver.Run(driver.Submit("a"));
  driver.Run(driver.Submit("b"));
  const JobId shell = driver.Submit("c", 1, Interactive());
  driver.At(1);
  Obey(driver);
  driver.At(2);
  const Engine replayed = driver.Replayed(driver.engine().options());
  EXPECT_EQ(replayed.jobs().at(shell).assigned, driver.job(shell).assigned);
  EXPECT_EQ(replayed.jobs().at(shell).workers[0].held_epoch,
            driver.worker(shell).held_epoch);
  const Engine restored = driver.Restored();
  EXPECT_EQ(restored.jobs().at(shell).assigned, driver.job(shell).assigned);
}

}  // namespace
}  // namespace gavel
