// The times that a job file names: not_before and time_limit.
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/sweeper.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

JobSpec Limited(double time_limit_s) {
  JobSpec spec;
  spec.time_limit_s = time_limit_s;
  return spec;
}

JobSpec Later(double not_before_s) {
  JobSpec spec;
  spec.not_before_s = not_before_s;
  return spec;
}

// The worker asks again and again, so that its lease goes on, until `to`.
void TrainUntil(EngineDriver& driver, JobId job, Time to) {
  while (driver.now < to) {
    driver.At(std::min(to, driver.now + 3));
    const Worker& worker = driver.worker(job);
    if (worker.held_epoch == 0 || worker.pause_sent_at != kNever) return;
    driver.Request(driver.Key(job), /*holding=*/true);
  }
}

// The engine's time stands still while no coordinator runs, a user's does not.
TEST(NotBefore, CountsTheTimeWithoutACoordinator) {
  EngineDriver driver;
  event::CoordinatorStarted start{2};
  start.wall_s = 1e9;
  driver.Step(start);
  const JobId job = driver.Submit("a", 1, Later(300));
  EXPECT_TRUE(engine::IsAhead(driver.job(job)));
  start = event::CoordinatorStarted{3};
  start.wall_s = 1e9 + 200;
  driver.Step(start);
  driver.At(driver.now + 99);
  EXPECT_TRUE(engine::IsAhead(driver.job(job)));
  driver.At(driver.now + 2);
  EXPECT_TRUE(driver.job(job).active());
}

TEST(NotBefore, IsWaitedForAgainAfterAHold) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Later(300));
  const auto command = [&](CommandKind kind) {
    driver.Step(event::JobCommanded{job, kind, 1});
  };
  command(CommandKind::kHold);
  EXPECT_FALSE(engine::IsAhead(driver.job(job)));
  command(CommandKind::kRelease);
  EXPECT_TRUE(engine::IsAhead(driver.job(job)));
  EXPECT_THAT(driver.Why(job), HasSubstr("its not_before is"));
  driver.At(301);
  EXPECT_TRUE(driver.job(job).active());
  // Once its time has come, a release starts it.
  command(CommandKind::kHold);
  command(CommandKind::kRelease);
  EXPECT_TRUE(driver.job(job).active());
}

// The release lets it start without its parents.
TEST(NotBefore, IsNotWaitedForInPlaceOfParents) {
  EngineDriver driver;
  driver.Submit("first");
  JobSpec spec = Later(300);
  spec.after_success = {"first"};
  const JobId job = driver.Submit("second", 1, spec);
  ASSERT_TRUE(engine::AwaitsJobs(driver.job(job)));
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_THAT(driver.job(job).parents, IsEmpty());
  EXPECT_FALSE(engine::AwaitsJobs(driver.job(job)));
}

TEST(NotBefore, IsOverForAJobThatWasReleasedWhileItWaited) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Later(300));
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_TRUE(driver.job(job).active());
}

TEST(TimeLimit, AsksTheJobToStopAtABoundaryAndHoldsIt) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Limited(60));
  const WorkerKey key = driver.Run(job);
  TrainUntil(driver, job, 59);
  EXPECT_EQ(driver.Count<PauseRequest>(), 0);
  EXPECT_TRUE(driver.job(job).active());
  TrainUntil(driver, job, 61);
  ASSERT_TRUE(driver.Last<PauseRequest>().has_value());
  EXPECT_EQ(driver.Last<PauseRequest>()->tier, PauseTier::kEvict)
      << "with a checkpoint";
  EXPECT_EQ(driver.Count<StopWorker>(), 0) << "nobody is killed";
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver.Why(job), HasSubstr("its time_limit of 60 s"));
  // One that does not stop is ended.
  driver.At(driver.now + 31);
  EXPECT_GE(driver.Count<StopWorker>(), 1);
  driver.Gone(key, kExitEvicted);
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
}

// The worker never got the word, or another coordinator has taken over.
TEST(TimeLimit, AsksAgainForACheckpoint) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Limited(60));
  const WorkerKey key = driver.Run(job);
  TrainUntil(driver, job, 61);
  ASSERT_EQ(driver.job(job).state, JobState::kHeld);
  const auto is_told = [&](PauseTier tier) {
    driver.actions.clear();
    driver.Request(key, /*holding=*/true);
    const std::optional<PauseRequest> told = driver.Last<PauseRequest>();
    return told.has_value() && told->tier == tier;
  };
  EXPECT_TRUE(is_told(PauseTier::kEvict));
  driver.Restart();
  EXPECT_TRUE(is_told(PauseTier::kEvict));
  // Once it is cancelled, nobody needs its state.
  driver.Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  EXPECT_TRUE(is_told(PauseTier::kStop));
}

TEST(TimeLimit, CountsTheTimeThatItRunsOverItsRounds) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("a", 1, Limited(1000));
  driver.Run(job);
  const JobId other = driver.Submit("b");
  TrainUntil(driver, job, 99);
  driver.EndRound();
  driver.Run(other);
  ASSERT_EQ(driver.worker(job).held_epoch, 0u);
  const double received_s = driver.job(job).received_s;
  EXPECT_LE(received_s, 101);
  driver.At(driver.now + 5);
  EXPECT_TRUE(driver.job(job).active()) << "a pause does not count";
  EXPECT_EQ(driver.job(job).received_s, received_s);
}

TEST(TimeLimit, IsExtendedByAnUpdateAlsoOverARestart) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Limited(60));
  driver.Run(job);
  TrainUntil(driver, job, 30);
  driver.Restart();
  event::JobUpdated updated{job, {}, 1};
  updated.update.time_limit_s = 120;
  driver.Step(updated);
  EXPECT_EQ(driver.LastReply(), "");
  TrainUntil(driver, job, 110);
  EXPECT_TRUE(driver.job(job).active());
  TrainUntil(driver, job, 130);
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
}

TEST(TimeLimit, BeginsAnewWhereTheJobIsReleased) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Limited(60));
  const WorkerKey key = driver.Run(job);
  TrainUntil(driver, job, 62);
  ASSERT_EQ(driver.job(job).state, JobState::kHeld);
  driver.GiveBack(job);
  driver.Gone(key, kExitEvicted);
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  driver.Restart();
  driver.Run(job);
  const Time from = driver.now;
  TrainUntil(driver, job, from + 55);
  EXPECT_TRUE(driver.job(job).active());
  TrainUntil(driver, job, from + 65);
  EXPECT_EQ(driver.job(job).state, JobState::kHeld);
}

TEST(NotBefore, TheJobStartsWhenItsTimeComesAlsoOverARestart) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Later(500));
  EXPECT_EQ(driver.LastReply(), "");
  driver.At(499);
  EXPECT_TRUE(driver.job(job).assigned.empty());
  EXPECT_EQ(driver.Count<LaunchWorker>(), 0);
  EXPECT_THAT(driver.Why(job), HasSubstr("its not_before is 1970-01-01T00"));
  driver.Restart();
  driver.JoinServer("here", 1);
  driver.At(501);
  EXPECT_TRUE(driver.job(job).active());
  driver.At(driver.engine().round_ends_at() + 1);
  EXPECT_EQ(driver.job(job).assigned.size(), 1u);
}

TEST(NotBefore, TypesThatJoinMeanwhileAreBarredAsItsFileSays) {
  EngineDriver driver(1, "fifo");
  JobSpec spec;
  spec.not_before_s = 10;
  spec.types = {"v100"};
  const JobId job = driver.Submit("a", 1, spec);
  driver.Step(event::ServerJoined{EngineDriver::HelloOf("other", "p100")});
  driver.At(driver.now + 20);
  EXPECT_TRUE(driver.job(job).active());
  EXPECT_TRUE(driver.engine().throughputs().IsBarred(job, "p100"));
  EXPECT_FALSE(driver.engine().throughputs().IsBarred(job, "v100"));
}

TEST(NotBefore, OthersHaveTheClusterMeanwhileAndNamesAreTaken) {
  EngineDriver driver;
  driver.Submit("a", 1, Later(500));
  const JobId other = driver.Submit("b");
  EXPECT_EQ(driver.job(other).assigned.size(), 1u);
  driver.Submit("a");
  EXPECT_THAT(driver.LastReply(), HasSubstr("the name is taken by job 1"));
}

TEST(NotBefore, ItsOwnerMayStartHoldOrCancelItSooner) {
  EngineDriver driver;
  const JobId job = driver.Submit("a", 1, Later(500));
  driver.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_EQ(driver.LastReply(), "");
  EXPECT_EQ(driver.job(job).assigned.size(), 1u);

  const JobId held = driver.Submit("b", 1, Later(500));
  driver.Step(event::JobCommanded{held, CommandKind::kHold, 1});
  EXPECT_EQ(driver.LastReply(), "");
  const JobId cancelled = driver.Submit("c", 1, Later(500));
  driver.Step(event::JobCommanded{cancelled, CommandKind::kCancel, 1});
  driver.At(600);
  EXPECT_EQ(driver.job(held).state, JobState::kHeld) << "it was held for good";
  EXPECT_EQ(driver.job(cancelled).state, JobState::kCancelled);
}

}  // namespace
}  // namespace gavel
