// Accelerators that workers can't use.

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class LostAccelerator : public ::testing::Test {
 protected:
  AcceleratorId HeldBy(JobId job) const { return driver_.worker(job).held; }
  AcceleratorState StateOf(AcceleratorId accelerator) const {
    return driver_.engine().cluster().accelerator(accelerator).state;
  }
  void GiveBack(JobId job, ReleaseCause cause) {
    driver_.GiveBack(driver_.Key(job), {}, cause);
  }
  // The accelerator that it could not use.
  AcceleratorId Fail(JobId job) {
    const AcceleratorId held = HeldBy(job);
    GiveBack(job, ReleaseCause::kDeviceFailed);
    return held;
  }
  void MakeSteps(JobId job) {
    Progress progress;
    progress.steps_done = 10;
    progress.throughput_steps_per_s = 1;
    progress.window_s = 10;
    driver_.Step(event::StepsReported{
        driver_.Key(job), driver_.worker(job).held_epoch, progress});
  }

  EngineDriver driver_{3};
};

TEST_F(LostAccelerator, IsGivenToNobodyAndItsJobGoesOnElsewhere) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{2});
  driver_.Request(key);
  EXPECT_TRUE(HeldBy(job).valid());
  EXPECT_NE(HeldBy(job), lost);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  driver_.Submit("b");
  driver_.Submit("c");
  for (const auto& [id, other] : driver_.engine().jobs()) {
    for (const AcceleratorId assigned : other.assigned) {
      EXPECT_NE(assigned, lost) << "job " << id.value();
    }
  }
}

TEST_F(LostAccelerator, WhoeverRunsThereIsPaused) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorInfo info =
      driver_.engine().cluster().accelerator(HeldBy(job)).info;
  driver_.Step(event::AcceleratorLost{"here", info.uuid});
  EXPECT_EQ(driver_.Last<PauseRequest>()->worker, key);
}

// The same agent does not know more than it did; a new one says what is there.
TEST_F(LostAccelerator, ComesBackWithANewAgent) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  driver_.JoinServer("here", 1, {{key, 1}});
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
  driver_.JoinServer("here", 2);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
}

// Its program may be built without CUDA, and would take all out of use.
TEST_F(LostAccelerator, AJobThatNeverRanAndCanUseNoneIsHeld) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId first = Fail(job);
  driver_.Request(key);
  const AcceleratorId second = Fail(job);
  EXPECT_NE(first, second);
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_THAT(RenderReason(driver_.job(job).reason), HasSubstr("built with"));
  EXPECT_EQ(StateOf(first), AcceleratorState::kUsable);
  EXPECT_EQ(StateOf(second), AcceleratorState::kUsable);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
}

// A server that is broken as a whole holds no job: others have such, too.
TEST_F(LostAccelerator, ThoseOfOneServerAreNotEnoughToHoldAJob) {
  driver_.JoinServer("there", 1);
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(driver_.engine().cluster().accelerator(HeldBy(job)).server,
              "here");
    Fail(job);
    ASSERT_TRUE(driver_.job(job).active());
    driver_.Request(key);
  }
  driver_.Gone(key, 75);  // there it is another process
  driver_.Run(job);
  ASSERT_EQ(driver_.engine().cluster().accelerator(HeldBy(job)).server,
            "there");
  Fail(job);  // a second server's: it is the program
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{6});
}

// What a report between two rows of the journal has told is not there at a
// replay.
TEST_F(LostAccelerator, AReplayDecidesAsWasDecided) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  Progress nothing;
  driver_.Step(
      event::StepsReported{key, driver_.worker(job).held_epoch, nothing});
  MakeSteps(job);  // too soon after the first for a row
  const AcceleratorId first = Fail(job);
  driver_.Request(driver_.Key(job));
  const AcceleratorId second = Fail(job);
  EXPECT_TRUE(driver_.job(job).active());
  driver_.Restart();
  EXPECT_TRUE(driver_.job(job).active());
  EXPECT_EQ(StateOf(first), AcceleratorState::kLost);
  EXPECT_EQ(StateOf(second), AcceleratorState::kLost);
}

TEST_F(LostAccelerator, OnTheWordOfAJobThatNeverRanIsBackAtItsEnd) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  driver_.Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
}

TEST_F(LostAccelerator, StaysLostOnceItsAccuserRunsElsewhere) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  driver_.Request(key);
  MakeSteps(job);
  // Believed from now on, also of more than one.
  const AcceleratorId second = Fail(job);
  EXPECT_TRUE(driver_.job(job).active());
  driver_.Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
  EXPECT_EQ(StateOf(second), AcceleratorState::kLost);
}

TEST_F(LostAccelerator, IsNotProvedLostByARunOnAnotherType) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  driver_.Step(event::ServerJoined{EngineDriver::HelloOf("old", "k80")});
  driver_.Step(event::AcceleratorsDrained{"here"});
  driver_.Gone(driver_.Key(job), kExitEvicted);
  driver_.EndRound();
  driver_.Run(job);
  MakeSteps(job);
  driver_.Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
}

// Too short to have told how fast it is.
TEST_F(LostAccelerator, StaysLostOnceItsAccuserHasDoneStepsElsewhere) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  driver_.Request(key);
  Progress progress;
  progress.steps_done = 3;
  driver_.GiveBack(key, progress, ReleaseCause::kPaused, /*finished=*/true);
  driver_.Gone(key, 0);
  EXPECT_EQ(driver_.job(job).state, JobState::kFinished);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
}

TEST_F(LostAccelerator, OnItsWayToAnotherCauseIsNone) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  const AcceleratorId held = HeldBy(job);
  GiveBack(job, ReleaseCause::kResumeFailed);
  EXPECT_EQ(StateOf(held), AcceleratorState::kUsable);
}

TEST_F(LostAccelerator, IsStillLostAfterARestartOfTheCoordinator) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  EXPECT_EQ(driver_.Restored({}).cluster().accelerator(lost).state,
            AcceleratorState::kLost);
}

}  // namespace
}  // namespace gavel
