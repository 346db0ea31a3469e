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
  // The job gives its accelerator back as unusable. Returns that accelerator.
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

  JobId RunOf(const std::string& owner, const std::string& name) {
    JobSpec spec;
    spec.owner = owner;
    const JobId job = driver_.Submit(name, 1, spec);
    driver_.Run(job);
    return job;
  }
  // Drains all other accelerators, so that jobs can only get this one.
  void Leave(AcceleratorId only) {
    for (const Accelerator& other : driver_.engine().cluster().accelerators()) {
      if (other.id == only || !other.usable()) continue;
      driver_.Step(event::AcceleratorsDrained{other.server, other.info.uuid});
    }
  }
  // Makes two jobs fail on an accelerator, so that it is lost, and returns it.
  AcceleratorId LoseForAll() {
    const JobId first = driver_.Submit("a");
    driver_.Run(first);
    const AcceleratorId lost = Fail(first);
    const JobId second = driver_.Submit("b");
    driver_.Run(second);
    EXPECT_EQ(HeldBy(second), lost);
    Fail(second);
    EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
    return lost;
  }

  EngineDriver driver_{3};
};

TEST_F(LostAccelerator,
       AJobThatCouldNotUseItGoesOnElsewhereAndOthersMayHaveIt) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
  driver_.Request(key);
  EXPECT_TRUE(HeldBy(job).valid());
  EXPECT_NE(HeldBy(job), lost);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  driver_.Submit("b");
  driver_.Submit("c");
  int others = 0;
  for (const auto& [id, other] : driver_.engine().jobs()) {
    others += id != job && !other.assigned.empty() ? 1 : 0;
  }
  EXPECT_EQ(others, 2);
}

TEST_F(LostAccelerator, IsGivenToNobodyOnceASecondJobSaysSo) {
  const AcceleratorId lost = LoseForAll();
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{2});
  driver_.Submit("c");
  driver_.Submit("d");
  for (const auto& [id, other] : driver_.engine().jobs()) {
    for (const AcceleratorId assigned : other.assigned) {
      EXPECT_NE(assigned, lost) << "job " << id.value();
    }
  }
}

// One job can't make accelerators lost for others, however often it fails and
// although it has trained on the type before.
TEST_F(LostAccelerator, OneJobTakesNoneFromTheOthers) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  MakeSteps(job);
  driver_.GiveBack(job);
  driver_.Request(key);
  Fail(job);
  driver_.Request(key);
  MakeSteps(job);
  Fail(job);
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver_.Why(job), HasSubstr("could use neither here-"));
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
}

TEST_F(LostAccelerator, OfTwoUsersTheWordOfOneIsNotEnough) {
  const JobId first = RunOf("eve", "a");
  const AcceleratorId lost = Fail(first);
  const JobId honest = RunOf("bob", "b");
  ASSERT_EQ(HeldBy(honest), lost);
  driver_.GiveBack(honest);
  Leave(lost);
  driver_.Step(event::JobCommanded{honest, CommandKind::kHold, 1});
  const JobId second = RunOf("eve", "c");
  RunOf("bob", "d");
  ASSERT_EQ(HeldBy(second), lost);
  Fail(second);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
  driver_.Step(event::JobCommanded{honest, CommandKind::kRelease, 1});
  const JobId third = driver_.job(honest).assigned.empty() ? JobId(4) : honest;
  driver_.Run(third);
  ASSERT_EQ(HeldBy(third), lost);
  Fail(third);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
}

TEST_F(LostAccelerator, AGoodEndInBetweenRefutesTheFirstWord) {
  const JobId first = driver_.Submit("a");
  driver_.Run(first);
  const AcceleratorId lost = Fail(first);
  const JobId second = driver_.Submit("b");
  driver_.Run(second);
  ASSERT_EQ(HeldBy(second), lost);
  MakeSteps(second);
  Fail(second);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
}

TEST_F(LostAccelerator, WhoMayUseNothingThatIsLeftWaitsWithTheRemedy) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  Leave(lost);
  EXPECT_TRUE(driver_.job(job).assigned.empty());
  EXPECT_THAT(driver_.Why(job), AllOf(HasSubstr("could not use here/here-0"),
                                      HasSubstr("`gavel release 1`")));
  const JobId other = driver_.Submit("b");
  EXPECT_FALSE(driver_.job(other).assigned.empty()) << "it blocks nobody";
  driver_.Step(event::JobCommanded{other, CommandKind::kCancel, 1});
  driver_.Restart();
  EXPECT_THAT(driver_.Why(job), HasSubstr("could not use here/here-0"));
  driver_.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_FALSE(driver_.job(job).assigned.empty());
  EXPECT_EQ(driver_.LastReply(), "");
  driver_.Request(key);
}

TEST_F(LostAccelerator, IsTriedAgainUnderANewAgent) {
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  const AcceleratorId lost = Fail(job);
  Leave(lost);
  ASSERT_TRUE(driver_.job(job).assigned.empty());
  driver_.JoinServer("here", 2);
  EXPECT_EQ(driver_.job(job).assigned, std::vector{lost});
}

TEST_F(LostAccelerator, AnElasticJobGoesOnWithoutIt) {
  JobSpec spec;
  spec.scale_factor_min = 1;
  spec.scale_factor_max = 3;
  const JobId job = driver_.Submit("a", 3, spec);
  ASSERT_EQ(driver_.job(job).assigned.size(), 3u);
  driver_.Step(event::AcceleratorLost{"here", "here-1", job});
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
  EXPECT_THAT(driver_.job(job).assigned,
              ElementsAre(AcceleratorId(1), AcceleratorId(3)));
}

TEST_F(LostAccelerator, WhoeverRunsThereIsPaused) {
  const JobId job = driver_.Submit("a");
  const WorkerKey key = driver_.Run(job);
  const AcceleratorInfo info =
      driver_.engine().cluster().accelerator(HeldBy(job)).info;
  driver_.Step(event::AcceleratorLost{"here", info.uuid});
  EXPECT_EQ(driver_.Last<PauseRequest>()->worker, key);
}

// When the same agent joins again, the accelerator stays lost, because that
// agent has not looked at its devices again. A new agent has.
TEST_F(LostAccelerator, ComesBackWithANewAgent) {
  const AcceleratorId lost = LoseForAll();
  std::vector<RunningWorker> running;
  for (const auto& [id, job] : driver_.engine().jobs()) {
    running.push_back({driver_.Key(id), 1});
  }
  driver_.JoinServer("here", 1, running);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
  driver_.JoinServer("here", 2);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{3});
}

// The program of such a job may be built without CUDA, and the job would take
// all accelerators out of use.
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

// If only accelerators of one server fail, the server may be broken, so the job
// is not held.
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
  driver_.Gone(key, 75);  // on the other server it is a new process
  driver_.Run(job);
  ASSERT_EQ(driver_.engine().cluster().accelerator(HeldBy(job)).server,
            "there");
  Fail(job);  // also on a second server, so the program is at fault
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_EQ(driver_.engine().cluster().Capacity(), std::vector<int>{6});
}

TEST_F(LostAccelerator, AReplayDecidesAsWasDecided) {
  const AcceleratorId lost = LoseForAll();
  driver_.Restart();
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
  for (const JobId job : {JobId(1), JobId(2)}) {
    EXPECT_NE(driver_.job(job).assigned, std::vector{lost});
  }
}

TEST_F(LostAccelerator, OnTheWordOfAJobThatIsHeldOrCancelledIsBack) {
  const AcceleratorId lost = LoseForAll();
  driver_.Step(event::JobCommanded{JobId(1), CommandKind::kCancel, 1});
  EXPECT_EQ(StateOf(lost), AcceleratorState::kUsable);
  // The report of the other job still counts.
  const JobId third = driver_.Submit("c");
  driver_.Run(third);
  ASSERT_EQ(HeldBy(third), lost);
  Fail(third);
  EXPECT_EQ(StateOf(lost), AcceleratorState::kLost);
}

TEST_F(LostAccelerator, StaysLostAtTheGoodEndOfItsAccuser) {
  const AcceleratorId lost = LoseForAll();
  driver_.Request(driver_.Key(JobId(1)));
  driver_.GiveBack(driver_.Key(JobId(1)), {}, ReleaseCause::kPaused,
                   /*finished=*/true);
  driver_.Gone(driver_.Key(JobId(1)), 0);
  EXPECT_EQ(driver_.job(JobId(1)).state, JobState::kFinished);
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
  const AcceleratorId lost = LoseForAll();
  EXPECT_EQ(driver_.Restored({}).cluster().accelerator(lost).state,
            AcceleratorState::kLost);
}

}  // namespace
}  // namespace gavel
