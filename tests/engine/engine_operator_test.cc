// Commands of operators on the cluster, and of owners on their jobs.

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class Operators : public ::testing::Test {
 protected:
  void Command(CommandKind kind, JobId job) {
    driver_.Step(event::JobCommanded{job, kind, 9});
  }
  void Drain(const std::string& target, double within_s = 0) {
    event::AcceleratorsDrained drained{target};
    drained.until = driver_.now + within_s;
    drained.reply_to = 9;
    driver_.Step(drained);
  }
  void Resume(const std::string& target) {
    event::AcceleratorsDrained resumed{target};
    resumed.drained = false;
    resumed.reply_to = 9;
    driver_.Step(resumed);
  }
  void Update(JobId job, const JobUpdate& update) {
    driver_.Step(event::JobUpdated{job, update, 9});
  }
  // The job stops at a boundary, and its process saves a checkpoint and exits.
  void Evict(JobId job) {
    WorkerExited exit = driver_.ExitOf(job);
    if (driver_.worker(job).held_epoch != 0) driver_.GiveBack(job);
    exit.exit_code = kExitEvicted;
    driver_.Step(event::WorkerGone{exit});
  }
  const Accelerator& Of(JobId job) const {
    return driver_.engine().cluster().accelerator(
        driver_.job(job).assigned.front());
  }

  EngineDriver driver_{1};
};

// ---- drain and resume

TEST_F(Operators, DrainMovesItsJobToAnotherServer) {
  driver_.JoinServer("there", 1);
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  ASSERT_EQ(Of(job).server, "here");
  Drain("here");
  EXPECT_EQ(driver_.LastReply(), "");
  ASSERT_TRUE(driver_.Last<PauseRequest>().has_value());
  EXPECT_EQ(driver_.Last<PauseRequest>()->worker, key);
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  EXPECT_EQ(driver_.Count<StopWorker>(), 0) << "it kills nobody";
  EXPECT_EQ(Of(job).server, "there");
  Evict(job);
  EXPECT_EQ(driver_.worker(job).server, "there");
  driver_.Run(job);
  EXPECT_NE(driver_.worker(job).held_epoch, 0u);
}

TEST_F(Operators, NobodyStartsOnWhatIsDrainedAndWhyTellsIt) {
  Drain("here");
  const JobId job = driver_.Submit("a");
  EXPECT_TRUE(driver_.job(job).assigned.empty());
  EXPECT_EQ(driver_.Why(job),
            "waiting: what it can use is drained (v100 of here: by `gavel "
            "drain`); `gavel resume` gives it back");
  Resume("here");
  EXPECT_FALSE(driver_.job(job).assigned.empty());
}

TEST_F(Operators, DrainOfAnAcceleratorLeavesTheOthersInUse) {
  EngineDriver two(2);
  const JobId a = two.Submit("a");
  const JobId b = two.Submit("b");
  two.Run(a);
  two.Run(b);
  event::AcceleratorsDrained drained{
      two.engine().cluster().accelerator(two.worker(a).held).info.uuid};
  two.Step(drained);
  EXPECT_EQ(two.engine().cluster().Capacity(), std::vector<int>{1});
  EXPECT_TRUE(two.job(a).assigned.empty());
  EXPECT_FALSE(two.job(b).assigned.empty());
}

// Before that time, jobs on the server are not paused within a round.
TEST_F(Operators, DrainByATimeLetsJobsStayUntilThenAtMost) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  Drain("here", 30);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{0});
  driver_.Request(key, /*holding=*/true);
  driver_.At(driver_.now + 29);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
  driver_.At(driver_.now + 2);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 1);
  EXPECT_TRUE(driver_.job(job).assigned.empty());
}

TEST_F(Operators, DrainByATimeGrantsNothingToWhatOnlyStarts) {
  const JobId job = driver_.Submit("a");
  Drain("here", 30);
  driver_.Run(job);
  EXPECT_EQ(driver_.Count<LeaseGrant>(), 0);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
  driver_.At(driver_.now + 31);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 1);
  EXPECT_TRUE(driver_.job(job).assigned.empty());
}

TEST_F(Operators, DrainByATimeEndsWithTheRoundBefore) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  Drain("here", 1000);
  driver_.EndRound();
  EXPECT_TRUE(driver_.job(job).assigned.empty());
}

TEST_F(Operators, ResumeBeforeTheTimeUndoesTheDrain) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  Drain("here", 30);
  Resume("here");
  driver_.At(driver_.now + 40);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
  EXPECT_FALSE(driver_.job(job).assigned.empty());
}

TEST_F(Operators, AStartThatADrainHasEndedIsNoFailureAfterTheResume) {
  const JobId job = driver_.Submit("a");
  WorkerExited exit = driver_.ExitOf(job);
  Drain("here");
  ASSERT_TRUE(driver_.Last<StopWorker>().has_value());
  Resume("here");
  driver_.At(driver_.now);
  exit.signal = 15;
  exit.stopped = true;
  driver_.Step(event::WorkerGone{exit});
  driver_.At(driver_.now + 1);
  EXPECT_EQ(driver_.job(job).state, JobState::kActive);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  EXPECT_EQ(driver_.Key(job).incarnation, 2u);
  driver_.Run(job);
  EXPECT_NE(driver_.worker(job).held_epoch, 0u);
}

TEST_F(Operators, DrainSurvivesARestartOfCoordinatorAndAgent) {
  Drain("here");
  driver_.Restart();
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{0});
  driver_.JoinServer("here", 2);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{0});
  Resume("here");
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{1});
}

TEST_F(Operators, DrainAndResumeRefuseWhatIsNotThere) {
  Drain("nowhere");
  EXPECT_THAT(driver_.LastReply(),
              HasSubstr("no server or accelerator \"nowhere\""));
  Resume("here");
  EXPECT_THAT(driver_.LastReply(), EndsWith("here is not drained"));
}

TEST_F(Operators, ResumeOfAServerLeavesDrainedWhatWasDrainedByItself) {
  EngineDriver three(3);
  const auto command = [&](const std::string& target, bool drained) {
    event::AcceleratorsDrained event{target};
    event.drained = drained;
    event.reply_to = 9;
    three.Step(event);
    return three.LastReply();
  };
  const auto capacity = [&] { return three.engine().cluster().Capacity()[0]; };
  AgentHeartbeat failing;
  failing.server = "here";
  failing.incarnation = 1;
  failing.highest_seen = {1, three.rows.back().seq};
  failing.health.resize(1);
  failing.health[0].uuid = "here-1";
  failing.health[0].uncorrectable_errors = 3;
  three.Step(event::AgentHeard{failing});
  EXPECT_EQ(command("here/here-0", true), "");
  ASSERT_EQ(capacity(), 1);
  EXPECT_THAT(command("here", false),
              AllOf(HasSubstr("here is not drained as a whole"),
                    HasSubstr("`gavel resume here/here-0` (drained: by `gavel "
                              "drain`)"),
                    HasSubstr("`gavel resume here/here-1` (drained: its memory "
                              "had 3 uncorrectable errors")));
  EXPECT_EQ(command("here", true), "");
  EXPECT_EQ(capacity(), 0);
  three.Restart();
  EXPECT_EQ(command("here", false), "");
  EXPECT_EQ(capacity(), 1);
  for (const char* one : {"here-0", "here/here-1"}) {
    EXPECT_EQ(command(one, false), "");
  }
  EXPECT_EQ(capacity(), 3);
}

// When the time until which jobs may stay is over, the drain is still the same
// one.
TEST_F(Operators, ResumeOfAServerUndoesADrainWhoseTimeHasCome) {
  Drain("here", 30);
  driver_.At(driver_.now + 31);
  Resume("here");
  EXPECT_EQ(driver_.LastReply(), "");
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{1});
}

TEST_F(Operators, CancellingAnothersJobIsToldByName) {
  const JobId job = driver_.Submit("a");
  driver_.Step(event::JobCommanded{job, CommandKind::kHold, 9, "olga"});
  EXPECT_THAT(driver_.Why(job), HasSubstr("`gavel hold` of operator olga"));
  driver_.Step(event::JobCommanded{job, CommandKind::kCancel, 9, "olga"});
  driver_.Restart();
  EXPECT_EQ(driver_.Why(job), "cancelled by operator olga");
}

TEST_F(Operators, ACheckpointOfAJobThatDoesNotRunIsNotTakenForItsLastStep) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  Progress progress;
  progress.steps_done = 150;
  progress.last_generation = {1, 100};
  driver_.Step(
      event::LeaseEnded{key, driver_.worker(job).held_epoch, progress});
  Command(CommandKind::kHold, job);
  Command(CommandKind::kRelease, job);
  Drain("here");
  Command(CommandKind::kCheckpoint, job);
  EXPECT_THAT(driver_.LastReply(),
              HasSubstr("does not run now, it stopped at step 150; the last "
                        "checkpoint that it told of is of step 100"));
}

TEST_F(Operators, ResumeSaysWhatBringsALostAcceleratorBack) {
  driver_.Step(event::AcceleratorLost{"here", "here-0"});
  for (const char* target : {"here", "here-0"}) {
    Resume(target);
    EXPECT_THAT(driver_.LastReply(),
                AllOf(HasSubstr("here-0 is lost"),
                      HasSubstr("restart the agent of here")));
  }
}

// ---- an agent that ends in order

TEST_F(Operators, AgentThatEndsIsDrainedFirstAndThenDown) {
  driver_.JoinServer("there", 1);
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  ASSERT_EQ(Of(job).server, "here");
  driver_.Step(event::AgentLeaves{{"here", 1, {}, false}});
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  const size_t rows = driver_.rows.size();
  driver_.Step(event::AgentLeaves{{"here", 1, {}, false}});
  EXPECT_EQ(driver_.rows.size(), rows) << "it repeats itself";
  Evict(job);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  driver_.Step(event::AgentLeaves{{"here", 1, {}, true}});
  EXPECT_TRUE(driver_.engine().agents().at("here").left);
  EXPECT_FALSE(driver_.engine().agents().at("here").reachable);
  driver_.JoinServer("here", 2);
  EXPECT_FALSE(driver_.engine().agents().at("here").left);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{2});
}

TEST_F(Operators, ProcessThatNeverSpokeIsStoppedWhenItsAgentEnds) {
  const JobId job = driver_.Submit("a");
  ASSERT_EQ(driver_.worker(job).process, ProcessState::kLaunching);
  driver_.Step(event::AgentLeaves{{"here", 1, {}, false}});
  ASSERT_TRUE(driver_.Last<StopWorker>().has_value());
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, driver_.Key(job));
}

TEST_F(Operators, AnotherAgentsEndIsNotHeard) {
  const size_t rows = driver_.rows.size();
  driver_.Step(event::AgentLeaves{{"here", 7, {}, true}});
  driver_.Step(event::AgentLeaves{{"nowhere", 1, {}, true}});
  EXPECT_EQ(driver_.rows.size(), rows);
}

// ---- hold, requeue, checkpoint

TEST_F(Operators, HoldTakesACheckpointAndReleaseUndoesIt) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  Command(CommandKind::kHold, job);
  EXPECT_EQ(driver_.LastReply(), "");
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  driver_.Request(driver_.Key(job), /*holding=*/true);  // it was not told
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  Evict(job);
  EXPECT_EQ(driver_.Why(job),
            "held: by `gavel hold`; `gavel release 1` lets it go on");
  Command(CommandKind::kHold, job);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("is held"));
  Command(CommandKind::kRelease, job);
  EXPECT_TRUE(driver_.job(job).active());
  driver_.Run(job);
  EXPECT_NE(driver_.worker(job).held_epoch, 0u);
}

TEST_F(Operators, HoldOfAWaitingJobKeepsItFromStarting) {
  const JobId a = driver_.Submit("a");
  driver_.Run(a);
  const JobId b = driver_.Submit("b");
  Command(CommandKind::kHold, b);
  Command(CommandKind::kCancel, a);
  driver_.Gone(driver_.Key(a), 0);
  EXPECT_TRUE(driver_.job(b).assigned.empty());
}

TEST_F(Operators, RequeueStartsItsProcessAnewFromACheckpoint) {
  const JobId job = driver_.Submit("a");
  const WorkerKey before = driver_.Run(job);
  Command(CommandKind::kRequeue, job);
  EXPECT_EQ(driver_.LastReply(), "");
  EXPECT_TRUE(driver_.worker(job).leaving);
  EXPECT_EQ(driver_.worker(job).pause_tier, PauseTier::kEvict);
  Evict(job);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  EXPECT_GT(driver_.Key(job).incarnation, before.incarnation);
  driver_.Run(job);
  EXPECT_NE(driver_.worker(job).held_epoch, 0u);
}

// At the end of the round the job loses its assignment, for which parking would
// be enough; the stronger pause of the requeue stays.
TEST(OperatorsRequeue, HoldsThoughTheRoundEndsMeanwhile) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("a");
  driver.Run(job);
  driver.Submit("b");
  driver.Step(event::JobCommanded{job, CommandKind::kRequeue, 9});
  driver.At(driver.engine().round_ends_at() + 1);
  EXPECT_TRUE(driver.job(job).assigned.empty());
  EXPECT_EQ(driver.worker(job).pause_tier, PauseTier::kEvict);
}

TEST_F(Operators, RequeueRefusesAJobWithoutAProcess) {
  const JobId a = driver_.Submit("a");
  driver_.Run(a);
  const JobId b = driver_.Submit("b");
  Command(CommandKind::kRequeue, b);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("no process that could end"));
  Command(CommandKind::kCancel, b);
  Command(CommandKind::kRequeue, b);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("submit it again"));
}

TEST_F(Operators, CheckpointAsksEachWorkerThatRuns) {
  const JobId job = driver_.Submit("a");
  Command(CommandKind::kCheckpoint, job);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("does not run now"));
  const WorkerKey key = driver_.Run(job);
  Command(CommandKind::kCheckpoint, job);
  EXPECT_EQ(driver_.LastReply(), "");
  ASSERT_TRUE(driver_.Last<CheckpointRequest>().has_value());
  EXPECT_EQ(driver_.Last<CheckpointRequest>()->worker, key);
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0) << "it goes on meanwhile";
}

// ---- update

TEST_F(Operators, UpdateChangesWhatThePolicySees) {
  const JobId job = driver_.Submit("a");
  JobUpdate update;
  update.weight = 3;
  update.deadline_s = 500;
  update.entity = "vision";
  Update(job, update);
  EXPECT_EQ(driver_.LastReply(), "");
  ASSERT_EQ(driver_.problem.jobs.size(), 1u);
  EXPECT_EQ(driver_.problem.jobs[0].weight, 3);
  EXPECT_EQ(driver_.job(job).spec.entity, "vision");
  driver_.Restart();
  EXPECT_EQ(driver_.job(job).spec.weight, 3);
  update = {};
  update.deadline_s = 0;
  Update(job, update);
  EXPECT_FALSE(driver_.job(job).spec.deadline_s.has_value());
}

TEST_F(Operators, UpdateOfTypesKeepsAJobFromTheOthers) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  JobUpdate update;
  update.types = {"p100"};
  Update(job, update);
  EXPECT_THAT(driver_.LastReply(),
              HasSubstr("the cluster has no type \"p100\"; it has v100"));
  driver_.Step(event::ServerJoined{EngineDriver::HelloOf("other", "p100")});
  Update(job, update);
  EXPECT_EQ(driver_.LastReply(), "");
  driver_.EndRound();
  EXPECT_EQ(Of(job).info.type, "p100");
  update.types = std::vector<std::string>();
  Update(job, update);
  EXPECT_FALSE(driver_.engine().throughputs().IsBarred(job, "v100"));
}

TEST_F(Operators, UpdateOfTypesHoldsForASnapshot) {
  const JobId job = driver_.Submit("a");
  JobUpdate update;
  update.types = {"v100"};
  Update(job, update);
  driver_.Step(event::ServerJoined{EngineDriver::HelloOf("other", "p100")});
  EXPECT_TRUE(driver_.engine().throughputs().IsBarred(job, "p100"));
  const Engine restored = driver_.Restored();
  EXPECT_TRUE(restored.throughputs().IsBarred(job, "p100"));
  EXPECT_EQ(*restored.Snapshot(), *driver_.engine().Snapshot());
}

TEST_F(Operators, UpdateOfBoundsRestartsAJobThatIsBeyondThem) {
  EngineDriver four(4);
  JobSpec spec;
  spec.scale_factor_min = 1;
  spec.scale_factor_max = 4;
  const JobId job = four.Submit("a", 2, spec);
  JobUpdate update;
  update.scale_factor_max = 2;
  update.scale_factor_min = 2;
  four.Step(event::JobUpdated{job, update, 9});
  EXPECT_EQ(four.job(job).scale_factor, 2);
  EXPECT_EQ(four.job(job).assigned.size(), 2u);
}

// ---- the policy

TEST_F(Operators, PolicySetLiveIsAskedNextAndPausesNobodyThatItKeeps) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  driver_.Step(
      event::PolicyChanged{"max_min_fairness", "fifo", false, true, 9});
  EXPECT_EQ(driver_.LastReply(), "");
  std::string asked;
  for (const Action& action : driver_.actions) {
    const auto* solve = std::get_if<action::SolvePolicy>(&action);
    if (solve != nullptr) asked = solve->policy;
  }
  EXPECT_EQ(asked, "max_min_fairness");
  driver_.EndRound();
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
}

TEST_F(Operators, PolicySetLiveSurvivesARestart) {
  driver_.Step(
      event::PolicyChanged{"max_min_fairness_packed", "fifo", true, true, 9});
  EXPECT_TRUE(driver_.engine().options().packing);
  driver_.Restart();
  // The engine does not keep the policy by itself: at each start the
  // coordinator names the policy, which it finds in the journal.
  EXPECT_EQ(driver_.engine().operated().policy.name, "");
  event::CoordinatorStarted started{9};
  started.policy = "fifo";
  driver_.Step(
      event::PolicyChanged{"max_min_fairness_packed", "fifo", true, true, 9});
  started.policy = "max_min_fairness_packed";
  driver_.Step(started);
  EXPECT_TRUE(driver_.engine().options().packing);
  EXPECT_EQ(driver_.engine().operated().policy.instead_of, "fifo");
  EXPECT_EQ(driver_.Restored().operated().policy.name,
            "max_min_fairness_packed");
}

// The answer of the earlier policy comes too late.
TEST_F(Operators, PolicySetWhileAnotherIsAskedDropsItsAnswer) {
  driver_.hold_solver = true;
  const JobId job = driver_.Submit("a");
  uint64_t epoch = 0;
  for (const Action& action : driver_.actions) {
    const auto* solve = std::get_if<action::SolvePolicy>(&action);
    if (solve != nullptr) epoch = solve->epoch;
  }
  driver_.Step(
      event::PolicyChanged{"max_min_fairness", "fifo", false, true, 9});
  const size_t rows = driver_.rows.size();
  driver_.Step(event::AllocationReady{epoch, PolicyResult()});
  EXPECT_EQ(driver_.rows.size(), rows);
  EXPECT_EQ(driver_.solves, 2);
  EXPECT_TRUE(driver_.job(job).assigned.empty());
}

// ---- names, and servers that are gone

TEST_F(Operators, NamesAreUniquePerUser) {
  JobSpec spec;
  spec.owner = "ada";
  const JobId first = driver_.Submit("train", 1, spec);
  spec.owner = "bob";
  const JobId second = driver_.Submit("train", 1, spec);
  EXPECT_NE(first, second);
  EXPECT_EQ(driver_.LastReply(), "");
  driver_.Submit("train", 1, spec);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("the name is taken by job 2"));
  Command(CommandKind::kCancel, second);
  driver_.Submit("train", 1, spec);
  EXPECT_EQ(driver_.LastReply(), "");
}

TEST_F(Operators, ForgetRemovesAServerThatIsGoneAndItsTypes) {
  driver_.Step(event::ServerForgotten{"here", 9});
  EXPECT_THAT(driver_.LastReply(),
              AllOf(HasSubstr("server here is there"),
                    HasSubstr("given up after 1000 s of silence")));
  driver_.Step(event::ServerForgotten{"nowhere", 9});
  EXPECT_THAT(driver_.LastReply(), HasSubstr("no server \"nowhere\""));
  driver_.Step(event::ServerLost{"here"});
  driver_.Step(event::ServerForgotten{"here", 9});
  EXPECT_EQ(driver_.LastReply(), "");
  const Cluster& cluster = driver_.engine().cluster();
  EXPECT_TRUE(cluster.servers().empty());
  EXPECT_FALSE(cluster.HasType(0));
  EXPECT_TRUE(driver_.engine().agents().empty());
  driver_.JoinServer("here", 1);
  EXPECT_TRUE(cluster.HasType(0));
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  EXPECT_NE(driver_.worker(job).held_epoch, 0u);
  driver_.Restart();
  EXPECT_EQ(driver_.engine().cluster().size(), 1u);
}

TEST_F(Operators, ForgetWaitsForAProcessThatMayStillRun) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  driver_.Step(event::ServerLost{"here"});
  driver_.Step(event::ServerForgotten{"here", 9});
  EXPECT_THAT(driver_.LastReply(), HasSubstr("may still run on server here"));
}

TEST(OperatorsAge, ServersThatAreGoneAgeOut) {
  EngineDriver driver(1, "fifo",
                      [](EngineOptions& o) { o.forget_after_s = 5000; });
  driver.JoinServer("there", 1);
  driver.Step(event::ServerLost{"there"});
  driver.At(4000);
  EXPECT_TRUE(driver.engine().cluster().servers().contains("there"));
  driver.At(6000);
  EXPECT_FALSE(driver.engine().cluster().servers().contains("there"));
}

}  // namespace
}  // namespace gavel
