// A coordinator restarts from its journal.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

TEST(Restart, RaisesTheTerm) {
  EngineDriver driver;
  driver.Restart();
  driver.Restart();
  EXPECT_EQ(driver.engine().position().term, 3u);
}

TEST(Restart, KnowsItsJobsAndGoesOnNumbering) {
  EngineDriver driver;
  driver.Submit("a");
  driver.Restart();
  EXPECT_EQ(driver.engine().jobs().size(), 1u);
  EXPECT_EQ(driver.Submit("b"), JobId(2));
}

TEST(Restart, AdoptsAWorkerThatStillHoldsItsLease) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const uint64_t epoch = driver.Last<LeaseGrant>()->epoch;
  driver.Restart();
  driver.Request(key, /*holding=*/true);
  EXPECT_EQ(driver.Last<LeaseGrant>()->epoch, epoch);
  EXPECT_EQ(driver.Last<LeaseGrant>()->position.term, 2u);
}

// With the options of a coordinator (SetUpFor), a worker that continues gets a
// full lease with each renewal, at the end of a round, too. It therefore
// survives an absence of the coordinator for as long as that lease lasts, at
// any time.
TEST(Restart, LeavesLeasesWholeAtTheEndOfARound) {
  EngineDriver driver(1, "fifo", [](EngineOptions& options) {
    options.plan_lead_s = options.lease_duration_s;
  });
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const double lease_s = driver.engine().options().lease_duration_s;
  const uint64_t epoch = driver.worker(job).held_epoch;
  for (int renewal = 0; renewal < 120; ++renewal) {
    driver.At(driver.now + lease_s / 3);
    // The first restart, which begins a new round, comes before the next round
    // is planned, and the second one after.
    if (renewal == 55 || renewal == 83) driver.Restart();
    driver.Request(key, /*holding=*/true);
    const auto grant = driver.Last<LeaseGrant>();
    ASSERT_EQ(grant->nonce, driver.nonce);
    EXPECT_EQ(grant->epoch, epoch) << "at " << driver.now;
    EXPECT_DOUBLE_EQ(grant->duration_s, lease_s) << "at " << driver.now;
  }
  EXPECT_GE(driver.engine().rounds(), 3u);
}

TEST(Restart, GivesNoAcceleratorOnWhileAnOldLeaseMayRun) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  driver.Run(first);
  driver.Restart();
  driver.At(driver.engine().round_ends_at() + 1);
  driver.Hello(driver.Key(second));
  driver.Request(driver.Key(second));
  EXPECT_EQ(driver.Last<LeaseGrant>()->worker.job, first);
}

TEST(Restart, WaitsForLeasesAsLongAsTheyWereGiven) {
  EngineDriver driver(1, "fifo", [](auto& o) { o.lease_duration_s = 60; });
  const JobId job = driver.Submit("a");
  driver.Run(job);
  driver.At(10);
  driver.Restart([](auto& o) { o.lease_duration_s = 5; });
  driver.Restart();
  driver.Step(event::ServerLost{"here"});
  driver.At(10 + 60);
  EXPECT_NE(driver.worker(job).held_epoch, 0u);
  driver.At(10 + 60 * (1 + driver.engine().options().drift) + 1);
  EXPECT_EQ(driver.worker(job).held_epoch, 0u);
}

TEST(Restart, DoesNotForgetThatAPreemptedLeaseMustGo) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId first = driver.Submit("a");
  driver.Submit("b");
  const WorkerKey key = driver.Run(first);
  driver.At(driver.engine().round_ends_at() + 1);
  ASSERT_TRUE(driver.job(first).assigned.empty());
  driver.Restart();  // the request to pause was lost
  const int grants = driver.Count<LeaseGrant>();
  driver.Request(key, /*holding=*/true);
  EXPECT_EQ(driver.Count<LeaseGrant>(), grants);
  EXPECT_EQ(driver.Last<PauseRequest>()->worker, key);
}

TEST(Restart, WithOtherOptionsReplaysWhatWasDecidedThen) {
  EngineDriver driver;
  driver.Run(driver.Submit("a"));
  EngineOptions other = driver.engine().options();
  other.round_duration_s = 7;
  EXPECT_EQ(driver.Replayed(other).round_ends_at(),
            driver.engine().round_ends_at());
}

TEST(Restart, OnRowsThatTellNoSettingsKeepsItsOwn) {
  EngineOptions options;
  options.plan_lead_s = 7;
  Engine engine(options);
  engine.Replay(1, 1, 0, event::CoordinatorStarted{1});
  EXPECT_EQ(engine.options().plan_lead_s, 7);
  EXPECT_EQ(engine.options().round_duration_s, options.round_duration_s);
}

TEST(Restart, TellsAgentsItsNewTermSoThatTheySayHelloAgain) {
  EngineDriver driver;
  driver.Restart();
  driver.Step(event::AgentHeard{{"here", 1, {1, 1}}});
  EXPECT_EQ(driver.Last<AgentWelcome>()->position.term, 2u);
}

TEST(Restart, LaunchesAgainWhatTheAgentDoesNotRun) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Key(job);
  driver.Restart();
  driver.JoinServer("here", 1);
  driver.At(driver.now);
  EXPECT_EQ(driver.Count<LaunchWorker>(), 2);
  EXPECT_EQ(driver.Last<LaunchWorker>()->worker, key);
}

TEST(Restart, ReplayGivesTheSameStateAsLiving) {
  EngineDriver driver(2, "max_min_fairness");
  const JobId a = driver.Submit("a");
  const JobId b = driver.Submit("b");
  const JobId c = driver.Submit("c");
  driver.Run(a);
  driver.Run(b);
  driver.At(driver.engine().round_ends_at() + 1);
  const Engine replayed = driver.Replayed(driver.engine().options());
  EXPECT_EQ(replayed.position(), driver.engine().position());
  EXPECT_EQ(replayed.rounds(), driver.engine().rounds());
  for (JobId id : {a, b, c}) {
    const Job& lived = driver.job(id);
    const Job& again = replayed.jobs().at(id);
    EXPECT_EQ(again.epoch, lived.epoch);
    EXPECT_EQ(again.assigned, lived.assigned);
    EXPECT_EQ(again.received_s, lived.received_s);
    EXPECT_EQ(again.target_s, lived.target_s);
    EXPECT_EQ(again.workers[0].held_epoch, lived.workers[0].held_epoch);
    EXPECT_EQ(replayed.allocation().allocation.Row(id),
              driver.engine().allocation().allocation.Row(id));
  }
}

// ---- on a copy of the journal that lacks its last rows

// An agent starts nothing at or below the incarnations that it has seen, and a
// worker takes no grant below its epoch.
TEST(Loss, NumbersPassAllThatLostRowsCanHaveGiven) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const size_t copied = driver.rows.size();
  for (int i = 0; i < 3; ++i) driver.Gone(driver.Run(job), 0, 9);
  driver.RestartAfterLoss(copied);
  driver.JoinServer("here", 1);
  EXPECT_GE(driver.Last<LaunchWorker>()->worker.incarnation,
            EngineDriver::kTermAfterLoss);
  EXPECT_GE(driver.job(job).epoch, EngineDriver::kTermAfterLoss);
  EXPECT_GE(driver.job(driver.Submit("b")).epoch, EngineDriver::kTermAfterLoss);
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
}

// The end of the process was acknowledged in rows that are lost, so its agent
// does not report it again.
TEST(Loss, AProcessThatItsAgentDoesNotListStartsAtOnce) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const size_t copied = driver.rows.size();
  driver.Gone(key, 0, 9);
  driver.RestartAfterLoss(copied);
  driver.actions.clear();
  driver.JoinServer("here", 1);
  ASSERT_EQ(driver.Count<LaunchWorker>(), 1);
  EXPECT_NE(driver.Last<LaunchWorker>()->worker, key);
}

TEST(Loss, NoParkedProcessIsClaimedThatItsAgentDoesNotList) {
  EngineDriver driver;
  const JobId first = driver.Submit("a");
  driver.Run(first);
  driver.GiveBack(first);
  ASSERT_THAT(driver.engine().MemoryText(driver.job(first)),
              ::testing::HasSubstr("parked"));
  driver.RestartAfterLoss(driver.rows.size());
  driver.JoinServer("here", 1);
  EXPECT_EQ(driver.engine().MemoryText(driver.job(first)), "");
}

TEST(Loss, AProcessThatRunsOnIsKept) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.RestartAfterLoss(driver.rows.size());
  driver.JoinServer("here", 1, {{key, 17}});
  EXPECT_EQ(driver.Key(job), key);
}

// The lost rows may have granted any accelerator to anybody.
TEST(Loss, NoLeaseIsGrantedBeforeThoseOfBeforeAreOver) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.RestartAfterLoss(driver.rows.size());
  driver.JoinServer("here", 1);
  driver.Run(job);
  EXPECT_EQ(driver.Count<LeaseGrant>(), 0);
  EXPECT_GT(driver.Last<LeaseDenied>()->retry_after_s, 9);
  // A restart does not forget the wait.
  driver.Restart();
  driver.JoinServer("here", 1, {{driver.Key(job), 17}});
  driver.Request(driver.Key(job));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 0);
  driver.At(driver.now + 10.5);
  driver.Request(driver.Key(job));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
}

TEST(Loss, NoIdOfALostJobIsGivenAgain) {
  EngineDriver driver;
  driver.Submit("a");
  const size_t copied = driver.rows.size();
  JobSpec array;
  array.array = "0-9999";
  driver.Submit("lost", 1, array);
  const JobId next = driver.engine().next_job();
  driver.RestartAfterLoss(copied);
  EXPECT_GE(driver.engine().next_job(), next);
  // The row of an earlier version gives the ids that it gave there.
  Engine earlier(driver.engine().options());
  event::CoordinatorStarted started{1};
  started.after_loss = true;
  earlier.Replay(1, 1, 0, started);
  EXPECT_EQ(earlier.next_job(), JobId(10'001));
}

TEST(Loss, IsRememberedInASnapshot) {
  EngineDriver driver;
  driver.RestartAfterLoss(driver.rows.size());
  Engine restored = driver.Restored();
  JobSpec spec;
  spec.name = "a";
  spec.argv = {"./train"};
  spec.scale_factor = 1;
  restored.Step(driver.now, event::JobSubmitted{spec, 1});
  EXPECT_GE(restored.jobs().begin()->second.epoch,
            EngineDriver::kTermAfterLoss);
}

}  // namespace
}  // namespace gavel
