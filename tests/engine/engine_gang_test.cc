// Gangs: rank 0 first, then the others, at its store; and what happens when one
// of them is lost, or they never meet.

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class Gang : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Gang() : driver_(kRanks) {
    JobSpec spec;
    spec.retries_max = 3;
    job_ = driver_.Submit("gang", kRanks, spec);
  }

  std::string Why() const { return driver_.Why(job_); }
  WorkerKey Key(int rank) const { return driver_.Key(job_, rank); }
  const Worker& WorkerOf(int rank) const {
    return driver_.job(job_).workers.at(static_cast<size_t>(rank));
  }
  void JoinAll() {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (WorkerOf(rank).process == ProcessState::kLaunching) {
        driver_.Hello(Key(rank));
      }
    }
  }
  // Rank 0 renews, and says where its store is.
  void Open(const std::string& address = "10.0.0.7:4100") {
    driver_.Request(Key(0), /*holding=*/true, 0, address);
  }
  void Start() {
    JoinAll();
    driver_.Request(Key(0));
    Open();
    for (int rank = 1; rank < kRanks; ++rank) driver_.Request(Key(rank));
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(WorkerOf(rank).held_epoch, driver_.job(job_).epoch);
    }
  }
  void Report(int rank, uint64_t steps_done) {
    Progress progress;
    progress.steps_done = steps_done;
    progress.throughput_steps_per_s = 1;
    progress.window_s = 1;
    driver_.Step(
        event::StepsReported{Key(rank), WorkerOf(rank).held_epoch, progress});
  }
  void GiveBack(int rank, ReleaseCause cause) {
    driver_.GiveBack(Key(rank), WorkerOf(rank).progress, cause);
  }
  // A start that fails at rank 1: all give back.
  void FailToMeet() {
    JoinAll();
    driver_.Request(Key(0));
    Open();
    for (int rank = 1; rank < kRanks; ++rank) driver_.Request(Key(rank));
    for (const int rank : {1, 0, 2}) {
      if (WorkerOf(rank).held_epoch == 0) continue;
      GiveBack(rank, ReleaseCause::kResumeFailed);
    }
  }
  void ExpectNothingHeld() const { EXPECT_FALSE(driver_.job(job_).HoldsAny()); }

  EngineDriver driver_;
  JobId job_;
};

TEST_F(Gang, TheOtherRanksWaitForRankZerosStore) {
  JoinAll();
  driver_.Request(Key(1));
  driver_.Request(Key(0));
  EXPECT_EQ(driver_.Count<LeaseGrant>(), 1);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(0));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->gang_address, "");
  driver_.Request(Key(1));
  EXPECT_EQ(driver_.Count<LeaseGrant>(), 1);
  EXPECT_EQ(driver_.Last<LeaseDenied>()->worker, Key(1));
  EXPECT_LT(driver_.Last<LeaseDenied>()->retry_after_s, 1);

  const int notices = driver_.Count<LeaseNotice>();
  Open();
  EXPECT_EQ(driver_.Count<LeaseNotice>(), notices + kRanks - 1);
  driver_.Request(Key(2));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(2));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->gang_address, "10.0.0.7:4100");
  EXPECT_EQ(driver_.Last<LeaseGrant>()->world_size, kRanks);
}

TEST_F(Gang, ItsRanksAreToldTheirPlacesAsTorchrunSays) {
  driver_.JoinServer("there", 1);
  const JobId wide = driver_.Submit("wide", 2);
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel, 1});
  const JobId spread = driver_.Submit("spread", 4);
  for (int rank = 0; rank < kRanks; ++rank) driver_.Gone(Key(rank), 75);
  driver_.At(driver_.engine().round_ends_at());
  std::map<int, std::map<std::string, std::string>> told;
  for (const Action& action : driver_.actions) {
    const auto* launch = EngineDriver::MessageIn<LaunchWorker>(action);
    if (launch == nullptr || launch->worker.job != spread) continue;
    for (const auto& [name, value] : launch->environment) {
      told[launch->worker.rank][name] = value;
    }
    told[launch->worker.rank]["server"] = launch->server;
  }
  ASSERT_EQ(told.size(), 4) << wide.value();
  std::map<std::string, int> on_server;
  std::map<std::string, std::string> group;
  for (auto& [rank, environment] : told) {
    const std::string& server = environment["server"];
    EXPECT_EQ(environment["LOCAL_RANK"], StrCat(on_server[server]++)) << rank;
    group.try_emplace(server, StrCat(group.size()));
    EXPECT_EQ(environment["GROUP_RANK"], group[server]) << rank;
  }
  EXPECT_EQ(on_server.size(), 2);
  for (auto& [rank, environment] : told) {
    EXPECT_EQ(environment["LOCAL_WORLD_SIZE"],
              StrCat(on_server[environment["server"]]));
  }
}

TEST_F(Gang, TheAddressIsToldOnceHoweverOftenItIsHeard) {
  JoinAll();
  driver_.Request(Key(0));
  Open();
  const int notices = driver_.Count<LeaseNotice>();
  Open();
  EXPECT_EQ(driver_.Count<LeaseNotice>(), notices);
}

TEST_F(Gang, OnlyRankZeroOfThePresentEpochOpensIt) {
  JoinAll();
  driver_.Request(Key(0));
  LeaseRequest request;
  request.worker = Key(0);
  request.holding = true;
  request.gang_address = "10.0.0.7:4100";
  request.epoch = driver_.job(job_).epoch - 1;
  request.nonce = ++driver_.nonce;
  driver_.Step(event::LeaseRequested{request});
  driver_.Request(Key(1));
  EXPECT_EQ(driver_.Count<LeaseGrant>(), 2);  // rank 0's, twice
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(0));
}

TEST_F(Gang, ACoordinatorThatStartsAgainHearsTheAddressAgain) {
  JoinAll();
  driver_.Request(Key(0));
  Open();
  driver_.Request(Key(1));
  driver_.Restart();
  // Rank 1's grant was lost with the old coordinator: it has no address.
  driver_.actions.clear();
  driver_.Request(Key(1));
  driver_.Request(Key(2));
  EXPECT_EQ(driver_.Count<LeaseGrant>(), 0);
  EXPECT_EQ(driver_.Count<LeaseDenied>(), 2);
  Open("10.0.0.7:4100");
  driver_.Request(Key(1));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(1));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->gang_address, "10.0.0.7:4100");
  driver_.Request(Key(2));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(2));
}

TEST_F(Gang, RunsOnThroughARestartOfTheCoordinator) {
  Start();
  driver_.Restart();
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    driver_.Request(Key(rank), /*holding=*/true);
    EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, Key(rank));
  }
  EXPECT_EQ(driver_.Count<PauseRequest>(), 0);
}

TEST_F(Gang, ARankZeroThatDiesBeforeItReportsStartsAgain) {
  JoinAll();
  driver_.Request(Key(0));
  const WorkerKey dead = Key(0);
  driver_.Gone(dead, 0, 9);
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
  // All start again from the same generation.
  for (const int rank : {1, 2}) driver_.Gone(Key(rank), 75);
  EXPECT_NE(Key(0), dead);
  Start();
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
}

TEST_F(Gang, ARankZeroThatNeverOpensItsStoreIsKilled) {
  JoinAll();
  driver_.Request(Key(0));
  const double timeout_s = driver_.engine().options().gang_timeout_s;
  const Time began = driver_.now;
  for (Time at = began; at < began + timeout_s; at += 5) {
    driver_.At(at);
    driver_.Request(Key(0), /*holding=*/true);
    EXPECT_EQ(driver_.Count<StopWorker>(), 0) << at;
  }
  driver_.At(began + timeout_s + 1);
  ASSERT_GE(driver_.Count<StopWorker>(), 1);
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, Key(0));
  EXPECT_EQ(driver_.Last<StopWorker>()->grace_s, 0);
  driver_.Gone(Key(0), 0, 9);
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
}

TEST_F(Gang, AMeetingThatFailsEndsInNoHalfGang) {
  JoinAll();
  driver_.Request(Key(0));
  Open();
  driver_.Request(Key(1));
  const uint64_t epoch = driver_.job(job_).epoch;
  GiveBack(1, ReleaseCause::kResumeFailed);
  EXPECT_GT(driver_.job(job_).epoch, epoch);
  EXPECT_EQ(driver_.Last<PauseRequest>()->worker, Key(0));
  EXPECT_EQ(driver_.Last<PauseRequest>()->epoch, epoch);
  // No grant of the new epoch while rank 0 has not given the old one back.
  const int grants = driver_.Count<LeaseGrant>();
  for (const int rank : {1, 2}) driver_.Request(Key(rank));
  EXPECT_EQ(driver_.Count<LeaseGrant>(), grants);
  GiveBack(0, ReleaseCause::kPaused);
  ExpectNothingHeld();
  Start();
  EXPECT_THAT(Why(), HasSubstr("running"));
}

// Its ranks stop some time before their lease ends, and would do so again.
TEST_F(Gang, IsNotStartedForTheLastOfARound) {
  driver_.Submit("other", kRanks);
  Start();
  driver_.now = driver_.engine().round_ends_at() - 0.9;
  for (const int rank : {0, 1, 2}) GiveBack(rank, ReleaseCause::kPaused);
  driver_.Request(Key(0));
  ExpectNothingHeld();
  EXPECT_EQ(driver_.Last<LeaseDenied>()->worker, Key(0));
}

TEST_F(Gang, ThatFailsToMeetSaysSo) {
  FailToMeet();
  ExpectNothingHeld();
  EXPECT_EQ(driver_.job(job_).failed_starts, 1);
  EXPECT_THAT(Why(), HasSubstr("did not come together 1 times in a row, it is "
                               "held after 3"));
}

TEST_F(Gang, ThatNeverMeetsIsHeldInTheEnd) {
  for (int i = 0; i < 3; ++i) FailToMeet();
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
  ExpectNothingHeld();
  EXPECT_THAT(Why(), HasSubstr("did not come together 3 times"));
  EXPECT_THAT(Why(), HasSubstr("gavel release 1"));
  for (int rank = 0; rank < kRanks; ++rank) driver_.Gone(Key(rank), 75);
  driver_.Step(event::JobCommanded{job_, CommandKind::kRelease, 1});
  Start();
}

TEST_F(Gang, ThatRanInBetweenStartsCountingAgain) {
  uint64_t steps = 0;
  for (int i = 0; i < 5; ++i) {
    FailToMeet();
    Start();
    Report(0, steps += 10);
    for (const int rank : {0, 1, 2}) GiveBack(rank, ReleaseCause::kPaused);
  }
  EXPECT_EQ(driver_.job(job_).state, JobState::kActive);
  EXPECT_EQ(driver_.job(job_).failed_starts, 0);
}

TEST_F(Gang, FailedStartsAreCountedThroughARestart) {
  FailToMeet();
  FailToMeet();
  driver_.Restart();
  EXPECT_EQ(driver_.job(job_).failed_starts, 2);
  FailToMeet();
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
}

// ---- broken gangs

TEST_F(Gang, ADeathCountsOnceWhoeverIsHeardFirst) {
  for (const bool victim_first : {true, false}) {
    driver_.Step(event::JobCommanded{job_, CommandKind::kCancel, 1});
    for (int rank = 0; rank < kRanks; ++rank) {
      if (WorkerOf(rank).process != ProcessState::kNone) {
        driver_.Gone(Key(rank), 75);
      }
    }
    job_ = driver_.Submit("again", kRanks);
    Start();
    const WorkerKey victim = Key(1);
    const WorkerKey mourner = Key(0);
    const WorkerKey last = Key(2);
    if (victim_first) {
      driver_.Gone(victim, 0, 11);
      driver_.Gone(mourner, 75);
    } else {
      driver_.Gone(mourner, 75);  // its gang is broken: nobody asked it to
      driver_.Gone(victim, 0, 11);
    }
    EXPECT_EQ(driver_.Last<StopWorker>()->worker, last);
    driver_.Gone(last, 75);
    EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1) << victim_first;
    Start();
    EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
  }
}

// The first left unasked, which counts; that the second was killed does not
// count once more.
TEST_F(Gang, WhoIsKilledForTheRestartHasNotFailed) {
  Start();
  driver_.Gone(Key(0), 75);
  WorkerExited exit = driver_.ExitOf(job_, 1);
  exit.signal = 9;
  exit.stopped = true;  // by its agent, as it was told
  driver_.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 0);
  driver_.Gone(Key(2), 75);
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
}

TEST_F(Gang, ThatARankLeavesUnaskedAsItsServerWasLostHasNotFailed) {
  Start();
  driver_.Gone(Key(0), 75);
  WorkerExited exit = driver_.ExitOf(job_, 1);
  exit.signal = 9;
  exit.no_failure = true;
  driver_.Step(event::WorkerGone{exit});
  driver_.Gone(Key(2), 75);
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 0);
}

TEST_F(Gang, WhoseRanksLeaveUnaskedAgainAndAgainIsHeld) {
  for (int i = 0; i < 3; ++i) {
    Start();
    for (const int rank : {1, 0, 2}) driver_.Gone(Key(rank), 75);
  }
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
  EXPECT_THAT(Why(), HasSubstr("exit code 75, which nobody had asked for"));
}

TEST_F(Gang, StartsAgainOnlyWhenAllOldProcessesAreGone) {
  Start();
  const int launches = driver_.Count<LaunchWorker>();
  const WorkerKey old = Key(1);
  driver_.Gone(old, 0, 11);
  driver_.Gone(Key(0), 75);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), launches);
  driver_.Gone(Key(2), 75);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), launches + kRanks);
}

TEST_F(Gang, ThatBreaksAgainAndAgainIsHeld) {
  for (int i = 0; i < 3; ++i) {
    Start();
    driver_.Gone(Key(2), 75);
    driver_.Gone(Key(1), 3);
    driver_.Gone(Key(0), 75);
  }
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
  EXPECT_THAT(Why(), HasSubstr("failed 3 times in a row"));
  EXPECT_THAT(Why(), HasSubstr("exit code 3"));
}

}  // namespace
}  // namespace gavel
