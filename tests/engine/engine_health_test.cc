// Accelerators that the coordinator drains for what their drivers say.
#include "coordinator/engine/failures.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class Health : public ::testing::Test {
 protected:
  const Accelerator& Of(int index) const {
    return driver_.engine().cluster().accelerator(
        AcceleratorId(static_cast<uint64_t>(index) + 1));
  }
  AcceleratorHealth Told(int index, uint64_t errors = 0,
                         const std::string& failure = "") const {
    AcceleratorHealth told;
    told.uuid = Of(index).info.uuid;
    told.temperature_c = 60;
    told.uncorrectable_errors = errors;
    told.failure = failure;
    return told;
  }
  void Tell(const AcceleratorHealth& told) {
    AgentHeartbeat beat{"here", 1, {1, driver_.rows.back().seq}};
    beat.health = {told};
    driver_.Step(event::AgentHeard{beat});
  }
  void Resume() {
    event::AcceleratorsDrained resumed{Of(0).info.uuid};
    resumed.drained = false;
    driver_.Step(resumed);
    ASSERT_FALSE(Of(0).drained);
  }

  EngineDriver driver_{2};
};

TEST_F(Health, AnAcceleratorWithUncorrectableErrorsIsDrainedAndItsJobLeaves) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  Tell(Told(0, 3));
  EXPECT_TRUE(Of(0).drained);
  EXPECT_EQ(Of(0).drained_for,
            "its memory had 3 uncorrectable errors; reset or replace it, then "
            "`gavel resume here/here-0`");
  EXPECT_FALSE(Of(1).drained);
  EXPECT_TRUE(driver_.Last<PauseRequest>().has_value());
  driver_.Restart();
  EXPECT_TRUE(Of(0).drained) << "it is in the journal";
  EXPECT_THAT(Of(0).drained_for, HasSubstr("3 uncorrectable errors"));
  EXPECT_EQ(
      driver_.Restored().cluster().accelerator(AcceleratorId(1)).drained_for,
      Of(0).drained_for);
}

TEST_F(Health, OneThatIsWellIsNotDrained) {
  Tell(Told(0));
  EXPECT_FALSE(Of(0).drained);
  const auto& told = driver_.engine().agents().at("here").health;
  EXPECT_EQ(told.at("here-0").temperature_c, 60);
}

TEST_F(Health, AnOperatorsResumeHoldsUntilThereAreOtherErrors) {
  Tell(Told(0, 3));
  Resume();
  EXPECT_EQ(Of(0).drained_for, "");
  Tell(Told(0, 3));
  EXPECT_FALSE(Of(0).drained);
  Tell(Told(0, 4));
  EXPECT_TRUE(Of(0).drained);
  Resume();
  Tell(Told(0, 1));  // the driver has started again
  EXPECT_TRUE(Of(0).drained);
}

TEST_F(Health, OneThatIsGoneIsDrainedWithTheRemedy) {
  Tell(Told(0, 0, "it is not there any more; restart the agent"));
  EXPECT_TRUE(Of(0).drained);
  EXPECT_EQ(Of(0).drained_for, "it is not there any more; restart the agent");
}

TEST_F(Health, WhyTellsTheReasonToAJobThatWaitsForWhatIsDrained) {
  const auto drain = [&](int index) {
    driver_.Step(event::AcceleratorsDrained{Of(index).info.uuid});
  };
  Tell(Told(0, 3));
  drain(1);
  EXPECT_EQ(driver_.Why(driver_.Submit("a")),
            "waiting: what it can use is drained (v100 of here: by `gavel "
            "drain`; v100 of here: its memory had 3 uncorrectable errors; "
            "reset or replace it, then `gavel resume here/here-0`); `gavel "
            "resume` gives it back");
}

TEST_F(Health, WhyTellsOfAFewReasonsAndOfAnAgentThatEnds) {
  const JobId job = driver_.Submit("a", 2);
  Tell(Told(0, 0, "it fell off the bus"));
  EXPECT_THAT(driver_.Why(job), HasSubstr("here: it fell off the bus)"));
  for (const std::string server : {"b", "c", "d"}) {
    driver_.Step(event::ServerJoined{EngineDriver::HelloOf(server, "v100")});
    AgentHeartbeat beat{server, 1, {1, driver_.rows.back().seq}};
    beat.health.resize(1);
    beat.health[0].uuid = server + "-0";
    beat.health[0].failure = server + " is too hot";
    driver_.Step(event::AgentHeard{beat});
  }
  driver_.Step(event::AgentLeaves{{"here", 1, {}, false}});
  EXPECT_EQ(driver_.Why(job),
            "waiting: what it can use is drained (v100 of b: b is too hot; "
            "v100 of c: c is too hot; v100 of d: d is too hot; 2 more, see "
            "`gavel nodes`); `gavel resume` gives it back");
}

TEST_F(Health, WhatNobodyDeclaredIsIgnored) {
  AcceleratorHealth told = Told(0, 3);
  told.uuid = "another";
  Tell(told);
  EXPECT_FALSE(Of(0).drained);
  EXPECT_FALSE(Of(1).drained);
}

// ---- on which jobs fail

TEST(FailureStreaks, CountsDifferentJobsThatRanElsewhere) {
  const AcceleratorId good(1), bad(2);
  engine::FailureStreaks streaks;
  for (const int job : {1, 2, 3}) streaks.NoteGoodEnd(JobId(job), good);
  EXPECT_THAT(streaks.NoteFailure(JobId(4), bad), IsEmpty()) << "ran nowhere";
  EXPECT_THAT(streaks.NoteFailure(JobId(1), bad), IsEmpty());
  EXPECT_THAT(streaks.NoteFailure(JobId(1), bad), IsEmpty()) << "the same";
  EXPECT_THAT(streaks.NoteFailure(JobId(2), bad), IsEmpty());
  EXPECT_THAT(streaks.NoteFailure(JobId(3), bad),
              ElementsAre(JobId(1), JobId(2), JobId(3)));
}

TEST(FailureStreaks, OfOneUserAreNotEnoughWhereSeveralHaveJobs) {
  const AcceleratorId good(1), bad(2);
  engine::FailureStreaks streaks;
  for (int job = 1; job <= 5; ++job) streaks.NoteGoodEnd(JobId(job), good);
  for (const int job : {1, 2, 3}) {
    EXPECT_THAT(streaks.NoteFailure(JobId(job), bad, "eve", true), IsEmpty());
  }
  EXPECT_THAT(streaks.NoteFailure(JobId(4), bad, "bob", true),
              ElementsAre(JobId(1), JobId(2), JobId(3), JobId(4)));
}

TEST(FailureStreaks, EndsWhereAJobRunsWell) {
  const AcceleratorId good(1), bad(2);
  engine::FailureStreaks streaks;
  for (const int job : {1, 2, 3}) streaks.NoteGoodEnd(JobId(job), good);
  streaks.NoteFailure(JobId(1), bad);
  streaks.NoteFailure(JobId(2), bad);
  streaks.NoteGoodEnd(JobId(4), bad);
  EXPECT_THAT(streaks.NoteFailure(JobId(3), bad), IsEmpty());
  EXPECT_THAT(streaks.NoteFailure(JobId(4), bad), IsEmpty()) << "it ran there";
}

class Streak : public Health {
 protected:
  void Drain(int index, bool drained) {
    event::AcceleratorsDrained change{Of(index).info.uuid};
    change.drained = drained;
    driver_.Step(change);
  }
  void Command(JobId job, CommandKind kind) {
    driver_.Step(event::JobCommanded{job, kind, 1});
    driver_.At(driver_.now + 1);
  }
  void Hold(JobId job) {
    Command(job, CommandKind::kHold);
    if (driver_.worker(job).is_live()) driver_.Gone(driver_.Key(job), 75);
  }
  // Runs well, alone on the first accelerator.
  JobId RunWell(const std::string& name, const std::string& owner = "") {
    JobSpec spec;
    spec.owner = owner;
    const JobId job = driver_.Submit(name, 1, spec);
    driver_.Run(job);
    EXPECT_EQ(driver_.worker(job).held, Of(0).id);
    Progress progress;
    progress.steps_done = 10;
    driver_.GiveBack(job, progress);
    Hold(job);
    return job;
  }
};

TEST_F(Streak, ThreeJobsThatRanElsewhereDrainTheAcceleratorThatTheyFailOn) {
  Drain(1, true);
  const std::vector<JobId> jobs = {RunWell("a"), RunWell("b"), RunWell("c")};
  Drain(0, true);
  Drain(1, false);
  for (const JobId job : jobs) {
    EXPECT_FALSE(Of(1).drained);
    Command(job, CommandKind::kRelease);
    driver_.Run(job);
    ASSERT_EQ(driver_.worker(job).held, Of(1).id);
    driver_.Gone(driver_.Key(job), 1);
    if (job != jobs.back()) Hold(job);
  }
  EXPECT_TRUE(Of(1).drained);
  EXPECT_THAT(Of(1).drained_for, AllOf(HasSubstr("jobs 1, 2, 3 failed there"),
                                       HasSubstr("gavel resume here/here-1")));
}

// Such as for want of a library on that server.
TEST_F(Streak, OfProcessesThatFailBeforeTheyConnectDrainsItToo) {
  Drain(1, true);
  const std::vector<JobId> jobs = {RunWell("a"), RunWell("b"), RunWell("c")};
  Drain(0, true);
  Drain(1, false);
  for (const JobId job : jobs) {
    EXPECT_FALSE(Of(1).drained);
    Command(job, CommandKind::kRelease);
    ASSERT_EQ(driver_.job(job).assigned, std::vector{Of(1).id});
    driver_.Gone(driver_.Key(job), 127);
    if (job != jobs.back()) Hold(job);
  }
  EXPECT_TRUE(Of(1).drained);
}

TEST_F(Streak, OfOneUsersJobsDrainsNothingWhileAnotherHasJobs) {
  driver_.Step(event::ServerJoined{EngineDriver::HelloOf("old", "k80")});
  JobSpec other;
  other.owner = "bob";
  other.types = {"k80"};
  const JobId running = driver_.Submit("d", 1, other);
  ASSERT_FALSE(driver_.job(running).assigned.empty());
  Drain(1, true);
  const std::vector<JobId> jobs = {RunWell("a", "eve"), RunWell("b", "eve"),
                                   RunWell("c", "eve")};
  Drain(0, true);
  Drain(1, false);
  for (const JobId job : jobs) {
    Command(job, CommandKind::kRelease);
    driver_.Run(job);
    ASSERT_EQ(driver_.worker(job).held, Of(1).id);
    driver_.Gone(driver_.Key(job), 1);
    if (job != jobs.back()) Hold(job);
  }
  EXPECT_FALSE(Of(1).drained);
}

// The end of the fourth, which comes between, is a good one.
TEST_F(Streak, AJobThatComesToItsEndThereEndsIt) {
  Drain(1, true);
  const std::vector<JobId> jobs = {RunWell("a"), RunWell("b"), RunWell("c")};
  Drain(0, true);
  Drain(1, false);
  for (const JobId job : jobs) {
    if (job == jobs.back()) {
      const JobId fourth = driver_.Submit("d");
      driver_.Run(fourth);
      ASSERT_EQ(driver_.worker(fourth).held, Of(1).id);
      WorkerFinished finished;
      finished.worker = driver_.Key(fourth);
      finished.epoch = driver_.worker(fourth).held_epoch;
      driver_.Step(event::WorkerSaidFinished{finished});
      driver_.Gone(finished.worker, 0);
    }
    Command(job, CommandKind::kRelease);
    driver_.Run(job);
    ASSERT_EQ(driver_.worker(job).held, Of(1).id);
    driver_.Gone(driver_.Key(job), 1);
    if (job != jobs.back()) Hold(job);
  }
  EXPECT_FALSE(Of(1).drained);
}

}  // namespace
}  // namespace gavel
