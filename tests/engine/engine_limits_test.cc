// How long workers may take to start and to leave, and how programs that never
// speak are reported.
#include <variant>

#include "coordinator/engine/job.h"
#include "core/text.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class WorkerLimits : public ::testing::Test {
 protected:
  WorkerLimits()
      : driver_(1, "fifo", [](EngineOptions& options) {
          options.round_duration_s = 1000;
          options.launch_timeout_s = 120;
          options.pause_grace_s = 30;
          options.stop_grace_s = 7;
          options.agent_timeout_s = kNever;
        }) {
    driver_.now = 1;
  }

  void Speak(const WorkerKey& key) {
    WorkerHello hello;
    hello.worker = key;
    hello.ready = false;
    driver_.Step(event::WorkerJoined{hello});
  }

  // Moves bytes every ten seconds until `time`; with no bytes the worker is
  // stuck.
  void MoveBytesUntil(Time time, uint64_t bytes_each = 1'000'000) {
    while (driver_.now < time) {
      driver_.At(driver_.now + 10);
      bytes_ += bytes_each;
      driver_.Step(event::WorkerBusy{{key_, {}, bytes_}});
    }
  }

  void Submit(JobSpec spec = {}) {
    job_ = driver_.Submit("a", 1, std::move(spec));
    key_ = driver_.Key(job_);
  }

  void StopsAndExits(int signal) {
    WorkerExited exit = driver_.ExitOf(job_);
    exit.signal = signal;
    exit.stopped = true;
    driver_.Step(event::WorkerGone{exit});
    key_ = driver_.Key(job_);
  }

  int Stops() const { return driver_.Count<StopWorker>(); }

  EngineDriver driver_;
  JobId job_;
  WorkerKey key_;
  uint64_t bytes_ = 0;
};

TEST_F(WorkerLimits, WhyTellsOfAStartThatGivesNoSign) {
  Submit();
  const auto why = [&] { return driver_.Why(job_); };
  driver_.At(driver_.now + 20);
  EXPECT_EQ(why(), "starting on here");
  driver_.At(driver_.now + 60);
  EXPECT_THAT(why(), HasSubstr("for 80 s its process has given no sign"));
  EXPECT_THAT(why(), HasSubstr("ended after 120 s"));
  driver_.Step(event::WorkerBusy{{key_, {}, 1000}});
  EXPECT_EQ(why(), "starting on here");
}

TEST_F(WorkerLimits, AProgramThatSpeaksAtOnceStartsItsLimitThen) {
  Submit();
  driver_.At(100);
  Speak(key_);
  EXPECT_EQ(driver_.Last<LeaseNotice>()->worker, key_);
  driver_.At(210);
  EXPECT_EQ(Stops(), 0);
  driver_.At(222);
  EXPECT_EQ(Stops(), 1);
}

TEST_F(WorkerLimits, ASpeakingProgramIsNotLaunchedAgainAndGetsNoLease) {
  Submit();
  driver_.At(7);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 2);  // the first may have been lost
  Speak(key_);
  driver_.At(60);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 2);
  driver_.Request(key_);
  EXPECT_EQ(driver_.worker(job_).held_epoch, 0u);
  driver_.Hello(key_);
  driver_.Request(key_);
  EXPECT_NE(driver_.worker(job_).held_epoch, 0u);
}

TEST_F(WorkerLimits, BytesPutOffTheLimitOnStarting) {
  Submit();
  Speak(key_);
  MoveBytesUntil(1001);
  EXPECT_EQ(Stops(), 0);
  MoveBytesUntil(1111, 0);
  EXPECT_EQ(Stops(), 0);
  MoveBytesUntil(1131, 0);
  EXPECT_GT(Stops(), 0);
}

TEST_F(WorkerLimits, BytesBuyFourHoursAndNoMore) {
  Submit();
  Speak(key_);
  MoveBytesUntil(kBusy_s_max);
  EXPECT_EQ(Stops(), 0);
  MoveBytesUntil(kBusy_s_max + 150);
  EXPECT_GT(Stops(), 0);
}

TEST_F(WorkerLimits, ACheckpointThatIsBeingWrittenIsNotKilled) {
  Submit();
  driver_.Run(job_);
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel, 1});
  driver_.GiveBack(job_);
  MoveBytesUntil(3001);
  EXPECT_EQ(Stops(), 0);
  MoveBytesUntil(3041, 0);
  EXPECT_GT(Stops(), 0);
}

TEST_F(WorkerLimits, OfAJobCountMore) {
  JobSpec spec;
  spec.start_timeout_s = 400;
  spec.pause_grace_s = 300;
  Submit(spec);
  driver_.At(390);
  EXPECT_EQ(Stops(), 0);
  driver_.Run(job_);
  driver_.Step(event::JobCommanded{job_, CommandKind::kHold, 1});
  driver_.GiveBack(job_);
  driver_.At(680);
  EXPECT_EQ(Stops(), 0);
  driver_.At(700);
  EXPECT_GT(Stops(), 0);
}

TEST_F(WorkerLimits, AProgramThatNeverSpokeIsToldAndHeldAfterItsFirstStart) {
  Submit();
  driver_.At(driver_.now + 125);
  EXPECT_GT(Stops(), 0);
  StopsAndExits(15);
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
  EXPECT_THAT(driver_.Why(job_),
              HasSubstr("does not link the runtime; set class = \"opaque\""));
}

TEST_F(WorkerLimits, AProgramThatSpokeAndIsNotReadyIsToldTheLimit) {
  Submit();
  for (int i = 0; i < 3; ++i) {
    Speak(key_);
    driver_.At(driver_.now + 125);
    StopsAndExits(15);
  }
  EXPECT_TRUE(
      std::holds_alternative<reason::HeldUnready>(driver_.job(job_).reason));
  EXPECT_THAT(driver_.Why(job_),
              HasSubstr("not ready to train after 120 s in which it read and "
                        "wrote nothing; raise its start_timeout_s"));
}

TEST_F(WorkerLimits, WhoSpokeIsKnownAfterARestart) {
  Submit();
  Speak(key_);
  driver_.Restart();
  EXPECT_TRUE(driver_.worker(job_).spoke);
}

// Jobs of other users can't read a LibTorch in root's home.
TEST(HeldAfterFailures, ALibraryThatCannotBeReadHasItsRemedy) {
  reason::HeldFailures held{JobId(4), 3, 127};
  held.last_error =
      "./train: error while loading shared libraries: libtorch.so: cannot open "
      "shared object file: Permission denied";
  EXPECT_THAT(RenderReason(held),
              HasSubstr("see that the job's user can read the library"));
  held.last_error = "ValueError: no such layer";
  EXPECT_THAT(RenderReason(held), ::testing::Not(HasSubstr("library")));
}

// A launch that never reaches exec.
class HungLaunch : public ::testing::Test {
 protected:
  void ReportHung(JobId job) {
    WorkerExited exit = driver_.ExitOf(job);
    exit.launch_hung = true;
    exit.launch_error = "/mnt/hung: did not answer in 10 s";
    driver_.Step(event::WorkerGone{exit});
  }
  EngineDriver driver_{
      2, "fifo", [](EngineOptions& options) { options.agent_timeout_s = 20; }};
};

TEST_F(HungLaunch, IsTriedOnceMoreAndThenHeldWithTheReason) {
  const JobId job = driver_.Submit("a");
  ReportHung(job);
  EXPECT_EQ(driver_.job(job).state, JobState::kActive);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.incarnation, 2u);
  EXPECT_EQ(driver_.job(job).failures_in_a_row, 0);
  ReportHung(job);
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver_.Why(job),
              HasSubstr("on here: /mnt/hung: did not answer"));
  driver_.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_EQ(driver_.job(job).hung_launches, 0);
}

TEST_F(HungLaunch, AProgramThatSpokeInBetweenHasAnotherTry) {
  const JobId job = driver_.Submit("a");
  ReportHung(job);
  driver_.Hello(driver_.Key(job));
  driver_.Gone(driver_.Key(job), kExitEvicted);
  ReportHung(job);
  EXPECT_EQ(driver_.job(job).state, JobState::kActive);
}

// The launch hangs and its agents are lost over it, one after the other; the
// job is held before a third agent is lost.
TEST_F(HungLaunch, CountsWhereItsAgentIsLostMeanwhile) {
  driver_.JoinServer("there", 1);
  driver_.JoinServer("yonder", 1);
  const JobId job = driver_.Submit("a");
  const std::string first = driver_.worker(job).server;
  const auto beat_but = [&](const std::set<std::string>& lost) {
    for (int i = 0; i < 10; ++i) {
      driver_.At(driver_.now + 5);
      for (const std::string server : {"here", "there", "yonder"}) {
        if (!lost.contains(server)) {
          driver_.Step(event::AgentHeard{{server, 1, {1, 1}}});
        }
      }
    }
  };
  beat_but({first});
  ASSERT_EQ(driver_.job(job).state, JobState::kActive);
  const std::string second = driver_.worker(job).server;
  EXPECT_NE(second, first);
  beat_but({first, second});
  EXPECT_EQ(driver_.job(job).state, JobState::kHeld);
  EXPECT_THAT(driver_.Why(job), HasSubstr("its agent was lost meanwhile"));
}

TEST_F(HungLaunch, AJobThatRunsIsNotBlamedForItsAgent) {
  driver_.JoinServer("there", 1);
  const JobId job = driver_.Submit("a");
  driver_.Run(job);
  driver_.At(100);
  EXPECT_EQ(driver_.job(job).hung_launches, 0);
}

// Each start of a lease is a row in the journal, and a worker may give its
// lease back as soon as it has it, as often as it likes.
TEST_F(WorkerLimits, ALeaseThatIsAlwaysGivenBackBeginsAsOftenAsIsAllowed) {
  Submit();
  driver_.Hello(key_);
  const auto cycle = [&] {
    const int before = driver_.Count<LeaseGrant>();
    driver_.Request(key_);
    driver_.GiveBack(job_);
    return driver_.Count<LeaseGrant>() - before;
  };
  for (int i = 0; i < kLeaseStartsMax; ++i) EXPECT_EQ(cycle(), 1) << i;
  EXPECT_EQ(cycle(), 0);
  EXPECT_GT(driver_.Last<LeaseDenied>()->retry_after_s, 0);
  driver_.At(driver_.now + kLeaseStartsWindow_s);
  EXPECT_EQ(cycle(), 1);
}

// Pauses and moves are counted for the job, from the journal.
TEST(Stays, CountOverProcessesAndRestarts) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("a");
  driver.Run(job);
  driver.MoveByLoss(job);  // gives its lease back, and starts elsewhere
  EXPECT_EQ(driver.job(job).stays.pauses(), 1u);
  EXPECT_EQ(driver.job(job).stays.moves(), 1u);
  Progress told;
  told.pausing_s = 3;
  driver.GiveBack(job, told);
  driver.Gone(driver.Key(job), kExitEvicted);
  driver.Run(job);
  told.pausing_s = 2;
  driver.GiveBack(job, told);
  for (const bool restarted : {false, true}) {
    if (restarted) driver.Restart();
    EXPECT_EQ(driver.job(job).stays.pauses(), 3u);
    EXPECT_EQ(driver.job(job).stays.moves(), 1u);
    EXPECT_EQ(driver.job(job).stays.pausing_s(), 5);
  }
}

TEST_F(WorkerLimits, OneThatNeverSpokeIsStoppedWhenItsJobIsCancelled) {
  JobSpec spec;
  spec.pause_grace_s = 3600;
  Submit(spec);
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel});
  ASSERT_EQ(Stops(), 1);
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, key_);
  EXPECT_EQ(driver_.Last<StopWorker>()->grace_s, 7);
}

TEST_F(WorkerLimits, ACancelledJobHasNoLimitOfItsOwnToLeave) {
  JobSpec spec;
  spec.pause_grace_s = 3600;
  Submit(spec);
  driver_.Run(job_);
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel});
  driver_.GiveBack(job_);
  driver_.At(driver_.now + 29);
  EXPECT_EQ(Stops(), 0);
  driver_.At(driver_.now + 2);
  EXPECT_EQ(Stops(), 1);
}

// Otherwise the silent job would be first in line for ever, and no other job
// would run.
TEST(StartsCount, AsTimeReceivedAlsoOfAProgramThatNeverSpeaks) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.launch_timeout_s = 3600;
    options.agent_timeout_s = kNever;
  });
  const JobId silent = driver.Submit("silent");
  driver.At(50);
  const JobId honest = driver.Submit("honest");
  // The process is ended when the job loses its place.
  const auto end_silent = [&] {
    if (driver.worker(silent).leaving) driver.Gone(driver.Key(silent), 0, 15);
  };
  for (int round = 0; round < 9; ++round) {
    driver.At(driver.engine().round_ends_at());
    end_silent();
  }
  for (int round = 0; round < 6; ++round) {
    end_silent();
    if (!driver.job(honest).assigned.empty()) {
      if (driver.worker(honest).process == ProcessState::kLaunching) {
        driver.Hello(driver.Key(honest));
      }
      driver.Request(driver.Key(honest), driver.worker(honest).held_epoch != 0);
    }
    driver.EndRound();
  }
  const double received =
      driver.engine().ReceivedOf(honest, driver.now).total_s;
  EXPECT_GT(received, 0.4 * (driver.now - 50));
  EXPECT_GE(driver.job(silent).received_s, 300);  // all that it had
}

}  // namespace
}  // namespace gavel
