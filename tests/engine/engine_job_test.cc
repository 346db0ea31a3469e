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

TEST(Submission, OfAScaleFactorThatFitsNowhereNamesTheCluster) {
  EngineDriver driver(2);
  driver.Submit("big", 3);
  EXPECT_THAT(driver.LastReply(),
              HasSubstr("scale factor 3 fits on no accelerator type of the "
                        "cluster (2 v100); lower it or add accelerators"));
}

// Of a gang of 30 with room for it.
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

// The agent before may have started it, and the word of its end may be late.
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

TEST(Exit, With75IsNoFailure) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  for (int i = 0; i < 5; ++i) driver.Gone(driver.Run(job), 75);
  EXPECT_EQ(driver.job(job).state, JobState::kActive);
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
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

// A worker that was abandoned with its server, and still has its accelerator.
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
  EXPECT_THAT(driver.Why(waits), HasSubstr("1st in line for v100"));
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
