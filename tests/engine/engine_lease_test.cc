// Tests leases: which workers are granted one and when, and which are not
// (docs/protocol.md).
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

TEST(Lease, IsGrantedOnlyAfterItsEventIsOnDisk) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Hello(driver.Key(job));
  driver.hold_disk = true;
  driver.Request(driver.Key(job));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 0);
  driver.Persist();
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
}

TEST(Lease, IsNotGrantedToASecondRequestBeforeThatEither) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Hello(driver.Key(job));
  driver.hold_disk = true;
  driver.Request(driver.Key(job));
  driver.Request(driver.Key(job));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 0);
  driver.Persist();
  EXPECT_EQ(driver.Last<LeaseGrant>()->nonce, driver.nonce);
}

TEST(Lease, DenialNamesNoEpochThatIsNotOnDisk) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("gang", 2);
  driver.Hello(driver.Key(job, 0));
  driver.hold_disk = true;
  driver.Submit("b");  // any row on its way
  driver.Request(driver.Key(job, 0));
  EXPECT_EQ(driver.Count<LeaseDenied>(), 0);
  driver.Persist();
  EXPECT_EQ(driver.Count<LeaseDenied>(), 1);
}

TEST(Lease, IsRenewedWithoutWaitingForTheDisk) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.hold_disk = true;
  driver.Submit("b");  // a row that is stuck on its way to the disk
  driver.now += 3;
  driver.Request(key, /*holding=*/true);
  EXPECT_EQ(driver.Count<LeaseGrant>(), 2);
}

TEST(Lease, TellsHowLongBeforeItsEndItWouldBeExtended) {
  EngineDriver driver;  // rounds of 100 s, planned 5 s ahead; leases of 10 s
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const auto lead_s = [&] {
    return driver.Last<LeaseGrant>()->extension_lead_s;
  };
  const auto renew = [&](Time at) {
    driver.At(at);
    driver.Request(key, /*holding=*/true);
  };
  EXPECT_DOUBLE_EQ(lead_s(), 20.0 / 3) << "by its renewal";
  const Time end = driver.engine().round_ends_at();
  for (Time at = driver.now + 4; at < end - 8; at += 4) renew(at);
  renew(end - 8);
  EXPECT_DOUBLE_EQ(driver.Last<LeaseGrant>()->duration_s, 8);
  EXPECT_DOUBLE_EQ(lead_s(), 5) << "when the next round is planned";
  renew(end - 4);
  EXPECT_DOUBLE_EQ(lead_s(), 20.0 / 3) << "it goes on in the next round";
}

TEST(Lease, CarriesTheNonceOfItsRequest) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.nonce = 41;
  driver.Run(job);
  EXPECT_EQ(driver.Last<LeaseGrant>()->nonce, 42u);
}

TEST(Lease, AnOldNonceIsNotAnswered) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.nonce = 0;  // a request that was under way for long
  driver.Request(key);
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
  EXPECT_EQ(driver.Count<LeaseDenied>(), 0);
}

TEST(Lease, GoesNoFurtherThanTheRound) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId first = driver.Submit("a");
  driver.Submit("b");  // somebody waits, so the round's end means something
  const WorkerKey key = driver.Run(first);
  driver.now = driver.engine().round_ends_at() - 6;
  driver.Request(key, /*holding=*/true);
  EXPECT_NEAR(driver.Last<LeaseGrant>()->duration_s, 6, 1e-9);
}

TEST(Lease, GoesOnIntoTheNextRoundOnceThatIsPlanned) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.At(driver.engine().round_ends_at() - 4);  // within the lead
  driver.Request(key, /*holding=*/true);
  EXPECT_NEAR(driver.Last<LeaseGrant>()->duration_s, 10, 1e-9);
  EXPECT_GE(driver.Count<LeaseNotice>(), 1);
}

// The plan for the next round is taken back, so a renewal is shorter than the
// one before. If the shorter one is lost, the worker trains on under the one
// before.
TEST(Lease, IsNotOverBeforeItsLongestGrantIs) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.At(driver.engine().round_ends_at() - 4);  // within the lead
  driver.Request(key, /*holding=*/true);
  const double granted_s = driver.Last<LeaseGrant>()->duration_s;
  const Time until = driver.now + granted_s;
  driver.Submit("b");
  driver.now += 1;
  driver.Request(key, /*holding=*/true);
  ASSERT_LT(driver.Last<LeaseGrant>()->duration_s, granted_s - 1);
  EXPECT_GE(driver.job(job).workers[0].lease_expires, until);
}

TEST(Lease, ThatEndsForAnotherJobSaysWhichAndWhatItsJobHasReceived) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  const WorkerKey key = driver.Run(first);
  const AcceleratorId place = driver.worker(first).held;
  driver.At(driver.engine().round_ends_at() - 1);
  driver.Request(key, /*holding=*/true);
  driver.EndRound();
  ASSERT_THAT(driver.job(first).assigned, IsEmpty());
  ASSERT_EQ(driver.job(second).assigned, std::vector{place});
  const std::string why =
      driver.engine().WhyPaused(driver.job(first), 0, place, driver.now);
  EXPECT_THAT(why, HasSubstr("paused: preempted by job 2, its share is "
                             "exhausted ("));
  EXPECT_THAT(why, HasSubstr("target 50 %"));
  driver.Step(event::JobCommanded{first, CommandKind::kHold, 1});
  EXPECT_THAT(
      driver.engine().WhyPaused(driver.job(first), 0, place, driver.now),
      HasSubstr("held: by `gavel hold`"));
}

TEST(Lease, ThatEndsForAMoveSaysWhereToAndWhy) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("a");
  driver.Run(job);
  const AcceleratorId before = driver.worker(job).held;
  const Accelerator lost = driver.engine().cluster().accelerator(before);
  driver.Step(event::AcceleratorLost{lost.server, lost.info.uuid});
  driver.At(driver.now + 1);
  ASSERT_EQ(driver.job(job).assigned.size(), 1u);
  const AcceleratorId after = driver.job(job).assigned[0];
  ASSERT_NE(after, before);
  const Engine& engine = driver.engine();
  EXPECT_EQ(engine.WhyPaused(driver.job(job), 0, before, driver.now),
            "paused: to move to here/here-1: here/here-0 has failed");
  EXPECT_EQ(engine.WhyMoved(driver.job(job), before, after, driver.now),
            "moved from here/here-0 to here/here-1: here/here-0 has failed");
}

TEST(Lease, OfAnOldIncarnationIsRefused) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey old = driver.Run(job);
  driver.Gone(old, 0, 9);
  ASSERT_NE(driver.Key(job), old);
  driver.Request(old, /*holding=*/true);
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
  EXPECT_EQ(driver.Last<WorkerRejected>()->worker, old);
}

TEST(Lease, OfANewIncarnationHasANewEpoch) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  driver.Gone(driver.Run(job), 0, 9);
  const uint64_t before = driver.Last<LeaseGrant>()->epoch;
  driver.Run(job);
  EXPECT_GT(driver.Last<LeaseGrant>()->epoch, before);
}

TEST(Lease, GivenUpByItsWorkerIsNotGrantedAtTheSameEpochAgain) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const uint64_t epoch = driver.Last<LeaseGrant>()->epoch;
  driver.GiveBack(job);
  driver.Request(key, false, epoch);
  EXPECT_GT(driver.Last<LeaseGrant>()->epoch, epoch);
}

TEST(Lease, ALostReleaseIsRepairedByTheNextRequest) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const uint64_t epoch = driver.Last<LeaseGrant>()->epoch;
  driver.Request(key, false, epoch);  // LeaseReleased never came
  EXPECT_GT(driver.Last<LeaseGrant>()->epoch, epoch);
}

TEST(Lease, AGrantThatWasLostIsGivenAgain) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.Request(key);  // not holding, and nothing given up: it never came
  EXPECT_EQ(driver.Count<LeaseGrant>(), 2);
  EXPECT_EQ(driver.rows.back().seq, driver.Last<LeaseGrant>()->position.seq);
}

TEST(Lease, OfAGangWaitsForAllRanks) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("gang", 2);
  driver.Hello(driver.Key(job, 0));
  driver.Request(driver.Key(job, 0));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 0);
  driver.Hello(driver.Key(job, 1));
  driver.Request(driver.Key(job, 0));
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
}

TEST(Lease, ThatRanOutKeepsItsAcceleratorUntilTheProcessIsGone) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  const WorkerKey silent = driver.Run(first);
  driver.At(driver.engine().round_ends_at() + 60);  // never heard again
  driver.Hello(driver.Key(second));
  driver.Request(driver.Key(second));
  EXPECT_EQ(driver.Last<LeaseGrant>()->worker.job, first);
  EXPECT_EQ(driver.Last<StopWorker>()->worker, silent);
  driver.Gone(silent, 0, 9);
  driver.Request(driver.Key(second));
  EXPECT_EQ(driver.Last<LeaseGrant>()->worker.job, second);
}

TEST(Lease, OfAPausedWorkerThatFallsSilentIsFollowedByItsEnd) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.GiveBack(job);
  driver.At(driver.now + driver.engine().options().launch_timeout_s + 1);
  EXPECT_EQ(driver.Last<StopWorker>()->worker, key);
}

TEST(Lease, OfAGangEndsForAllWhenOneRankLeavesWithoutFailing) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("gang", 2);
  for (int rank : {0, 1}) driver.Hello(driver.Key(job, rank));
  driver.Request(driver.Key(job, 0));
  driver.Request(driver.Key(job, 0), /*holding=*/true, 0, "here:4100");
  driver.Request(driver.Key(job, 1));
  const WorkerKey other = driver.Key(job, 1);
  driver.Gone(driver.Key(job, 0), 75);
  EXPECT_EQ(driver.Last<StopWorker>()->worker, other);
  EXPECT_EQ(driver.job(job).failures_in_a_row, 0);
}

TEST(Position, AWorkerThatHasSeenALaterJournalStopsTheCoordinator) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  LeaseRequest request;
  request.worker = key;
  request.nonce = 99;
  request.highest_seen = {7, 1};
  driver.Step(event::LeaseRequested{request});
  EXPECT_THAT(driver.Halted(), HasSubstr("has seen term 7"));
  const size_t before = driver.actions.size();
  driver.Submit("b");
  EXPECT_EQ(driver.actions.size(), before);
}

TEST(Position, AnAgentThatHasSeenALaterJournalStopsTheCoordinator) {
  EngineDriver driver;
  driver.Step(event::AgentHeard{{"here", 1, {1, 1'000'000}}});
  EXPECT_THAT(driver.Halted(), HasSubstr("another coordinator"));
}

// A message from the worker, or from its agent, that shows the position `seen`.
template <class M>
M Showing(const JournalPosition& seen, const WorkerKey& worker) {
  M message;
  if constexpr (requires { message.worker; }) message.worker = worker;
  if constexpr (requires { message.server; }) message.server = "here";
  message.highest_seen = seen;
  return message;
}

// A coordinator that has lost its place in the journal acts on no message of a
// peer. Above all, no accelerator comes free by one.
TEST(Position, WhoShowsALaterJournalIsNotBelieved) {
  const JournalPosition later{7, 1};
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  const uint64_t epoch = driver.worker(job).held_epoch;

  auto finished = Showing<WorkerFinished>(later, key);
  finished.epoch = epoch;
  const std::vector<Event> events = {
      event::WorkerJoined{Showing<WorkerHello>(later, key)},
      event::LeaseRequested{Showing<LeaseRequest>(later, key)},
      event::StepsReported{key, epoch, {}, later},
      event::LeaseEnded{key, epoch, {}, false, ReleaseCause::kPaused, later},
      event::WorkerSaidFinished{finished},
      event::WorkerGone{Showing<WorkerExited>(later, key)},
      event::ServerJoined{Showing<AgentHello>(later, key)},
      event::AgentHeard{Showing<AgentHeartbeat>(later, key)},
      event::CheckpointComing{Showing<FetchProgress>(later, key)},
      event::WorkerBusy{Showing<BytesMoved>(later, key)}};
  for (const Event& event : events) {
    SCOPED_TRACE(event.index());
    Engine engine = driver.Restored();
    const Actions actions = engine.Step(driver.now, event);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<action::Halt>(actions[0]));
    EXPECT_EQ(engine.jobs().at(job).workers[0].held_epoch, epoch);
  }
}

// The journal comes back with only the first rows of a term.
class LostEnd : public ::testing::Test {
 protected:
  LostEnd() {
    driver_.Run(driver_.Submit("a"));
    driver_.Submit("b");
    last_ = driver_.engine().position();
  }
  void LoseLastRow() { driver_.rows.pop_back(); }
  void Show(const JournalPosition& seen) {
    driver_.Step(event::AgentHeard{{"here", 1, seen}});
  }

  EngineDriver driver_;
  JournalPosition last_;
};

TEST_F(LostEnd, OfTheLastTermIsNoticedInTheNextOne) {
  LoseLastRow();
  driver_.Restart();
  for (int i = 0; i < 5; ++i) driver_.Submit(StrCat("c", i));
  Show(last_);
  EXPECT_THAT(driver_.Halted(),
              HasSubstr(StrCat("term 2 begins at seq ", last_.seq)));
}

TEST_F(LostEnd, IsNoticedTermsLater) {
  LoseLastRow();
  for (int i = 0; i < 3; ++i) {
    driver_.Restart();
    driver_.Submit(StrCat("c", i));
  }
  Show(last_);
  EXPECT_THAT(driver_.Halted(), HasSubstr("--accept-loss"));
}

TEST_F(LostEnd, IsNoticedAfterARestartFromASnapshot) {
  LoseLastRow();
  driver_.Restart();
  driver_.Submit("c");
  Engine restored = driver_.Restored();
  restored.Step(driver_.now, event::CoordinatorStarted{3});
  EXPECT_FALSE(restored.Knows(last_));
  EXPECT_TRUE(restored.Knows({1, last_.seq - 1}));
}

TEST_F(LostEnd, IsNotSuspectedWhereAllIsThere) {
  driver_.Restart();
  driver_.Submit("c");
  driver_.Restart();
  for (const action::Persist& row : driver_.rows) Show({row.term, row.seq});
  EXPECT_EQ(driver_.Halted(), "");
}

TEST(Position, OfATermLongGoneIsStillAskedFor) {
  EngineDriver driver;
  for (uint64_t term = 2; term < 1500; ++term) {
    driver.Step(event::CoordinatorStarted{term});
  }
  EXPECT_TRUE(driver.engine().Knows({1, 2}));
  EXPECT_FALSE(driver.engine().Knows({1, driver.engine().position().seq}));
}

// A position of that row would halt the next coordinator if the row was never
// written.
TEST(Position, AnAgentThatIsRejectedHearsOfNoRowThatIsNotOnDisk) {
  EngineDriver driver;
  driver.JoinServer("here", 2);
  driver.hold_disk = true;
  const uint64_t on_disk = driver.engine().position().seq;
  driver.Submit("a");
  driver.JoinServer("here", 1);
  ASSERT_TRUE(driver.Last<AgentRejected>().has_value());
  EXPECT_EQ(driver.Last<AgentRejected>()->position.seq, on_disk);
}

TEST(Lease, IsNotBegunAnewByARequestFromBeforeTheEndOfTheLoop) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.GiveBack(key, {}, ReleaseCause::kPaused, /*finished=*/true);
  EXPECT_EQ(driver.Why(job), "ending: its training loop is over");
  driver.Request(key, /*holding=*/true);  // was overtaken on the way
  EXPECT_EQ(driver.Count<LeaseGrant>(), 1);
  EXPECT_EQ(driver.worker(job).held_epoch, 0u);
}

}  // namespace
}  // namespace gavel
