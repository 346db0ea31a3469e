// Jobs: submission, processes, failures, and the reasons that are given.

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

TEST(Submission, IsAnsweredOnceItIsOnDisk) {
  EngineDriver driver;
  driver.hold_disk = true;
  driver.Submit("a");
  EXPECT_EQ(driver.LastReply(), "no reply");
  driver.Persist();
  EXPECT_EQ(driver.LastReply(), "");
}

TEST(Submission, OfANameThatIsTakenIsRefused) {
  EngineDriver driver;
  driver.Submit("a");
  driver.Submit("a");
  EXPECT_THAT(driver.LastReply(), HasSubstr("the name is taken by job 1"));
  EXPECT_EQ(driver.engine().jobs().size(), 1u);
}

TEST(Submission, OfANameWhoseJobHasEndedIsAccepted) {
  EngineDriver driver;
  const JobId first = driver.Submit("a");
  driver.Gone(driver.Run(first), 0);
  driver.Submit("a");
  EXPECT_EQ(driver.LastReply(), "");
}

TEST(Submission, IntoTheCheckpointDirectoryOfAJobThatHasNotEndedIsRefused) {
  EngineDriver driver;
  JobSpec spec;
  spec.checkpoint_directory = "/shared/lm";
  const JobId first = driver.Submit("a", 1, spec);
  driver.Submit("b", 1, spec);
  EXPECT_THAT(driver.LastReply(),
              AllOf(HasSubstr("job \"b\": its checkpoint_directory /shared/lm "
                              "is that of job 1 (\"a\")"),
                    HasSubstr("give it one of its own")));
  EXPECT_EQ(driver.engine().jobs().size(), 1u);
  // The same holds while job 1 is held, and for an engine that has read a
  // snapshot.
  driver.Step(event::JobCommanded{first, CommandKind::kHold, 1});
  driver.Submit("b", 1, spec);
  EXPECT_THAT(driver.LastReply(), HasSubstr("is that of job 1"));
  Engine restored = driver.Restored();
  spec.name = "b";
  spec.argv = {"./train"};
  restored.Step(driver.now, event::JobSubmitted{spec, 1});
  EXPECT_EQ(restored.jobs().size(), 1u);
  driver.Step(event::JobCommanded{first, CommandKind::kCancel, 1});
  driver.Submit("b", 1, spec);
  EXPECT_EQ(driver.LastReply(), "");
}

// The file system decides which of the two owners can write there.
TEST(Submission, OfAnotherOwnerMayNameAnyCheckpointDirectory) {
  EngineDriver driver;
  JobSpec spec;
  spec.checkpoint_directory = "/shared/lm";
  for (const char* owner : {"bob", "ann"}) {
    spec.owner = owner;
    driver.Submit("a", 1, spec);
    EXPECT_EQ(driver.LastReply(), "");
  }
  driver.Submit("b", 1, spec);
  EXPECT_THAT(driver.LastReply(), HasSubstr("is that of job 2 (\"a\")"));
}

TEST(Submission, OfAnEntityThatTheClusterHasNotIsRefused) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.entities = {{"vision"}, {"speech"}};
  });
  JobSpec spec;
  spec.entity = "spech";
  driver.Submit("a", 1, spec);
  EXPECT_THAT(driver.LastReply(), HasSubstr("there is no entity \"spech\" in "
                                            "the cluster's file, which has "
                                            "vision, speech"));
  spec.entity = "speech";
  driver.Submit("a", 1, spec);
  EXPECT_EQ(driver.LastReply(), "");
}

TEST(Submission, OfAScaleFactorThatFitsNowhereNamesTheCluster) {
  EngineDriver driver(2);
  driver.Submit("big", 3);
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("scale factor 3 fits on no accelerator type of the "
                        "cluster (2 v100); lower it or add accelerators"));
}

// The engine has room for a gang of 30 and limits its launches per second.
class Launches : public ::testing::Test {
 protected:
  static constexpr double kPerSecond = 10;

  explicit Launches(double per_s = kPerSecond)
      : driver_(30, "fifo", [=](EngineOptions& o) {
          o.launches_per_s = per_s;
          o.launch_timeout_s = 4;
        }) {}

  int sent() const { return driver_.Count<LaunchWorker>(); }

  EngineDriver driver_;
};

class UnlimitedLaunches : public Launches {
 protected:
  UnlimitedLaunches() : Launches(0) {}
};

TEST_F(UnlimitedLaunches, AllComeAtOnce) {
  driver_.Submit("a", 30);
  EXPECT_EQ(sent(), 30);
}

TEST_F(Launches, OfManyAreSpreadOverTime) {
  driver_.Submit("a", 30);
  const int at_once = sent();
  EXPECT_THAT(at_once, AllOf(Ge(2), Le(3)));  // a fifth of a second's
  for (int second = 1; second <= 2; ++second) {
    driver_.At(driver_.now + 1);
    EXPECT_NEAR(sent(), at_once + kPerSecond * second, 1);
  }
  driver_.At(driver_.now + 1);
  std::set<int> ranks;
  for (const Action& action : driver_.actions) {
    const auto* launch = EngineDriver::MessageIn<LaunchWorker>(action);
    if (launch == nullptr) continue;
    EXPECT_TRUE(ranks.insert(launch->worker.rank).second);
    EXPECT_EQ(launch->accelerator.uuid, StrCat("here-", launch->worker.rank));
  }
  EXPECT_EQ(ranks.size(), 30u);
}

TEST_F(Launches, AreOverdueFromWhenTheyAreSent) {
  const JobId job = driver_.Submit("a", 30);
  driver_.At(driver_.now + 4.5);  // the first ones were sent longer ago
  const auto stopped = [&](size_t rank) {
    return driver_.job(job).workers.at(rank).stop_sent_at != kNever;
  };
  EXPECT_TRUE(stopped(0));
  EXPECT_FALSE(stopped(29));
  driver_.At(driver_.now + 3);
  EXPECT_TRUE(stopped(29));
}

TEST_F(Launches, ComeAgainAfterARestartAtThatPace) {
  driver_.Submit("a", 30);
  driver_.Restart();
  driver_.actions.clear();
  driver_.JoinServer("here", 1);
  driver_.At(driver_.now + 1);
  EXPECT_LE(sent(), 3 + kPerSecond);
  driver_.At(driver_.now + 2);  // not behind those of before
  std::set<int> ranks;
  for (const Action& action : driver_.actions) {
    const auto* launch = EngineDriver::MessageIn<LaunchWorker>(action);
    if (launch != nullptr) ranks.insert(launch->worker.rank);
  }
  EXPECT_EQ(ranks.size(), 30u);
}

TEST(Command, OnAJobThatIsNotThereSaysSo) {
  EngineDriver driver;
  driver.Step(event::JobCommanded{JobId(9), CommandKind::kCancel, 1});
  EXPECT_THAT(driver.LastReply(), HasSubstr("there is no job 9"));
}

TEST(Command, ReleasesOnlyWhatIsHeld) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_THAT(driver.LastReply(), HasSubstr("is not held"));
}

TEST(Command, CancelStopsTheWorkerAndFreesTheAccelerator) {
  EngineDriver driver;
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  const WorkerKey key = driver.Run(first);
  driver.Step(event::JobCommanded{first, CommandKind::kCancel, 1});
  EXPECT_EQ(driver.Last<PauseRequest>()->tier, PauseTier::kStop);
  driver.Gone(key, 1);
  EXPECT_EQ(driver.job(first).state, JobState::kCancelled);
  driver.Run(second);
  EXPECT_EQ(driver.Last<LeaseGrant>()->worker.job, second);
}

TEST(Launch, IsAskedForOnlyOnceTheAssignmentIsOnDisk) {
  EngineDriver driver;
  driver.hold_disk = true;
  driver.Submit("a");
  EXPECT_EQ(driver.Count<LaunchWorker>(), 0);
  driver.Persist();  // the job; now the policy is asked
  EXPECT_EQ(driver.Count<LaunchWorker>(), 0);
  driver.Persist();  // the assignment
  EXPECT_EQ(driver.Count<LaunchWorker>(), 1);
  EXPECT_EQ(driver.Last<LaunchWorker>()->accelerator.uuid, "here-0");
}

TEST(Launch, IsRepeatedWhileNothingIsHeard) {
  EngineDriver driver;
  driver.Submit("a");
  driver.At(12);
  EXPECT_GE(driver.Count<LaunchWorker>(), 2);
}

TEST(Launch, IsRepeatedByTheSameKeyToTheAgentThatMayHaveMissedIt) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const int launches = driver.Count<LaunchWorker>();
  driver.JoinServer("here", 1);
  EXPECT_EQ(driver.Count<LaunchWorker>(), launches + 1);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker, (WorkerKey{job, 0, 1}));
}

// The previous agent may have started the worker, and the report of its end may
// be late.
TEST(Launch, OfANewAgentIsOfANewIncarnation) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.JoinServer("here", 2);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker, (WorkerKey{job, 0, 2}));
  const WorkerKey key = driver.Run(job);
  EXPECT_EQ(key.incarnation, 2u);
  driver.Gone({job, 0, 1}, 0, 9);  // the late word
  EXPECT_EQ(driver.worker(job).held_epoch, driver.job(job).epoch);
  EXPECT_EQ(driver.worker(job).process, ProcessState::kJoined);
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
}

TEST(Failure, StartsTheJobAgain) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Gone(driver.Run(job), 3);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 2);
  EXPECT_EQ(driver.Key(job).incarnation, 2u);
}

TEST(Failure, ThreeTimesInARowHoldsTheJobWithTheReason) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 3; ++i) driver.Gone(driver.Run(job), 3);
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver.Why(job), HasSubstr("failed 3 times in a row"));
  EXPECT_THAT(driver.Why(job), HasSubstr("exit code 3"));
  EXPECT_THAT(driver.Why(job), HasSubstr("gavel release 1"));
}

TEST(Failure, WithANewerGenerationInBetweenStartsCountingAgain) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (uint64_t i = 1; i <= 6; ++i) {
    const WorkerKey key = driver.Key(job);
    WorkerHello hello;
    hello.worker = key;
    hello.progress.last_generation = {i, 10 * i};
    driver.Step(event::WorkerJoined{hello});
    driver.Request(key);
    driver.Gone(key, 0, 11);
  }
  EXPECT_EQ(driver.job(job).state, JobState::kActive);
}

TEST(Failure, AKilledWorkerIsNamedByItsSignal) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 3; ++i) driver.Gone(driver.Run(job), 0, 11);
  EXPECT_THAT(driver.Why(job), HasSubstr("killed by signal 11"));
}

TEST(Failure, TellsTheLastErrorOfItsOutput) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 3; ++i) {
    driver.Run(job);
    WorkerExited exit = driver.ExitOf(job);
    exit.exit_code = 1;
    exit.error_line = StrCat("ValueError: ", i);
    driver.Step(event::WorkerGone{exit});
    EXPECT_EQ(driver.job(job).last_error, exit.error_line);
  }
  EXPECT_THAT(driver.Why(job),
              HasSubstr("(last: exit code 1, \"ValueError: 2\")"));
}

TEST(Failure, HowItEndedIsKnownBeforeTheJobIsHeldAndAfterARestart) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  EXPECT_EQ(driver.job(job).last_end, 0);
  driver.Gone(driver.Run(job), 3);
  EXPECT_EQ(driver.job(job).last_end, 3);
  driver.Gone(driver.Run(job), 0, 11);
  driver.Restart();
  EXPECT_EQ(driver.job(job).last_end, -11);
}

TEST(Failure, ToLaunchHoldsTheJobAtOnce) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  WorkerExited exit = driver.ExitOf(job);
  exit.launch_error = "./train: no such file";
  driver.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver.Why(job), HasSubstr("./train: no such file"));
}

TEST(Failure, AHeldJobThatIsReleasedTriesAgain) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 3; ++i) driver.Gone(driver.Run(job), 3);
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  driver.Run(job);
  EXPECT_EQ(driver.worker(job).held_epoch, driver.job(job).epoch);
}

TEST(Exit, With75IsNoFailureOfOneThatWasAskedToLeave) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 5; ++i) {
    const WorkerKey key = driver.Run(job);
    driver.Step(event::JobCommanded{job, CommandKind::kRequeue, 1});
    driver.GiveBack(key);
    driver.Gone(key, 75);
  }
  EXPECT_EQ(driver.job(job).state, JobState::kActive);
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
}

TEST(Exit, With75UnaskedIsAFailure) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 2; ++i) driver.Gone(driver.Run(job), 75);
  EXPECT_THAT(driver.Why(job), HasSubstr("it failed 2 times in a row"));
  driver.Gone(driver.Run(job), 75);
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver.Why(job),
              HasSubstr("exit code 75, which nobody had asked for"));
}

TEST(Exit, With75UnaskedIsAFailureThoughANewerCheckpointHasTheSameStep) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (uint64_t i = 1; i <= 3; ++i) {
    WorkerHello hello;
    hello.worker = driver.Key(job);
    hello.progress.last_generation = {i, 7};
    driver.Step(event::WorkerJoined{hello});
    driver.Gone(hello.worker, 75);
  }
  // Only the first start got to that step.
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
}

// An agent ends a worker whose lease is over, even when it is cut off.
TEST(Exit, With75IsNoFailureOfOneWhoseLeaseWasOver) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Run(job);
  WorkerExited exit = driver.ExitOf(job);
  exit.exit_code = 75;
  exit.stopped = true;
  driver.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
}

TEST(Exit, With75IsAFailureOfOneThatWasEndedAsItNeverBegan) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Hello(driver.Key(job));
  WorkerExited exit = driver.ExitOf(job);
  exit.exit_code = 75;
  exit.stopped = true;
  driver.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver.job(job).failures_in_a_row, 1);
}

TEST(Retries, WaitLongerAfterEachFailureInARow) {
  EngineDriver driver;
  JobSpec spec;
  spec.retries_max = 20;
  const JobId job = driver.Submit("a", 1, spec);
  std::vector<double> waits;
  for (int i = 0; i < 9; ++i) {
    driver.Gone(driver.Key(job), 75);
    const int launches = driver.Count<LaunchWorker>();
    const Time failed_at = driver.now;
    while (driver.worker(job).launch_sent_at > driver.now) {
      EXPECT_EQ(driver.Count<LaunchWorker>(), launches);
      driver.At(driver.worker(job).launch_sent_at);
    }
    waits.push_back(driver.now - failed_at);
  }
  EXPECT_THAT(waits, ElementsAre(0, 2, 4, 8, 16, 32, 60, 60, 60));
}

// Tests how the engine reads the end of a process with a session.
class SessionEnd : public ::testing::Test {
 protected:
  SessionEnd() : job_(driver_.Submit("a")) {}

  // `finished`: the code that its session reported at its end.
  void Ends(int code, std::optional<int> finished = {}) {
    WorkerExited exit = driver_.ExitOf(job_);
    exit.exit_code = code;
    exit.finished_code = finished;
    driver_.Step(event::WorkerGone{exit});
  }
  JobState state() const { return driver_.job(job_).state; }
  int failures() const { return driver_.job(job_).failures_in_a_row; }

  EngineDriver driver_;
  const JobId job_;
};

TEST_F(SessionEnd, WithCode0ButWithoutFinishIsAFailure) {
  for (int i = 0; i < 3; ++i) {
    driver_.Run(job_);
    Ends(0);
    EXPECT_EQ(failures(), i + 1);
  }
  EXPECT_THAT(driver_.Why(job_),
              HasSubstr("ended with code 0 without Finish(); let it end with "
                        "`return session->Finish()`, and let no shell hide"));
}

// The program, its library or its data may be missing when the job continues,
// and a shell still returns 0.
TEST_F(SessionEnd, OfATrainedJobIsNotThatOfAProcessThatNeverSpoke) {
  Progress progress;
  progress.steps_done = 1456;
  driver_.Run(job_);
  driver_.GiveBack(job_, progress);
  driver_.Step(event::JobCommanded{job_, CommandKind::kRequeue, 1});
  Ends(75, 75);
  ASSERT_EQ(driver_.worker(job_).process, ProcessState::kLaunching);
  Ends(0);
  EXPECT_EQ(state(), JobState::kActive);
  EXPECT_EQ(failures(), 1);
}

TEST(SilentEnd, WithCode0IsNoEndWhereStepsWereToBeMade) {
  EngineDriver driver;
  JobSpec spec;
  spec.steps_total = 100;
  const JobId trains = driver.Submit("a", 1, spec);
  driver.Step(event::WorkerGone{driver.ExitOf(trains)});
  EXPECT_EQ(driver.job(trains).state, JobState::kActive);
  EXPECT_EQ(driver.job(trains).failures_in_a_row, 1);
}

TEST_F(SessionEnd, OfAnEvictedOneInAShellIsNoEndOfTheJob) {
  for (const std::optional<int> finished : {std::optional(75), {}}) {
    driver_.GiveBack(driver_.Run(job_));
    driver_.Step(event::JobCommanded{job_, CommandKind::kRequeue, 1});
    Ends(0, finished);
    EXPECT_EQ(state(), JobState::kActive);
    EXPECT_EQ(failures(), 0);
    EXPECT_EQ(driver_.worker(job_).process, ProcessState::kLaunching);
  }
}

TEST_F(SessionEnd, ThatFailedInAShellIsAFailureOfThatCode) {
  for (int i = 0; i < 3; ++i) {
    driver_.Run(job_);
    Ends(0, 1);
  }
  EXPECT_THAT(driver_.Why(job_), HasSubstr("exit code 1"));
}

TEST_F(SessionEnd, BeforeAFailureOfTheProgramIsAFailure) {
  driver_.Run(job_);
  Ends(3, 0);
  EXPECT_EQ(state(), JobState::kActive);
  EXPECT_EQ(failures(), 1);
}

TEST_F(SessionEnd, CountsWhereOnlyItsOwnMessageTellsOfIt) {
  for (const bool restarts : {false, true}) {
    EngineDriver driver;
    const JobId job = driver.Submit("a");
    WorkerFinished finished;
    finished.worker = driver.Run(job);
    finished.epoch = driver.worker(job).held_epoch;
    driver.Step(event::WorkerSaidFinished{finished});
    if (restarts) driver.Restart();
    driver.Step(event::WorkerGone{driver.ExitOf(job)});
    EXPECT_EQ(driver.job(job).state, JobState::kFinished);
  }
}

TEST_F(SessionEnd, WithoutALeaseCounts) {
  driver_.Hello(driver_.Key(job_));
  WorkerFinished finished;
  finished.worker = driver_.Key(job_);
  driver_.Step(event::WorkerSaidFinished{finished});
  Ends(0);
  EXPECT_EQ(state(), JobState::kFinished);
}

TEST_F(SessionEnd, OfARankWithoutFinishStartsTheGangAgain) {
  EngineDriver driver(2);
  const JobId gang = driver.Submit("gang", 2);
  for (const int rank : {0, 1}) driver.Hello(driver.Key(gang, rank));
  driver.Gone(driver.Key(gang, 0), 0);
  driver.Step(event::WorkerGone{driver.ExitOf(gang, 1)});
  EXPECT_EQ(driver.job(gang).state, JobState::kActive);
  EXPECT_EQ(driver.job(gang).failures_in_a_row, 1);
}

TEST_F(SessionEnd, IsReadByTheCodeInRowsOfBefore) {
  driver_.Run(job_);
  Engine replayed = driver_.Replayed(driver_.engine().options());
  replayed.Replay(driver_.rows.size() + 1, 1, driver_.now,
                  event::WorkerGone{driver_.ExitOf(job_)});
  EXPECT_EQ(replayed.jobs().at(job_).state, JobState::kFinished);
}

TEST(Exit, OfAProgramThatNeverSpokeIsItsEndWhereNobodyStoppedIt) {
  for (const bool stopped : {false, true}) {
    EngineDriver driver;
    const JobId job = driver.Submit("a");
    WorkerExited exit = driver.ExitOf(job);
    exit.stopped = stopped;
    driver.Step(event::WorkerGone{exit});
    EXPECT_EQ(driver.job(job).state == JobState::kFinished, !stopped);
  }
}

// A process that has sent nothing may use its accelerator, whatever the engine
// says.
class SilentProcess : public ::testing::Test {
 protected:
  SilentProcess() : first_(driver_.Submit("a")), second_(driver_.Submit("b")) {}

  void Cancel() {
    driver_.Step(event::JobCommanded{first_, CommandKind::kCancel, 1});
  }

  EngineDriver driver_;
  const JobId first_, second_;
};

TEST_F(SilentProcess, ThatLosesItsPlaceIsEndedByItsAgent) {
  Cancel();
  ASSERT_TRUE(driver_.Last<StopWorker>().has_value());
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, driver_.Key(first_));
  EXPECT_GT(driver_.Last<StopWorker>()->grace_s, 0);
}

TEST_F(SilentProcess, KeepsTheNextOneFromBeingLaunchedUntilItIsGone) {
  Cancel();
  EXPECT_EQ(driver_.job(second_).assigned.size(), 1u);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 1);
  EXPECT_THAT(driver_.Why(second_),
              HasSubstr("job 1 has not yet released its v100"));
  driver_.At(driver_.now + 9);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, first_);
  driver_.Gone(driver_.Key(first_), 0, 15);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, second_);
}

TEST_F(SilentProcess, KeepsItsAcceleratorOverARestart) {
  Cancel();
  driver_.Restart();
  driver_.JoinServer("here", 1, {{driver_.Key(first_), 7}});
  driver_.At(driver_.now + 9);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, first_);
  driver_.Gone(driver_.Key(first_), 0, 15);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, second_);
}

TEST_F(SilentProcess, ThatSpeaksIsNoLongerInTheWay) {
  const WorkerKey key = driver_.Key(first_);
  Cancel();
  driver_.Hello(key);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, second_);
}

TEST(SilentPlace, KeepsAPausedOneFromStartingAgain) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId paused = driver.Submit("a");
  const JobId silent = driver.Submit("b");
  driver.Run(paused);
  driver.EndRound();
  ASSERT_EQ(driver.worker(silent).process, ProcessState::kLaunching);
  driver.Step(event::JobCommanded{silent, CommandKind::kCancel, 1});
  ASSERT_EQ(driver.job(paused).assigned.size(), 1u);
  driver.Request(driver.Key(paused));
  EXPECT_EQ(driver.worker(paused).held_epoch, 0u);
  driver.Gone(driver.Key(silent), 0, 15);
  driver.Request(driver.Key(paused));
  EXPECT_NE(driver.worker(paused).held_epoch, 0u);
}

// A start that takes longer than a round comes to its end.
TEST(SilentPlace, IsKeptOverRoundsUntilTheProcessSpeaks) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId trained = driver.Submit("a");
  const JobId slow = driver.Submit("b");
  driver.Run(trained);
  driver.EndRound();
  const WorkerKey starting = driver.Key(slow);
  for (int round = 0; round < 2; ++round) {
    driver.GiveBack(trained, driver.worker(trained).progress);
    driver.EndRound();
    EXPECT_EQ(driver.job(slow).assigned.size(), 1u) << round;
    EXPECT_EQ(driver.Key(slow), starting) << round;
    EXPECT_EQ(driver.worker(slow).process, ProcessState::kLaunching) << round;
  }
  driver.Run(slow);
  driver.EndRound();
  EXPECT_EQ(driver.job(slow).assigned.size(), 0u);
  EXPECT_EQ(driver.job(trained).assigned.size(), 1u);
}

TEST_F(SilentProcess, IsChargedForUntilItsEnd) {
  Cancel();
  const JobId gone = first_;
  driver_.At(5);
  driver_.Gone(driver_.Key(gone), 0, 15);
  EXPECT_NEAR(driver_.job(gone).received_s, 5, 1e-9);
}

JobSpec OpaqueSpec(std::optional<double> time_limit_s = {}) {
  JobSpec spec;
  spec.job_class = JobClass::kOpaque;
  spec.time_limit_s = time_limit_s;
  return spec;
}

TEST(OpaqueJob, HasItsAcceleratorFromItsLaunchToItsEnd) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec());
  driver.At(driver.now);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 1);
  EXPECT_NE(driver.worker(job).held_epoch, 0u);
  driver.At(900);  // nine rounds, and beyond every limit on starting
  EXPECT_EQ(driver.Count<StopWorker>(), 0);
  EXPECT_THAT(driver.Why(job), HasSubstr("which it has until its end"));
  driver.Step(event::WorkerGone{driver.ExitOf(job)});
  EXPECT_EQ(driver.job(job).state, JobState::kFinished);
  EXPECT_NEAR(driver.job(job).received_s, 900, 1);
}

TEST(OpaqueJob, IsLaunchedAgainOnlyUntilItsProcessIsThere) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec());
  driver.At(12);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 3);
  event::ProcessBegan began{{"there", driver.Key(job), 17}};
  driver.Step(began);
  driver.At(17);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 4) << "it is of another server";
  began.launched.server = "here";
  driver.Step(began);
  driver.At(500);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 4);
  // A new coordinator has not heard it.
  driver.Restart();
  driver.JoinServer("here", 1, {{driver.Key(job), 17}});
  driver.At(driver.now + 1);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 5);
  driver.Step(began);
  driver.At(1000);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 5);
  driver.Step(event::WorkerGone{driver.ExitOf(job)});
  EXPECT_EQ(driver.job(job).state, JobState::kFinished);
}

TEST(OpaqueJob, IsNotPausedForOthers) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId opaque = driver.Submit("a", 1, OpaqueSpec());
  driver.At(driver.now);
  const JobId waits = driver.Submit("b");
  driver.At(900);
  EXPECT_EQ(driver.Count<StopWorker>() + driver.Count<PauseRequest>(), 0);
  EXPECT_THAT(driver.Why(waits),
              HasSubstr("opaque job 1 keeps its v100 on here until it ends; "
                        "it has no time_limit"));
  driver.Step(event::WorkerGone{driver.ExitOf(opaque)});
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, waits);
}

TEST(OpaqueJob, ThatHasYetToStartIsNamedToThoseWhoWaitForIt) {
  EngineDriver driver(1, "max_min_fairness");
  driver.Submit("a", 1, OpaqueSpec());
  JobSpec spec;
  spec.servers = {"here"};
  const JobId waits = driver.Submit("b", 1, spec);
  EXPECT_EQ(driver.Why(waits), "waiting: job 1 has not yet released its v100");
  driver.At(driver.now);
  EXPECT_THAT(driver.Why(waits), HasSubstr("opaque job 1 keeps its v100"));
}

TEST(OpaqueJob, ThatOthersWaitForEndsByItsTimeLimitAtTheLatest) {
  EngineDriver driver(2, "max_min_fairness");
  driver.Submit("a", 1, OpaqueSpec());
  driver.At(driver.now);
  const JobId limited = driver.Submit("b", 1, OpaqueSpec(500));
  driver.At(driver.now + 1);
  ASSERT_NE(driver.worker(limited).held_epoch, 0u);
  const double began = driver.worker(limited).leased_at;
  const JobId waits = driver.Submit("c");
  driver.At(began + 100);
  EXPECT_THAT(driver.Why(waits),
              AllOf(HasSubstr("opaque job 2 keeps its v100 on here until it "
                              "ends, by 1970-01-01T00:08:"),
                    HasSubstr(" at the latest (its time_limit)")));
  driver.At(began + 501);  // it was asked to end
  EXPECT_THAT(driver.Why(waits),
              HasSubstr("job 2 has not yet released its v100"));
}

TEST(OpaqueJob, IsReservedWhereThePolicySharesTheRest) {
  EngineDriver driver(2, "max_min_fairness");
  driver.Submit("a", 1, OpaqueSpec());
  driver.At(driver.now);
  const JobId training = driver.Submit("b");
  EXPECT_THAT(driver.problem.capacity, ElementsAre(1));
  ASSERT_EQ(driver.problem.jobs.size(), 1u);
  EXPECT_EQ(driver.problem.jobs[0].id, training);
  driver.Run(training);
  EXPECT_NE(driver.worker(training).held_epoch, 0u);
}

TEST(OpaqueJob, StartsWhenNobodyElseIsThere) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId training = driver.Submit("a");
  driver.Run(training);
  const JobId opaque = driver.Submit("b", 1, OpaqueSpec());
  driver.At(driver.engine().round_ends_at());
  ASSERT_EQ(driver.job(opaque).assigned.size(), 1u);
  driver.At(driver.now + 1);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, training);
  driver.GiveBack(training);
  driver.At(driver.now);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, opaque);
  EXPECT_NE(driver.worker(opaque).held_epoch, 0u);
}

TEST(OpaqueJob, StaysToItsEndWhereItsAcceleratorIsDrained) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec());
  driver.At(driver.now);
  driver.Step(event::AcceleratorsDrained{"here"});
  driver.At(900);
  EXPECT_EQ(driver.Count<StopWorker>(), 0);
  driver.Step(event::WorkerGone{driver.ExitOf(job)});
  EXPECT_EQ(driver.job(job).state, JobState::kFinished);
  driver.Submit("b");
  driver.At(1800);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, job);
}

TEST(OpaqueJob, StartsAllItsRanksTogether) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("a", 2, OpaqueSpec());
  driver.At(driver.now);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 2);
  for (const Worker& worker : driver.job(job).workers) {
    EXPECT_EQ(worker.held_epoch, driver.job(job).epoch);
  }
  driver.At(900);
  EXPECT_EQ(driver.Count<StopWorker>(), 0);
}

TEST(OpaqueJob, IsEndedAfterItsTimeLimitAndHeld) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec(60));
  driver.At(59);
  EXPECT_EQ(driver.Count<StopWorker>(), 0);
  driver.At(61);
  ASSERT_TRUE(driver.Last<StopWorker>().has_value());
  EXPECT_EQ(driver.Last<StopWorker>()->grace_s, 30);  // pause_grace_s
  WorkerExited exit = driver.ExitOf(job);
  exit.stopped = true;  // and it ends with code 0
  driver.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver.Why(job), HasSubstr("its time_limit of 60 s"));
}

TEST(OpaqueJob, GoesOnOverARestart) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec(2000));
  driver.At(10);
  const WorkerKey key = driver.Key(job);
  driver.Restart();
  driver.JoinServer("here", 1, {{key, 7}});
  driver.At(1000);
  EXPECT_EQ(driver.Count<StopWorker>(), 0);
  EXPECT_NE(driver.worker(job).held_epoch, 0u);
  driver.At(2001);
  EXPECT_EQ(driver.Last<StopWorker>()->worker, key);
}

TEST(OpaqueJob, ThatIsCancelledIsAskedAndKeepsItsAcceleratorUntilItIsGone) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, OpaqueSpec());
  driver.At(1);
  const JobId next = driver.Submit("b");
  driver.Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  EXPECT_GT(driver.Last<StopWorker>()->grace_s, 0);
  driver.At(2);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, job);
  driver.Gone(driver.Key(job), 0, 15);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker.job, next);
}

TEST(Exit, OfAnAgentIsNoFailureOfItsJobs) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Run(job);
  driver.JoinServer("here", 2);  // a new agent, and nothing runs
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
  EXPECT_EQ(driver.Key(job).incarnation, 2u);
}

TEST(Exit, IsAcknowledgedOnlyOnceItIsOnDisk) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.hold_disk = true;
  driver.Gone(key, 0);
  EXPECT_EQ(driver.Count<ExitAcknowledged>(), 0);
  driver.Persist();
  EXPECT_EQ(driver.Count<ExitAcknowledged>(), 1);
}

TEST(Exit, OfAllWorkersFinishesTheJob) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Gone(driver.Run(job), 0);
  EXPECT_EQ(driver.job(job).state, JobState::kFinished);
  driver.At(driver.engine().round_ends_at());
  EXPECT_EQ(driver.engine().round_ends_at(), kNever);  // no rounds for nobody
}

TEST(Agent, ThatIsRejectedIsNamedByNumberAndDirectory) {
  EngineDriver driver;
  driver.JoinServer("here", 5);
  driver.JoinServer("here", 4);
  EXPECT_EQ(driver.Last<AgentRejected>()->incarnation, 4u);
  AgentHello another;
  another.server = "here";
  another.incarnation = 4;
  another.state_id = "another";
  driver.Step(event::ServerJoined{another});
  EXPECT_EQ(driver.Last<AgentRejected>()->state_id, "another");
}

TEST(Agent, ThatIsSilentIsLostWithItsAccelerators) {
  EngineDriver driver;
  driver.At(EngineDriver::kAgentTimeout_s + 1);
  EXPECT_EQ(driver.engine().cluster().Capacity(), std::vector<int>{0});
}

TEST(Agent, ThatIsHeardStays) {
  EngineDriver driver;
  for (int i = 0; i < 10; ++i) {
    driver.At(driver.now + EngineDriver::kAgentTimeout_s / 2);
    driver.Step(event::AgentHeard{{"here", 1, {1, 0}}});
  }
  EXPECT_EQ(driver.engine().cluster().Capacity(), std::vector<int>{1});
}

// The worker was abandoned with its server and still has its accelerator.
class AbandonedWorker : public ::testing::Test {
 protected:
  AbandonedWorker() {
    worker_ = driver_.Run(driver_.Submit("a"));
    driver_.Step(event::ServerLost{"here"});
    driver_.At(driver_.now + 50);  // its lease is over by every clock
    EXPECT_EQ(driver_.engine().quarantined().size(), 1u);
  }

  EngineDriver driver_;
  WorkerKey worker_;
};

TEST_F(AbandonedWorker, IsNotGoneByAHelloOfBeforeItBegan) {
  driver_.JoinServer("here", 1);  // late: the agent's first
  EXPECT_EQ(driver_.engine().quarantined().size(), 1u);
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, worker_);
  driver_.Gone(worker_, 0, 9);
  EXPECT_TRUE(driver_.engine().quarantined().empty());
}

TEST_F(AbandonedWorker, IsNotGoneByTheWordOfAnotherServer) {
  WorkerExited exit = driver_.ExitOf(worker_.job);
  exit.server = "there";
  driver_.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver_.engine().quarantined().size(), 1u);
  EXPECT_TRUE(driver_.job(worker_.job).active());
}

TEST_F(AbandonedWorker, IsGoneWhenItsAgentStartsAgain) {
  driver_.JoinServer("here", 2);
  EXPECT_TRUE(driver_.engine().quarantined().empty());
}

TEST(Reason, OfAWaitingJobTellsItsPlace) {
  EngineDriver driver(1, "max_min_fairness");
  driver.Run(driver.Submit("a"));
  const JobId waits = driver.Submit("b");
  const JobId equal = driver.Submit("c");
  EXPECT_THAT(driver.Why(waits), HasSubstr("1st in line for v100"));
  EXPECT_THAT(driver.Why(equal), HasSubstr("2nd in line for v100"));
}

TEST(Reason, OfAJobWithoutServersSaysWhatToStart) {
  EngineDriver driver;
  driver.At(EngineDriver::kAgentTimeout_s + 1);  // the agent is lost
  const JobId job = driver.Submit("a");
  EXPECT_THAT(driver.Why(job), HasSubstr("start `gavel agent`"));
}

TEST(Solver, HasOneProblemOutAtATime) {
  EngineDriver driver;
  driver.hold_solver = true;
  driver.Submit("a");
  driver.Submit("b");
  driver.Submit("c");
  EXPECT_EQ(driver.solves, 1);
  EXPECT_EQ(driver.Why(JobId(1)), "waiting: for the first allocation");
}

TEST(Solver, AStaleAnswerIsDropped) {
  EngineDriver driver;
  driver.hold_solver = true;
  driver.Submit("a");
  const size_t rows = driver.rows.size();
  driver.Step(event::AllocationReady{999, {}});
  EXPECT_EQ(driver.rows.size(), rows);
}

TEST(Solver, ThatFailedIsAskedAgainARoundLater) {
  EngineDriver driver;
  driver.hold_solver = true;
  driver.Submit("a");
  ASSERT_EQ(driver.solves, 1);
  for (const Action& action : Actions(driver.actions)) {
    if (const auto* solve = std::get_if<action::SolvePolicy>(&action)) {
      driver.Step(event::AllocationReady{solve->epoch, PolicyResult()});
    }
  }
  driver.At(driver.now + driver.engine().options().round_duration_s);
  EXPECT_EQ(driver.solves, 2);
}

TEST(Solver, AFailureLeavesTheLastAllocationInForce) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.hold_solver = true;
  driver.Submit("b");
  PolicyResult failed;
  failed.detail = "the solver broke down";
  for (const Action& action : Actions(driver.actions)) {
    if (const auto* solve = std::get_if<action::SolvePolicy>(&action)) {
      driver.Step(event::AllocationReady{solve->epoch, failed});
    }
  }
  driver.Request(key, /*holding=*/true);
  EXPECT_EQ(driver.Last<LeaseGrant>()->worker, key);
  EXPECT_EQ(driver.engine().allocation().detail, "the solver broke down");
}

TEST(Submission, IsRefusedForAnotherJobOnlyWhenThatIsOnDisk) {
  EngineDriver driver;
  driver.hold_disk = true;
  driver.Submit("a");
  driver.Submit("a");
  EXPECT_EQ(driver.LastReply(), "no reply");
  driver.Persist();
  EXPECT_THAT(driver.LastReply(), testing::HasSubstr("is taken by job 1"));
}

}  // namespace
}  // namespace gavel
