// How a worker asks for its lease, gets and renews it (docs/protocol.md, "A
// worker's life").
#include <limits>

#include "tests/lease/lease_machine_fixture.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using State = LeaseMachine::State;

constexpr double kTolerance_s = 1e-9;

// ---- hello

TEST_F(LeaseMachineTest, DoesNothingBeforeItIsStarted) {
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  EXPECT_THAT(Tick(5), IsEmpty());
  EXPECT_THAT(Hear(6, PauseOf(1, PauseTier::kEvict)), IsEmpty());
}

TEST_F(LeaseMachineTest, SaysHelloFirstThenAsks) {
  const LeaseActions actions = Start(2);
  ASSERT_THAT(actions, SizeIs(2));
  const auto hello = MessagesOf<WorkerHello>({actions[0]});
  const auto request = MessagesOf<LeaseRequest>({actions[1]});
  ASSERT_THAT(hello, SizeIs(1));
  EXPECT_EQ(hello[0].worker, kWorker);
  EXPECT_EQ(hello[0].pid, 4711);
  EXPECT_EQ(hello[0].progress.steps_done, 40u);
  ASSERT_THAT(request, SizeIs(1));
  EXPECT_EQ(request[0].worker, kWorker);
  EXPECT_EQ(request[0].nonce, 1u);
  EXPECT_FALSE(request[0].holding);
  EXPECT_EQ(request[0].released_epoch, 0u);
}

TEST_F(StartedLease, StartsOnlyOnce) { EXPECT_THAT(Start(0.5), IsEmpty()); }

TEST_F(StartedLease, RepeatsHelloEachSecondUntilAnyAnswerComes) {
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(0.9)), IsEmpty());
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(1)), SizeIs(1));
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 2);  // the next request is later
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(2)), SizeIs(1));
  Hear(2.5, Denied(1, 60));
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(3)), IsEmpty());
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 62.5);
}

// A coordinator on a restored journal may have lost the row of the first hello.
TEST_F(StartedLease, SaysHelloAgainWhileItsRequestsAreNotAnswered) {
  Hear(0, Notice(1));  // answers the first hello
  int hellos = 0;
  for (int requests = 0; requests < 4;) {
    const LeaseActions actions = Tick(machine_.NextDeadline());
    requests += static_cast<int>(MessagesOf<LeaseRequest>(actions).size());
    hellos += static_cast<int>(MessagesOf<WorkerHello>(actions).size());
  }
  EXPECT_GE(hellos, 2);
  Hear(20, Denied(1, 1));
  const LeaseActions actions = Tick(machine_.NextDeadline());
  EXPECT_THAT(MessagesOf<LeaseRequest>(actions), SizeIs(1));
  EXPECT_THAT(MessagesOf<WorkerHello>(actions), IsEmpty());
}

TEST_F(StartedLease, AnAnswerToAnotherIncarnationIsNone) {
  LeaseDenied denied = Denied(1, 60);
  denied.worker.incarnation = 6;
  Hear(0.5, denied);
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(1)), SizeIs(1));
}

// ---- asking

TEST_F(StartedLease, NoncesRiseWithEveryRequest) {
  uint64_t nonce = last_request_.nonce;
  for (int i = 0; i < 20; ++i) {
    Tick(machine_.NextDeadline());
    if (last_request_.nonce != nonce) {
      EXPECT_EQ(last_request_.nonce, nonce + 1);
      nonce = last_request_.nonce;
    }
  }
  EXPECT_GT(nonce, 5u);
}

TEST_F(StartedLease, UnansweredRequestsAreRepeatedLessAndLessOften) {
  Hear(0, Notice(1));  // ends the hellos
  std::vector<Time> asked;
  while (asked.size() < 8) {
    const Time now = machine_.NextDeadline();
    if (!MessagesOf<LeaseRequest>(Tick(now)).empty()) asked.push_back(now);
  }
  for (size_t i = 1; i < asked.size(); ++i) {
    const double gap_s = asked[i] - asked[i - 1];
    EXPECT_GE(gap_s, 1);
    EXPECT_LE(gap_s, 5);
  }
  EXPECT_NEAR(asked[7] - asked[6], 5, kTolerance_s);
}

TEST_F(StartedLease, AnAnswerSlowerThanTheIntervalIsHeardAtLast) {
  constexpr double kRoundTrip_s = 3;
  std::vector<std::pair<Time, LeaseGrant>> answers = {{3, Grant(5)}};
  uint64_t nonce = last_request_.nonce;
  size_t heard = 0;
  while (machine_.state() == State::kWaiting) {
    const Time tick = machine_.NextDeadline();
    ASSERT_LT(tick, 60);
    if (heard < answers.size() && answers[heard].first <= tick) {
      Hear(answers[heard].first, answers[heard].second);
      ++heard;
      continue;
    }
    Tick(tick);
    if (last_request_.nonce == nonce) continue;
    nonce = last_request_.nonce;
    answers.emplace_back(tick + kRoundTrip_s, Grant(5));
  }
  EXPECT_EQ(machine_.state(), State::kResuming);
}

TEST_F(StartedLease, AfterADenialItAsksWhenTold) {
  Hear(0.5, Denied(2, 7));
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 7.5);
  EXPECT_THAT(Tick(7.4), IsEmpty());
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(7.5)), SizeIs(1));
}

TEST_F(StartedLease, ADenialOfAnEarlierRequestDoesNotDelay) {
  const LeaseDenied late = Denied(2, 30);
  Tick(1);
  Hear(1.1, late);
  EXPECT_LE(machine_.NextDeadline(), 3);
}

TEST_F(LeaseMachineTest, WaitsAreBoundedWhateverTheDenialSays) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double retry_s : {-5.0, 0.0, 1e9, double{kNever}, nan}) {
    machine_ = LeaseMachine({.worker = kWorker});
    Start(0);
    Hear(1.5, Denied(2, retry_s));
    EXPECT_GT(machine_.NextDeadline(), 1.5) << retry_s;
    EXPECT_LE(machine_.NextDeadline(), 61.5) << retry_s;
  }
}

TEST_F(StartedLease, ADenialWithAHigherEpochRaisesTheKnownEpoch) {
  Hear(0.1, Denied(9, 2));
  Tick(2.1);
  EXPECT_EQ(last_request_.epoch, 9u);
  EXPECT_THAT(Hear(2.2, Grant(8)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
  EXPECT_THAT(ActionsOf<lease_action::Resume>(Hear(2.3, Grant(9))), SizeIs(1));
}

TEST_F(StartedLease, ANoticeMakesItAskNow) {
  Hear(0.5, Denied(1, 30));
  EXPECT_THAT(MessagesOf<LeaseRequest>(Hear(4, Notice(2))), SizeIs(1));
  EXPECT_EQ(last_request_.epoch, 2u);
}

TEST_F(StartedLease, ANoticeRightAfterAnAnswerIsNotPutOff) {
  Hear(0.001, Denied(1, 30));
  EXPECT_THAT(MessagesOf<LeaseRequest>(Hear(0.002, Notice(2))), SizeIs(1));
}

TEST_F(StartedLease, ANoticeOfALowerEpochIsIgnored) {
  Hear(0.5, Denied(3, 30));
  EXPECT_THAT(Hear(4, Notice(2)), IsEmpty());
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 30.5);
}

TEST_F(StartedLease, DoubledNoticesKeepTheirDistance) {
  Hear(0.5, Denied(1, 30));
  EXPECT_THAT(MessagesOf<LeaseRequest>(Hear(4, Notice(2))), SizeIs(1));
  EXPECT_THAT(MessagesOf<LeaseRequest>(Hear(4.01, Notice(2))), IsEmpty());
  EXPECT_THAT(MessagesOf<LeaseRequest>(Hear(4.02, Notice(2))), IsEmpty());
  EXPECT_NEAR(machine_.NextDeadline(), 4.05, kTolerance_s);
}

// ---- granted

TEST_F(StartedLease, AGrantResumesOnItsAccelerator) {
  const auto resumes = OnlyAction<lease_action::Resume>(Hear(0.25, Grant(5)));
  EXPECT_EQ(resumes.epoch, 5u);
  EXPECT_EQ(resumes.accelerator.uuid, "gpu-0");
  EXPECT_EQ(resumes.slots, 1);
  EXPECT_EQ(resumes.world_size, 2);
  EXPECT_EQ(resumes.gang_address, "10.0.0.7:4100");
  EXPECT_EQ(machine_.state(), State::kResuming);
  Step(0.3, lease_event::Resumed{4});
  EXPECT_EQ(machine_.state(), State::kResuming);
  Step(0.3, lease_event::Resumed{5});
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(LeaseMachineTest, TheLeaseCountsFromWhenItsRequestWasSent) {
  Start(100);
  Hear(100.9, Grant(5, 60));
  EXPECT_DOUBLE_EQ(machine_.deadline(), 160);
}

TEST_F(StartedLease, OnlyTheGrantOfTheLatestNonceCounts) {
  const LeaseGrant early = Grant(5);
  Tick(1);
  ASSERT_NE(last_request_.nonce, early.nonce);
  EXPECT_THAT(Hear(1.1, early), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
  Hear(1.2, Grant(5));
  EXPECT_DOUBLE_EQ(machine_.deadline(), 61);
  LeaseGrant never_asked_for = Grant(5);
  ++never_asked_for.nonce;
  EXPECT_THAT(Hear(1.3, never_asked_for), IsEmpty());
}

TEST_F(StartedLease, AGrantToAnotherWorkerOrIncarnationIsIgnored) {
  for (const WorkerKey& other :
       {WorkerKey{JobId(4), 1, 7}, WorkerKey{JobId(3), 0, 7},
        WorkerKey{JobId(3), 1, 6}, WorkerKey{JobId(3), 1, 8}}) {
    LeaseGrant grant = Grant(5);
    grant.worker = other;
    EXPECT_THAT(Hear(0.1, grant), IsEmpty());
  }
  EXPECT_EQ(machine_.state(), State::kWaiting);
}

TEST_F(StartedLease, AGrantThatArrivesAfterItsEndIsNotUsed) {
  EXPECT_THAT(ActionsOf<lease_action::Resume>(Hear(0.9, Grant(5, 0.8))),
              IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
  EXPECT_NEAR(machine_.NextDeadline(), 0.95, kTolerance_s);
}

TEST_F(StartedLease, ADurationThatIsNoneIsIgnored) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double duration_s : {0.0, -1.0, 1e12, double{kNever}, nan}) {
    EXPECT_THAT(Hear(0.1, Grant(5, duration_s)), IsEmpty()) << duration_s;
  }
}

TEST_F(StartedLease, ADoubledGrantResumesOnce) {
  const LeaseGrant grant = Grant(5);
  EXPECT_THAT(Hear(0.1, grant), SizeIs(1));
  EXPECT_THAT(Hear(0.2, grant), IsEmpty());
}

TEST_F(LeaseMachineTest, AGrantOfAnEpochThatWasGivenUpIsIgnored) {
  RunAndPark();
  EXPECT_THAT(Hear(10.1, Grant(5)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
  EXPECT_THAT(ActionsOf<lease_action::Resume>(Hear(10.2, Grant(6))), SizeIs(1));
}

// ---- renewing

TEST_F(RunningLease, AsksAgainWhenAThirdOfTheLeaseIsOverAtTheLatest) {
  const Time asks = machine_.NextDeadline();
  EXPECT_GE(asks, 12);
  EXPECT_LE(asks, 20);
  EXPECT_THAT(Tick(asks - 0.1), IsEmpty());
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(asks)), SizeIs(1));
  EXPECT_TRUE(last_request_.holding);
  EXPECT_EQ(last_request_.epoch, 5u);
}

TEST_F(RunningLease, ARenewalExtendsFromWhenItWasAskedFor) {
  Tick(20);
  const auto extends = OnlyAction<lease_action::Extend>(Hear(21, Grant(5)));
  EXPECT_EQ(extends.epoch, 5u);
  EXPECT_DOUBLE_EQ(extends.deadline, 80);
  EXPECT_GE(machine_.NextDeadline(), 32);
  EXPECT_LE(machine_.NextDeadline(), 40);
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(RunningLease, ARenewalTellsOfOtherThreads) {
  Tick(20);
  LeaseGrant same = Grant(5, 40);  // to the end that it has
  EXPECT_THAT(ActionsOf<lease_action::Extend>(Hear(21, same)), IsEmpty());
  same.accelerator.threads = 3;
  const auto extends = OnlyAction<lease_action::Extend>(Hear(21.1, same));
  EXPECT_EQ(extends.threads, 3);
  EXPECT_THAT(ActionsOf<lease_action::Extend>(Hear(21.2, same)), IsEmpty());
}

TEST_F(StartedLease, RenewsWhileTheAcceleratorIsStillBeingTaken) {
  Hear(0.1, Grant(5));
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(20)), SizeIs(1));
  EXPECT_THAT(ActionsOf<lease_action::Extend>(Hear(20.1, Grant(5))), SizeIs(1));
  EXPECT_EQ(machine_.state(), State::kResuming);
}

TEST_F(RunningLease, ALostRenewalIsAskedForAgainWithinTheLease) {
  Tick(20);
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(21)), SizeIs(1));
  Hear(21.1, Grant(5));
  EXPECT_DOUBLE_EQ(machine_.deadline(), 81);
}

TEST_F(StartedLease, AShortLeaseIsRenewedAtMostAtTheMinimalInterval) {
  Hear(0.001, Grant(5, 0.06));
  EXPECT_NEAR(machine_.NextDeadline(), 0.051, kTolerance_s);
}

TEST_F(RunningLease, ANoticeWhileRunningAsksForTheExtensionSoon) {
  Hear(3, Notice(5));
  const Time asks = machine_.NextDeadline();
  EXPECT_GE(asks, 3);
  EXPECT_LE(asks, 8);
  // Another notice changes nothing, nor does one of an epoch that is over.
  Hear(3.001, Notice(5));
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), asks);
  EXPECT_THAT(Hear(3.001, Notice(4)), IsEmpty());
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(asks)), SizeIs(1));
  EXPECT_TRUE(last_request_.holding);
}

TEST_F(RunningLease, ANoticeOfTheNextEpochDoesNotRenewTheOneHeld) {
  const Time renews = machine_.NextDeadline();
  EXPECT_THAT(Hear(3, Notice(6)), IsEmpty());
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), renews);
}

TEST_F(RunningLease, AGrantOfAnotherEpochDoesNotReplaceTheOneHeld) {
  Tick(20);
  EXPECT_THAT(Hear(20.1, Grant(6)), IsEmpty());
  EXPECT_EQ(machine_.epoch(), 5u);
  EXPECT_DOUBLE_EQ(machine_.deadline(), 60);
}

TEST_F(RunningLease, ADeniedRenewalTrainsOnToTheEnd) {
  Tick(20);
  EXPECT_THAT(Hear(20.1, Denied(5, 50)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kRunning);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 60);
}

// The coordinator grants up to the round's end and no further, and each renewal
// has the same end. A worker that asks whenever a third of the remaining time
// is over would ask more and more often.
TEST_F(LeaseMachineTest, ALeaseThatIsNotExtendedIsSeldomAskedFor) {
  constexpr Time kRoundEnd = 60;
  constexpr double kLatency_s = 0.01;
  Run();
  std::vector<Time> asked;
  while (machine_.NextDeadline() < kRoundEnd) {
    const Time now = machine_.NextDeadline();
    if (MessagesOf<LeaseRequest>(Tick(now)).empty()) break;
    asked.push_back(now);
    // The delay of the answers varies, so the deadline wobbles.
    const double late_s = kLatency_s * static_cast<double>(asked.size() % 3);
    Hear(now + late_s, Grant(5, kRoundEnd - now - late_s));
  }
  EXPECT_LE(asked.size(), 8u);
  for (size_t i = 1; i + 1 < asked.size(); ++i) {
    EXPECT_GE(asked[i] - asked[i - 1], 1);
  }
  EXPECT_NEAR(asked.back(), kRoundEnd, 0.26);
}

// A coordinator that was away and returns just before the end still finds the
// job running, because unanswered requests are repeated at a pace that follows
// the remaining time.
TEST_F(RunningLease, UnansweredNearTheEndItAsksAtFullPace) {
  Tick(20);
  Hear(20, Grant(5, 3));  // until 23, although the lease was to 60
  Tick(21);
  Hear(21, Grant(5, 2));
  std::vector<Time> asked;
  while (machine_.state() == State::kRunning) {
    const Time now = machine_.NextDeadline();
    if (!MessagesOf<LeaseRequest>(Tick(now)).empty()) asked.push_back(now);
  }
  ASSERT_GE(asked.size(), 2u);
  for (size_t i = 1; i < asked.size(); ++i) {
    EXPECT_LE(asked[i] - asked[i - 1], 2.0 / 3 + kTolerance_s);
  }
}

TEST_F(RunningLease, ANoticeExtendsALeaseThatWasNotToBeLonger) {
  Tick(20);
  Hear(20, Grant(5, 40));  // the round's end stays at 60
  Hear(30, Notice(5));
  const Time asks = machine_.NextDeadline();
  EXPECT_LE(asks, 35);
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(asks)), SizeIs(1));
  Hear(asks, Grant(5));
  EXPECT_DOUBLE_EQ(machine_.deadline(), asks + 60);
  EXPECT_GT(machine_.NextDeadline(), asks + 11);
}

// ---- gangs

TEST_F(StartedLease, AGangsAddressIsToldAtOnceAndWithEveryRequest) {
  Hear(0.1, Grant(5));
  Step(1, lease_event::GangOpened{5, "10.0.0.7:4100"});
  EXPECT_EQ(last_request_.gang_address, "10.0.0.7:4100");
  EXPECT_TRUE(last_request_.holding);
  EXPECT_EQ(machine_.state(), State::kResuming);
  Tick(2);
  EXPECT_EQ(last_request_.nonce, 3u);
  EXPECT_EQ(last_request_.gang_address, "10.0.0.7:4100");
}

TEST_F(StartedLease, AGangsAddressEndsWithItsLease) {
  Hear(0.1, Grant(5));
  Step(1, lease_event::GangOpened{5, "10.0.0.7:4100"});
  Step(2, lease_event::ResumeFailed{5, "rank 1 did not come"});
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(7)), SizeIs(1));
  EXPECT_EQ(last_request_.gang_address, "");
  Hear(7.1, Grant(6));
  Tick(27);
  EXPECT_EQ(last_request_.gang_address, "");
}

TEST_F(StartedLease, AGangOpenedOfAnEpochNotHeldSaysNothing) {
  EXPECT_THAT(Step(0.1, lease_event::GangOpened{5, "a:1"}), IsEmpty());
  Hear(0.2, Grant(5));
  EXPECT_THAT(Step(0.3, lease_event::GangOpened{4, "a:1"}), IsEmpty());
  Tick(20);
  EXPECT_EQ(last_request_.gang_address, "");
}

TEST_F(RunningLease, ARequestWhileHoldingNamesTheEpochHeld) {
  Hear(1, Denied(6, 1));  // its nonce is answered, but the epoch is news
  Tick(20);
  EXPECT_TRUE(last_request_.holding);
  EXPECT_EQ(last_request_.epoch, 5u);
}

TEST_F(StartedLease, ACheckpointIsWrittenOnlyWhileItHoldsALease) {
  const CheckpointRequest request{kWorker, position_};
  EXPECT_TRUE(Hear(0.1, request).empty());
  Hear(0.2, Grant(5));
  Step(0.3, lease_event::Resumed{5});
  EXPECT_EQ(ActionsOf<lease_action::Checkpoint>(Hear(1, request)).size(), 1u);
  EXPECT_EQ(machine_.state(), LeaseMachine::State::kRunning);
  Hear(2, PauseOf(5));
  EXPECT_TRUE(Hear(3, request).empty()) << "it saves anyway";
}

}  // namespace
}  // namespace gavel
