// Processes that can't wait, or go, where others can: on exclusive
// accelerators, and those that see one accelerator only.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class EnginePlaces : public ::testing::Test {
 protected:
  void Start(int accelerators,
             const std::function<void(AcceleratorInfo&)>& declare,
             const std::function<void(EngineOptions&)>& adjust = {}) {
    driver_ = std::make_unique<EngineDriver>(accelerators, "max_min_fairness",
                                             adjust);
    driver_->declare = declare;
    driver_->JoinServer("here", 2);
  }
  void StartExclusive(int accelerators) {
    Start(accelerators, [](AcceleratorInfo& info) { info.exclusive = true; });
  }
  void StartLeased(int accelerators) {
    Start(accelerators, [this](AcceleratorInfo& info) {
      info.device = StrCat("cuda:", devices_++);
      info.alone_visible = true;
    });
  }
  JobId Submit(const std::string& name) {
    return driver_->Submit(name, 1, KnownJob());
  }
  const Worker& WorkerOf(JobId job) const { return driver_->worker(job); }
  // It gives its lease back at its boundary, with a checkpoint.
  void Pause(JobId job) {
    Progress progress;
    progress.steps_done = 10;
    progress.last_generation = {1, 10};
    driver_->GiveBack(job, progress);
  }
  // To the end of rounds until `job` is asked to pause.
  PauseTier AskedToPause(JobId job) {
    for (int round = 0; round < 4; ++round) {
      driver_->At(driver_->engine().round_ends_at() - 1);
      driver_->Request(driver_->Key(job), /*holding=*/true);
      driver_->At(driver_->engine().round_ends_at());
      if (WorkerOf(job).pause_sent_at == kNever) continue;
      return driver_->Last<PauseRequest>()->tier;
    }
    ADD_FAILURE() << "job " << job.value() << " is not asked to pause";
    return PauseTier::kStop;
  }
  Accelerator Loses(JobId job) {
    const Accelerator lost =
        driver_->engine().cluster().accelerator(WorkerOf(job).held);
    driver_->Step(event::AcceleratorLost{lost.server, lost.info.uuid});
    return lost;
  }

  std::unique_ptr<EngineDriver> driver_;
  int devices_ = 0;
};

TEST_F(EnginePlaces, WhoLeavesAnExclusiveAcceleratorEndsAndIsStartedAgain) {
  StartExclusive(1);
  const JobId a = Submit("a");
  driver_->Run(a);
  const JobId b = Submit("b");
  EXPECT_EQ(AskedToPause(a), PauseTier::kEvict);
  EXPECT_THAT(driver_->engine().MemoryText(driver_->job(a)),
              HasSubstr("its process ends, since one process at a time may use "
                        "here-0 (exclusive-process mode)"));
  driver_->Hello(driver_->Key(b));
  Pause(a);
  driver_->Request(driver_->Key(b));
  EXPECT_EQ(WorkerOf(b).held_epoch, 0u) << "its context is still there";
  driver_->Gone(driver_->Key(a), kExitEvicted);
  driver_->Request(driver_->Key(b));
  EXPECT_NE(WorkerOf(b).held_epoch, 0u);
  EXPECT_EQ(driver_->engine().MemoryText(driver_->job(a)),
            "evicted to disk, since one process at a time may use here-0 "
            "(exclusive-process mode)");
  EXPECT_EQ(AskedToPause(b), PauseTier::kEvict);
  EXPECT_EQ(WorkerOf(a).process, ProcessState::kLaunching);
}

TEST_F(EnginePlaces, OnASharedAcceleratorTheProcessIsParked) {
  Start(1, {});
  const JobId a = Submit("a");
  driver_->Run(a);
  Submit("b");
  EXPECT_EQ(AskedToPause(a), PauseTier::kPark);
}

// Its lease ended while the coordinator was away, and it has parked itself.
TEST_F(EnginePlaces, WhoParkedOnAnExclusiveAcceleratorEndsWhenAnotherIsToRun) {
  StartExclusive(1);
  const JobId a = Submit("a");
  driver_->Run(a);
  Submit("b");
  driver_->At(driver_->engine().round_ends_at() - 1);
  Pause(a);
  EXPECT_FALSE(WorkerOf(a).leaving) << "nobody else is to run";
  driver_->At(driver_->engine().round_ends_at());
  EXPECT_TRUE(WorkerOf(a).leaving);
}

TEST_F(EnginePlaces, WhoStaysOnAnExclusiveAcceleratorIsNotDisturbed) {
  StartExclusive(1);
  const JobId a = Submit("a");
  const WorkerKey key = driver_->Run(a);
  driver_->At(driver_->engine().round_ends_at() - 1);
  driver_->Request(key, /*holding=*/true);
  driver_->At(driver_->engine().round_ends_at() + 1);
  EXPECT_EQ(WorkerOf(a).pause_sent_at, kNever);
}

TEST_F(EnginePlaces, AMoveFromAnExclusiveAcceleratorIsARestart) {
  StartExclusive(2);
  const JobId a = Submit("a");
  const WorkerKey key = driver_->Run(a);
  const Accelerator lost = Loses(a);
  driver_->At(driver_->now + 1);
  EXPECT_TRUE(WorkerOf(a).leaving);
  Pause(a);
  driver_->Gone(key, kExitEvicted);
  driver_->At(driver_->now + 1);
  EXPECT_GT(driver_->Key(a).incarnation, key.incarnation);
  EXPECT_NE(driver_->Last<LaunchWorker>()->accelerator.uuid, lost.info.uuid);
}

TEST_F(EnginePlaces, ATypeIsExclusiveWhileOneOfItsAcceleratorsIs) {
  StartExclusive(1);
  EXPECT_TRUE(driver_->engine().cluster().IsExclusive(0));
  EXPECT_TRUE(driver_->Restored().cluster().IsExclusive(0));
  driver_->declare = {};
  driver_->JoinServer("here", 3);
  EXPECT_FALSE(driver_->engine().cluster().IsExclusive(0));
}

TEST_F(EnginePlaces, WhoSeesOneAcceleratorIsLaunchedForIt) {
  StartLeased(2);
  const JobId a = Submit("a");
  const JobId b = Submit("b");
  driver_->Run(a);
  driver_->Run(b);
  const auto launch = driver_->Last<LaunchWorker>();
  EXPECT_TRUE(launch->accelerator.alone_visible);
  EXPECT_EQ(launch->accelerator.device, "cuda:1");
  EXPECT_EQ(launch->accelerator.uuid, "here-1");
  const auto grant = driver_->Last<LeaseGrant>();
  EXPECT_EQ(grant->accelerator.device, "cuda:0") << "the only one it sees";
  EXPECT_EQ(grant->accelerator.uuid, "here-1");
}

TEST_F(EnginePlaces, WhoSeesOneAcceleratorParksWhileOthersUseIt) {
  StartLeased(1);
  const JobId a = Submit("a");
  driver_->Run(a);
  Submit("b");
  EXPECT_EQ(AskedToPause(a), PauseTier::kPark);
}

TEST_F(EnginePlaces, WhoSeesOneAcceleratorRestartsForAnother) {
  StartLeased(2);
  const JobId a = Submit("a");
  const WorkerKey key = driver_->Run(a);
  const AcceleratorId first = WorkerOf(a).held;
  Loses(a);
  Pause(a);
  driver_->At(driver_->now + 1);
  EXPECT_TRUE(WorkerOf(a).leaving);
  EXPECT_EQ(driver_->Last<PauseRequest>()->tier, PauseTier::kEvict);
  driver_->Gone(key, kExitEvicted);
  driver_->Run(a);
  EXPECT_NE(WorkerOf(a).held, first);
  EXPECT_EQ(WorkerOf(a).sees_only, WorkerOf(a).held);
  EXPECT_EQ(driver_->Last<LeaseGrant>()->accelerator.device, "cuda:0");
}

TEST_F(EnginePlaces, AJobMayAskToSeeItsLeaseOnly) {
  Start(2, [this](AcceleratorInfo& info) {
    info.device = StrCat("cuda:", devices_++);
  });
  driver_->Run(Submit("free"));
  JobSpec spec = KnownJob();
  spec.leased_visibility = true;
  const JobId alone = driver_->Submit("alone", 1, spec);
  EXPECT_EQ(driver_->Last<LaunchWorker>()->accelerator.device, "cuda:1");
  driver_->Run(alone);
  EXPECT_TRUE(driver_->Last<LaunchWorker>()->accelerator.alone_visible);
  EXPECT_EQ(driver_->Last<LeaseGrant>()->accelerator.device, "cuda:0");
  EXPECT_EQ(driver_->Restored().jobs().at(alone).workers[0].sees_only,
            WorkerOf(alone).held);
}

}  // namespace
}  // namespace gavel
