// Tests the tiers of pauses, memory budgets, and jobs that do not fit on a
// type.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

// Jobs that take turns on one accelerator.
class Memory : public ::testing::Test {
 protected:
  static constexpr double kRound_s = 100;

  void Start(int jobs, uint64_t memory, uint64_t context, uint64_t host,
             double keep_rounds = 2.5, double park_rounds = kNever) {
    driver_ = std::make_unique<EngineDriver>(
        1, "max_min_fairness", [&](EngineOptions& options) {
          options.keep_absence_s_max = keep_rounds * kRound_s;
          options.park_absence_s_max = park_rounds * kRound_s;
        });
    driver_->memory_bytes = memory;
    driver_->context_bytes = context;
    driver_->host_memory_bytes = host;
    driver_->JoinServer("here", 2);
    for (int i = 0; i < jobs; ++i) {
      jobs_.push_back(driver_->Submit(StrCat("job", i), 1, KnownJob()));
    }
  }

  JobId Assigned() const {
    for (const JobId job : jobs_) {
      if (!driver_->job(job).assigned.empty()) return job;
    }
    return JobId();
  }
  static Progress Bytes(uint64_t device, uint64_t host) {
    Progress progress;
    progress.steps_done = 10;
    progress.last_generation = {1, 10};
    progress.device_bytes = device;
    progress.host_bytes = host;
    return progress;
  }
  // Starts the job whose turn it is, and reports how much memory it needs.
  JobId Run(uint64_t device_bytes) {
    const JobId job = Assigned();
    EXPECT_TRUE(job.valid());
    if (driver_->worker(job).process == ProcessState::kLaunching) {
      driver_->Hello(driver_->Key(job));
    }
    driver_->Request(driver_->Key(job));
    EXPECT_NE(driver_->worker(job).held_epoch, 0u);
    driver_->Step(event::StepsReported{driver_->Key(job),
                                       driver_->worker(job).held_epoch,
                                       Bytes(device_bytes, 0)});
    return job;
  }
  // Rounds go on until the job has to pause; returns the tier of the pause.
  PauseTier EndRound(JobId job) {
    for (int round = 0; round < 4; ++round) {
      if (driver_->worker(job).pause_sent_at != kNever) break;
      driver_->At(driver_->engine().round_ends_at() - 1);
      driver_->Request(driver_->Key(job), /*holding=*/true);
      driver_->At(driver_->engine().round_ends_at());
    }
    for (auto it = driver_->actions.rbegin(); it != driver_->actions.rend();
         ++it) {
      const auto* send = std::get_if<action::SendToWorker>(&*it);
      if (send == nullptr || send->worker.job != job) continue;
      const auto* pause = std::get_if<PauseRequest>(&send->message);
      if (pause != nullptr) return pause->tier;
    }
    ADD_FAILURE() << "job " << job.value() << " is not asked to pause";
    return PauseTier::kStop;
  }
  void GiveBack(JobId job, const Progress& progress) {
    driver_->GiveBack(job, progress);
  }
  // A whole turn of the next job, which is kept afterwards or else parked.
  JobId Turn(uint64_t device_bytes, uint64_t host_bytes) {
    const JobId job = Run(device_bytes);
    const bool kept = EndRound(job) == PauseTier::kKeep;
    GiveBack(job, Bytes(kept ? device_bytes : 0, kept ? 0 : host_bytes));
    return job;
  }

  std::unique_ptr<EngineDriver> driver_;
  std::vector<JobId> jobs_;
};

TEST_F(Memory, WithoutBudgetsAJobIsParked) {
  Start(2, 0, 0, 0);
  for (int i = 0; i < 4; ++i) {
    const JobId job = Run(30);
    EXPECT_EQ(EndRound(job), PauseTier::kPark);
    GiveBack(job, Bytes(0, 30));
  }
}

TEST_F(Memory, AJobThatIsBackSoonIsKeptWhereThereIsRoomForBoth) {
  Start(2, 100, 10, 0);
  const JobId a = Run(30);
  EXPECT_EQ(EndRound(a), PauseTier::kPark);  // what b needs is not known yet
  GiveBack(a, Bytes(0, 30));
  EXPECT_EQ(driver_->engine().MemoryText(driver_->job(a)),
            "parked in host memory on here, 0.0 KiB");
  const JobId b = Run(40);
  ASSERT_NE(a, b);
  EXPECT_EQ(EndRound(b), PauseTier::kKeep);  // 40 + 30 and two contexts
  GiveBack(b, Bytes(40, 0));
  EXPECT_THAT(driver_->engine().MemoryText(driver_->job(b)),
              HasSubstr("kept on here-0 of here"));
  ASSERT_EQ(Run(30), a);
  EXPECT_EQ(EndRound(a), PauseTier::kKeep);  // both from now on
  GiveBack(a, Bytes(30, 0));
  EXPECT_EQ(EndRound(Run(40)), PauseTier::kKeep);
  EXPECT_EQ(driver_->engine().MemoryText(driver_->job(b)), "");
}

TEST_F(Memory, WhoIsKeptGivesWayToOneWhoseNeedNobodyKnows) {
  Start(2, 1000, 10, 0);
  Turn(30, 30);
  const JobId kept = Run(40);
  ASSERT_EQ(EndRound(kept), PauseTier::kKeep);
  GiveBack(kept, Bytes(40, 0));
  const JobId running = Run(30);
  const JobId unknown = driver_->Submit("unknown");
  EXPECT_FALSE(driver_->worker(kept).leaving);
  driver_->Step(event::JobCommanded{running, CommandKind::kCancel, 7});
  driver_->Gone(driver_->Key(running), 0, 15);
  ASSERT_FALSE(driver_->job(unknown).assigned.empty());
  EXPECT_TRUE(driver_->worker(kept).leaving);
}

TEST_F(Memory, AJobIsNotKeptWhereTheNextOneWouldNotFit) {
  Start(2, 85, 10, 0);
  Turn(30, 30);
  EXPECT_EQ(EndRound(Run(40)), PauseTier::kPark);
}

TEST_F(Memory, AJobThatIsAwayForLongIsParkedThoughThereIsRoom) {
  Start(4, 1000, 10, 0);  // a quarter of the time: three rounds away
  for (int i = 0; i < 4; ++i) Turn(30, 30);
  EXPECT_EQ(EndRound(Run(30)), PauseTier::kPark);
}

TEST_F(Memory, AJobThatIsAwayForVeryLongIsEvicted) {
  Start(4, 0, 0, 0, 0, /*park_rounds=*/2.5);
  const JobId job = Run(30);
  EXPECT_EQ(EndRound(job), PauseTier::kEvict);
  GiveBack(job, Bytes(0, 0));
  driver_->Gone(driver_->Key(job), 75);
  EXPECT_EQ(driver_->engine().MemoryText(driver_->job(job)), "evicted to disk");
  EXPECT_EQ(driver_->job(job).failures_in_a_row, 0);
}

TEST_F(Memory, TiersAreTheSameAfterARestart) {
  Start(2, 100, 10, 0);
  Turn(30, 30);
  const JobId kept = Turn(40, 0);
  ASSERT_TRUE(driver_->worker(kept).kept_on.valid());
  driver_->Restart();
  EXPECT_TRUE(driver_->worker(kept).kept_on.valid());
  EXPECT_EQ(driver_->worker(kept).need_bytes, 40u);
}

// Nobody knows whether the process has ended and its memory is free.
TEST_F(Memory, WhereAKeptProcessIsAbandonedNobodyStarts) {
  Start(2, 100, 10, 0);
  Turn(30, 30);
  const JobId kept = Turn(40, 0);
  ASSERT_TRUE(driver_->worker(kept).kept_on.valid());
  const WorkerKey lost = driver_->Key(kept);
  driver_->Step(event::ServerLost{"here"});
  driver_->At(driver_->now + 50);
  driver_->JoinServer("here", 3, {{lost, 1, ""}});  // it sweeps
  const JobId next = Assigned();
  ASSERT_TRUE(next.valid());
  driver_->Hello(driver_->Key(next));
  driver_->Request(driver_->Key(next));
  EXPECT_EQ(driver_->worker(next).held_epoch, 0u);
  driver_->Gone(lost, 0, 9);
  driver_->Request(driver_->Key(next));
  EXPECT_NE(driver_->worker(next).held_epoch, 0u);
}

TEST_F(Memory, BeyondTheHostsBudgetTheLongestAbsentIsEvicted) {
  Start(4, 0, 0, /*host=*/70);
  const JobId first = Turn(30, 30);
  const JobId second = Turn(30, 30);
  EXPECT_FALSE(driver_->worker(first).leaving);
  Turn(30, 30);
  EXPECT_TRUE(driver_->worker(first).leaving);
  EXPECT_FALSE(driver_->worker(second).leaving);
  EXPECT_EQ(driver_->Last<PauseRequest>()->worker, driver_->Key(first));
  EXPECT_EQ(driver_->Last<PauseRequest>()->tier, PauseTier::kEvict);
  driver_->Gone(driver_->Key(first), 75);
  EXPECT_EQ(driver_->job(first).failures_in_a_row, 0);
  driver_->Restart();  // the eviction was journaled
  EXPECT_EQ(driver_->worker(first).process, ProcessState::kNone);
}

TEST_F(Memory, ContextsOfParkedProcessesCountAsUsed) {
  Start(3, /*memory=*/100, /*context=*/25, 0, /*keep_rounds=*/0);
  const JobId first = Turn(30, 30);
  const JobId second = Turn(30, 30);
  EXPECT_FALSE(driver_->worker(first).leaving);
  // Three contexts of 25, and the 30 that the third job turns out to need.
  const JobId third = Run(30);
  EXPECT_EQ(EndRound(third), PauseTier::kPark);
  GiveBack(third, Bytes(0, 30));
  // The first job is next again, so the second one has to leave.
  EXPECT_EQ(Assigned(), first);
  EXPECT_TRUE(driver_->worker(second).leaving);
  EXPECT_FALSE(driver_->worker(third).leaving);
}

TEST_F(Memory, WhoComesNextWaitsForTheMemoryOfTheEvicted) {
  Start(3, /*memory=*/100, /*context=*/25, 0, /*keep_rounds=*/0);
  for (int i = 0; i < 3; ++i) Turn(30, 30);
  JobId leaving;
  for (const JobId job : jobs_) {
    if (driver_->worker(job).leaving) leaving = job;
  }
  ASSERT_TRUE(leaving.valid());
  const JobId next = Assigned();
  ASSERT_NE(next, leaving);
  driver_->Request(driver_->Key(next));
  EXPECT_EQ(driver_->worker(next).held_epoch, 0u);
  EXPECT_THAT(driver_->Why(next), HasSubstr("has not yet released its memory"));
  driver_->Gone(driver_->Key(leaving), 75);
  driver_->Request(driver_->Key(next));
  EXPECT_NE(driver_->worker(next).held_epoch, 0u);
}

TEST_F(Memory, WhatAParkedProcessDidNotGiveBackCountsAsUsed) {
  Start(2, /*memory=*/100, /*context=*/5, 0, /*keep_rounds=*/0);
  const JobId first = Turn(30, 30);
  Turn(30, 30);
  ASSERT_EQ(Run(30), first);
  EXPECT_EQ(EndRound(first), PauseTier::kPark);
  GiveBack(first, Bytes(/*device=*/80, 30));
  EXPECT_TRUE(driver_->worker(first).leaving);
}

TEST_F(Memory, NobodyStartsBesideAProcessThatRanOutOfMemoryAndStillEnds) {
  Start(2, /*memory=*/100, /*context=*/5, 0);
  const JobId first = Run(30);
  WorkerFinished finished;
  finished.worker = driver_->Key(first);
  finished.epoch = driver_->worker(first).held_epoch;
  finished.exit_code = 1;
  finished.detail = "CUDA out of memory. Tried to allocate 20.00 GiB";
  driver_->Step(event::WorkerSaidFinished{finished});
  driver_->At(driver_->now + 1);
  const JobId second = Assigned();
  ASSERT_TRUE(second.valid() && second != first);
  driver_->Hello(driver_->Key(second));
  driver_->Request(driver_->Key(second));
  EXPECT_EQ(driver_->worker(second).held_epoch, 0u);
  EXPECT_THAT(driver_->Why(second),
              HasSubstr("has not yet released its memory"));
  driver_->Gone(finished.worker, 1);
  driver_->Request(driver_->Key(second));
  EXPECT_NE(driver_->worker(second).held_epoch, 0u);
}

// The memory that a job lacks may be held by parked processes. These end and
// the job may try again, whether it found no room at its start or ran out of
// memory in a step.
class Crowded : public Memory, public WithParamInterface<ReleaseCause> {
 protected:
  // The first job is parked, the second runs beside it.
  void SetUp() override {
    Start(2, /*memory=*/100, /*context=*/5, 0);
    parked_ = Turn(30, 30);
    job_ = Run(30);
    ASSERT_FALSE(driver_->worker(parked_).leaving);
  }
  double SpeedOf(JobId job) const {
    return driver_->engine().throughputs().Get(job, "v100").steps_per_s;
  }

  JobId parked_, job_;
};

TEST_P(Crowded, ParkedProcessesEndAndTheJobStaysOfItsType) {
  driver_->GiveBack(driver_->Key(job_), {}, GetParam());
  EXPECT_TRUE(driver_->worker(parked_).leaving);
  EXPECT_GT(SpeedOf(job_), 0);
  driver_->Gone(driver_->Key(parked_), 75);
  driver_->At(driver_->now + 1);
  const JobId next = Assigned();
  ASSERT_TRUE(next.valid());
  // Once it is alone, the job shows whether it fits.
  if (next != job_) return;
  driver_->Request(driver_->Key(job_));
  ASSERT_NE(driver_->worker(job_).held_epoch, 0u);
  driver_->GiveBack(driver_->Key(job_), {}, GetParam());
  EXPECT_EQ(SpeedOf(job_) > 0, GetParam() == ReleaseCause::kNoRoom);
}

INSTANTIATE_TEST_SUITE_P(Causes, Crowded,
                         Values(ReleaseCause::kNoRoom,
                                ReleaseCause::kOutOfMemory));

// ---- out of memory

// One server with two types of accelerators.
class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    driver_.Step(event::ServerJoined{EngineDriver::HelloOf("small", "k80")});
    JobSpec spec;
    spec.throughputs = {{"v100", 10}, {"k80", 1}};
    job_ = driver_.Submit("big", 1, spec);
  }
  std::string TypeOf() const {
    const Job& job = driver_.job(job_);
    if (job.assigned.empty()) return "none";
    return driver_.engine().cluster().accelerator(job.assigned[0]).info.type;
  }
  void FailToResume() {
    driver_.GiveBack(driver_.Key(job_), {}, ReleaseCause::kOutOfMemory);
  }
  void FailWith(const std::string& detail) {
    WorkerFinished finished;
    finished.worker = driver_.Key(job_);
    finished.epoch = driver_.worker(job_).held_epoch;
    finished.exit_code = 1;
    finished.detail = detail;
    driver_.Step(event::WorkerSaidFinished{finished});
    driver_.Gone(finished.worker, 1);
  }
  std::string Why() const { return driver_.Why(job_); }

  EngineDriver driver_{1, "max_min_fairness_perf"};
  JobId job_;
};

TEST_F(OutOfMemory, OnATypeTheJobGoesToAnotherOne) {
  driver_.Run(job_);
  ASSERT_EQ(TypeOf(), "v100");
  FailToResume();
  driver_.At(driver_.now + 1);
  EXPECT_EQ(driver_.engine().throughputs().Get(job_, "v100").steps_per_s, 0);
  EXPECT_EQ(driver_.problem.throughputs, (std::vector<double>{0, 1}));
  EXPECT_EQ(TypeOf(), "k80");
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 0);
}

TEST_F(OutOfMemory, InTheMiddleOfTrainingIsNoFailureEither) {
  driver_.Run(job_);
  FailWith("CUDA out of memory. Tried to allocate 20.00 GiB");
  driver_.At(driver_.now + 1);
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 0);
  EXPECT_EQ(TypeOf(), "k80");
}

TEST_F(OutOfMemory, AnotherFailureThatIsToldStaysOne) {
  driver_.Run(job_);
  FailWith("the data set is damaged");
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
  EXPECT_EQ(TypeOf(), "v100");
}

TEST_F(OutOfMemory, EverywhereItWaitsAndSaysWhy) {
  driver_.Run(job_);
  FailToResume();
  driver_.At(driver_.now + 1);
  WorkerKey key = driver_.Key(job_);
  if (driver_.worker(job_).leaving) {
    driver_.Gone(key, 75);
    key = driver_.Key(job_);
  }
  driver_.Hello(key);
  driver_.Request(key);
  ASSERT_EQ(TypeOf(), "k80");
  FailToResume();
  driver_.At(driver_.now + 1);
  EXPECT_EQ(TypeOf(), "none");
  EXPECT_EQ(driver_.job(job_).state, JobState::kActive);
  EXPECT_THAT(Why(), HasSubstr("ran out of memory on v100, k80"));
  EXPECT_THAT(Why(), HasSubstr("gavel release 1"));
  // The exclusion lasts through a restart, until the user releases the job.
  driver_.Restart();
  EXPECT_THAT(Why(), HasSubstr("ran out of memory"));
  driver_.Step(event::JobCommanded{job_, CommandKind::kRelease, 1});
  EXPECT_EQ(driver_.LastReply(), "");
  driver_.At(driver_.now + 1);
  EXPECT_EQ(TypeOf(), "v100");
}

}  // namespace
}  // namespace gavel
