// How a lease ends, and what a worker says of it (docs/protocol.md, "A worker's
// life").
#include "tests/lease/lease_machine_fixture.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using State = LeaseMachine::State;

// ---- the end of a lease

TEST_F(RunningLease, PausesAtTheDeadline) {
  Time now = 0;
  LeaseActions actions;
  while (machine_.state() == State::kRunning) {
    now = machine_.NextDeadline();
    ASSERT_LE(now, 60);
    actions = Tick(now);
  }
  EXPECT_DOUBLE_EQ(now, 60);
  const auto pauses = OnlyAction<lease_action::Pause>(actions);
  EXPECT_EQ(pauses.tier, PauseTier::kPark);
  EXPECT_EQ(pauses.why, "lease ended");
  EXPECT_EQ(machine_.NextDeadline(), kNever);
}

TEST_F(StartedLease, ALeaseThatEndsBeforeTheAcceleratorWasTakenPausesToo) {
  Hear(0.1, Grant(5));
  EXPECT_THAT(ActionsOf<lease_action::Pause>(Tick(60)), SizeIs(1));
  Step(60.1, lease_event::Resumed{5});
  EXPECT_EQ(machine_.state(), State::kPausing);
  EXPECT_THAT(MessagesOf<LeaseReleased>(Step(60.2, lease_event::Parked{5, {}})),
              SizeIs(1));
}

TEST_F(RunningLease, AGrantThatComesAtTheDeadlineComesTooLate) {
  Tick(59);
  const LeaseActions actions = Hear(60, Grant(5));
  EXPECT_THAT(ActionsOf<lease_action::Extend>(actions), IsEmpty());
  EXPECT_THAT(ActionsOf<lease_action::Pause>(actions), SizeIs(1));
}

TEST_F(RunningLease, NoGrantRevivesALeaseThatIsPausing) {
  Tick(20);
  Hear(20.5, PauseOf(5));
  EXPECT_THAT(Hear(21, Grant(5)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kPausing);
  EXPECT_DOUBLE_EQ(machine_.deadline(), 60);
}

TEST_F(RunningLease, TrainsOnWhileTheCoordinatorIsAwayThenParksAndAsksOn) {
  while (machine_.state() == State::kRunning) Tick(machine_.NextDeadline());
  EXPECT_THAT(MessagesOf<LeaseRequest>(Step(61, lease_event::Parked{5, {}})),
              SizeIs(1));
  EXPECT_FALSE(last_request_.holding);
  EXPECT_EQ(last_request_.released_epoch, 5u);
  for (int i = 0; i < 10; ++i) {
    const Time next = machine_.NextDeadline();
    EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(next)), SizeIs(1));
    EXPECT_LE(machine_.NextDeadline(), next + 5);
  }
}

// ---- pausing

TEST_F(RunningLease, APauseRequestPausesAndAsksForNothingMeanwhile) {
  const auto pauses = OnlyAction<lease_action::Pause>(Hear(9, PauseOf(5)));
  EXPECT_EQ(pauses.tier, PauseTier::kPark);
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  EXPECT_THAT(Tick(60), IsEmpty());
}

TEST_F(RunningLease, APauseRequestOfAnotherEpochIsIgnored) {
  EXPECT_THAT(Hear(9, PauseOf(4)), IsEmpty());
  EXPECT_THAT(Hear(9, PauseOf(6, PauseTier::kEvict)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(RunningLease, OnlyAHigherTierPausesASecondTime) {
  const std::pair<PauseTier, size_t> asked[] = {
      {PauseTier::kKeep, 1}, {PauseTier::kPark, 1},  {PauseTier::kKeep, 0},
      {PauseTier::kPark, 0}, {PauseTier::kEvict, 1}, {PauseTier::kPark, 0},
      {PauseTier::kStop, 1}};
  for (const auto& [tier, pauses] : asked) {
    EXPECT_THAT(Hear(9, PauseOf(5, tier)), SizeIs(pauses));
  }
}

TEST_F(RunningLease, ParkedReleasesThenAsksWithTheEpochGivenUp) {
  Hear(9, PauseOf(5));
  const LeaseActions actions = Step(10, lease_event::Parked{5, Steps(90)});
  ASSERT_THAT(actions, SizeIs(2));
  const auto released = OnlyMessage<LeaseReleased>({actions[0]});
  EXPECT_EQ(released.worker, kWorker);
  EXPECT_EQ(released.epoch, 5u);
  EXPECT_EQ(released.progress.steps_done, 90u);
  ASSERT_THAT(MessagesOf<LeaseRequest>({actions[1]}), SizeIs(1));
  EXPECT_FALSE(last_request_.holding);
  EXPECT_EQ(last_request_.released_epoch, 5u);
}

TEST_F(RunningLease, ParkedOfAnotherEpochOrTwiceIsIgnored) {
  Hear(9, PauseOf(5));
  EXPECT_THAT(Step(9.5, lease_event::Parked{4, {}}), IsEmpty());
  Step(10, lease_event::Parked{5, {}});
  EXPECT_THAT(MessagesOf<LeaseReleased>(Step(10.1, lease_event::Parked{5, {}})),
              IsEmpty());
}

TEST_F(RunningLease, AWorkerThatParksByItselfReleasesToo) {
  EXPECT_THAT(MessagesOf<LeaseReleased>(Step(9, lease_event::Parked{5, {}})),
              SizeIs(1));
}

TEST_F(LeaseMachineTest, AnEvictedWorkerReleasesAndAsksForNothingMore) {
  for (const PauseTier tier : {PauseTier::kEvict, PauseTier::kStop}) {
    machine_ = LeaseMachine({.worker = kWorker});
    Run();
    const auto pauses =
        ActionsOf<lease_action::Pause>(Hear(9, PauseOf(5, tier)));
    ASSERT_THAT(pauses, SizeIs(1));
    EXPECT_EQ(pauses[0].tier, tier);
    const LeaseActions actions = Step(10, lease_event::Parked{5, {}});
    EXPECT_THAT(actions, SizeIs(1));
    EXPECT_THAT(MessagesOf<LeaseReleased>(actions), SizeIs(1));
    EXPECT_EQ(machine_.state(), State::kEnded);
    EXPECT_EQ(machine_.NextDeadline(), kNever);
    EXPECT_THAT(Hear(11, Notice(6)), IsEmpty());
  }
}

TEST_F(LeaseMachineTest, AParkedWorkerIsEvictedOrStopped) {
  for (const PauseTier tier : {PauseTier::kEvict, PauseTier::kStop}) {
    machine_ = LeaseMachine({.worker = kWorker});
    RunAndPark();
    EXPECT_THAT(ActionsOf<lease_action::Pause>(Hear(12, PauseOf(5, tier))),
                SizeIs(1));
    EXPECT_EQ(machine_.state(), State::kEnded);
    EXPECT_EQ(machine_.NextDeadline(), kNever);
  }
}

TEST_F(LeaseMachineTest, AParkedWorkerIsNotParkedAgain) {
  RunAndPark();
  EXPECT_THAT(ActionsOf<lease_action::Pause>(Hear(12, PauseOf(5))), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
}

TEST_F(RunningLease, AKeptWorkerReleasesAndGoesOnAsking) {
  const auto pauses =
      OnlyAction<lease_action::Pause>(Hear(9, PauseOf(5, PauseTier::kKeep)));
  EXPECT_EQ(pauses.tier, PauseTier::kKeep);
  EXPECT_THAT(MessagesOf<LeaseReleased>(Step(10, lease_event::Parked{5, {}})),
              SizeIs(1));
  EXPECT_EQ(machine_.state(), State::kWaiting);
  EXPECT_THAT(ActionsOf<lease_action::Pause>(Hear(12, PauseOf(5))), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
  EXPECT_THAT(
      ActionsOf<lease_action::Pause>(Hear(13, PauseOf(5, PauseTier::kEvict))),
      SizeIs(1));
  EXPECT_EQ(machine_.state(), State::kEnded);
}

TEST_F(LeaseMachineTest, AKeptWorkerMayBeKeptOrParkedTheNextTime) {
  for (const PauseTier next : {PauseTier::kKeep, PauseTier::kPark}) {
    machine_ = LeaseMachine({.worker = kWorker});
    Run();
    Hear(9, PauseOf(5, PauseTier::kKeep));
    Step(10, lease_event::Parked{5, {}});
    Hear(11, Grant(6));
    Step(11.5, lease_event::Resumed{6});
    EXPECT_THAT(Hear(12, PauseOf(6, next)), SizeIs(1));
    Step(13, lease_event::Parked{6, {}});
    EXPECT_EQ(machine_.state(), State::kWaiting);
  }
}

TEST_F(StartedLease, AReleaseSaysWhyItWas) {
  Hear(0.1, Grant(5));
  auto released = OnlyMessage<LeaseReleased>(
      Step(1, lease_event::ResumeFailed{5, "lock held by 812"}));
  EXPECT_EQ(released.epoch, 5u);
  EXPECT_EQ(released.progress.steps_done, 40u);
  EXPECT_EQ(released.cause, ReleaseCause::kResumeFailed);
  EXPECT_EQ(machine_.state(), State::kWaiting);
  Tick(6);
  Hear(6.1, Grant(6));
  released = OnlyMessage<LeaseReleased>(Step(
      7, lease_event::ResumeFailed{6, "too big", ReleaseCause::kOutOfMemory}));
  EXPECT_EQ(released.cause, ReleaseCause::kOutOfMemory);
  Tick(12);
  Hear(12.1, Grant(7));
  Step(12.2, lease_event::Resumed{7});
  released = OnlyMessage<LeaseReleased>(Step(13, lease_event::Parked{7, {}}));
  EXPECT_EQ(released.cause, ReleaseCause::kPaused);
}

TEST_F(LeaseMachineTest, AParkedWorkerIgnoresPausesOlderThanItKnows) {
  RunAndPark();
  Hear(11, Notice(6));
  EXPECT_THAT(
      ActionsOf<lease_action::Pause>(Hear(12, PauseOf(5, PauseTier::kEvict))),
      IsEmpty());
  EXPECT_EQ(machine_.state(), State::kWaiting);
}

TEST_F(LeaseMachineTest, AWorkerThatNeverRanCanBeStoppedOrRejected) {
  for (const Message& message :
       std::vector<Message>{PauseOf(1, PauseTier::kStop), Rejected()}) {
    machine_ = LeaseMachine({.worker = kWorker});
    Start(0);
    EXPECT_THAT(ActionsOf<lease_action::Pause>(Hear(1, message)), SizeIs(1));
    EXPECT_EQ(machine_.state(), State::kEnded);
  }
}

TEST_F(RunningLease, ARejectedWorkerGivesUpItsLeaseAndEnds) {
  const auto pauses = OnlyAction<lease_action::Pause>(Hear(9, Rejected()));
  EXPECT_EQ(pauses.tier, PauseTier::kEvict);
  EXPECT_THAT(pauses.why, HasSubstr("unknown job"));
  EXPECT_THAT(Hear(9.1, Rejected()), IsEmpty());
  EXPECT_THAT(MessagesOf<LeaseReleased>(Step(10, lease_event::Parked{5, {}})),
              SizeIs(1));
  EXPECT_EQ(machine_.state(), State::kEnded);
}

// ---- terms and positions

TEST_F(LeaseMachineTest, MessagesOfALowerTermAreIgnored) {
  position_ = {2, 1};
  Run();
  Tick(20);
  position_ = {1, 99};
  EXPECT_THAT(Hear(20.2, Grant(5)), IsEmpty());
  EXPECT_THAT(Hear(20.2, Notice(5)), IsEmpty());
  EXPECT_THAT(Hear(20.2, PauseOf(5)), IsEmpty());
  EXPECT_THAT(Hear(20.2, Rejected()), IsEmpty());
  Hear(20.2, Denied(9, 1));
  EXPECT_EQ(machine_.state(), State::kRunning);
  position_ = {2, 0};  // the same term, overtaken on the way
  EXPECT_THAT(ActionsOf<lease_action::Extend>(Hear(20.5, Grant(5))), SizeIs(1));
}

TEST_F(StartedLease, EveryRequestShowsTheHighestPositionSeen) {
  EXPECT_EQ(last_request_.highest_seen, JournalPosition());
  position_ = {3, 8};
  Hear(0.1, Denied(1, 1));
  position_ = {3, 5};
  Hear(0.2, Denied(1, 1));
  Tick(1.2);
  EXPECT_EQ(last_request_.highest_seen, (JournalPosition{3, 8}));
}

TEST_F(RunningLease, SoDoReportsAndEnds) {
  const auto reports =
      OnlyMessage<StepReport>(Step(30, lease_event::Progressed{Steps(50)}));
  EXPECT_EQ(reports.highest_seen, last_request_.highest_seen);
  EXPECT_NE(reports.highest_seen, JournalPosition());
  Hear(31, PauseOf(5));
  const auto released =
      OnlyMessage<LeaseReleased>(Step(32, lease_event::Parked{5, {}}));
  EXPECT_EQ(released.highest_seen, reports.highest_seen);
  const auto finished =
      OnlyMessage<WorkerFinished>(Step(33, lease_event::Finished{75, "", {}}));
  EXPECT_EQ(finished.highest_seen, reports.highest_seen);
}

TEST_F(StartedLease, APositionShownToAnotherWorkerIsNotTaken) {
  LeaseDenied other = Denied(9, 60);
  other.worker.rank = 0;
  other.position = {50, 0};
  Hear(0.1, other);
  Tick(1);
  EXPECT_EQ(last_request_.highest_seen, JournalPosition());
  EXPECT_EQ(last_request_.epoch, 0u);
}

// ---- failures to resume

TEST_F(StartedLease, AfterAFailureItAsksAgainOnlyAfterADelay) {
  Hear(0.1, Grant(5));
  Step(0.5, lease_event::ResumeFailed{5, ""});
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 5.5);
  EXPECT_THAT(Hear(1, Notice(6)), IsEmpty());  // no loop over the network
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 5.5);
  EXPECT_THAT(MessagesOf<LeaseRequest>(Tick(5.5)), SizeIs(1));
  EXPECT_EQ(last_request_.released_epoch, 5u);
}

TEST_F(StartedLease, AFailureOfAnotherEpochIsIgnored) {
  Hear(0.1, Grant(5));
  EXPECT_THAT(Step(0.5, lease_event::ResumeFailed{4, ""}), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kResuming);
}

TEST_F(StartedLease, AFailureAfterAnEvictionReleasesAndEnds) {
  Hear(0.1, Grant(5));
  Hear(0.2, PauseOf(5, PauseTier::kEvict));
  EXPECT_THAT(
      MessagesOf<LeaseReleased>(Step(0.5, lease_event::ResumeFailed{5, ""})),
      SizeIs(1));
  EXPECT_EQ(machine_.state(), State::kEnded);
}

// ---- reports

TEST_F(RunningLease, ProgressIsReportedWhileRunning) {
  const auto reports =
      OnlyMessage<StepReport>(Step(1, lease_event::Progressed{Steps(50)}));
  EXPECT_EQ(reports.worker, kWorker);
  EXPECT_EQ(reports.epoch, 5u);
  EXPECT_EQ(reports.progress.steps_done, 50u);
}

TEST_F(StartedLease, NothingIsReportedWithoutALease) {
  EXPECT_THAT(Step(0.5, lease_event::Progressed{}), IsEmpty());
  Hear(0.6, Grant(5));
  EXPECT_THAT(Step(0.7, lease_event::Progressed{}), IsEmpty());
}

TEST_F(LeaseMachineTest, TheCheckpointOfAPauseIsReportedOnce) {
  RunAndPark();
  Progress progress = Steps(90);
  EXPECT_THAT(
      MessagesOf<StepReport>(Step(10.1, lease_event::Progressed{progress})),
      IsEmpty());
  progress.last_generation = {5, 90};
  const auto reports =
      OnlyMessage<StepReport>(Step(10.2, lease_event::Progressed{progress}));
  EXPECT_EQ(reports.progress.last_generation, (Generation{5, 90}));
  EXPECT_THAT(
      MessagesOf<StepReport>(Step(10.3, lease_event::Progressed{progress})),
      IsEmpty());
}

// ---- the end

TEST_F(RunningLease, FinishedIsToldOnceAndEndsEverything) {
  const LeaseActions actions =
      Step(30, lease_event::Finished{0, "all epochs done", Steps(100)});
  const auto finished = OnlyMessage<WorkerFinished>(actions);
  EXPECT_EQ(finished.worker, kWorker);
  EXPECT_EQ(finished.epoch, 5u);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_EQ(finished.detail, "all epochs done");
  EXPECT_EQ(finished.progress.steps_done, 100u);
  EXPECT_EQ(machine_.state(), State::kEnded);
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  EXPECT_THAT(Step(31, lease_event::Finished{}), IsEmpty());
  EXPECT_THAT(Hear(32, PauseOf(5, PauseTier::kStop)), IsEmpty());
}

TEST_F(RunningLease, AnEvictedWorkerStillTellsThatItFinished) {
  Hear(9, PauseOf(5, PauseTier::kEvict));
  Step(10, lease_event::Parked{5, {}});
  const auto finished =
      OnlyMessage<WorkerFinished>(Step(11, lease_event::Finished{75, "", {}}));
  EXPECT_EQ(finished.exit_code, 75);
}

// ---- time

TEST_F(LeaseMachineTest, ATickAtTheDeadlineAlwaysMovesIt) {
  Start(1e9);  // large enough for sums to be rounded
  Hear(1e9, Grant(5, 0.2));
  Step(1e9, lease_event::Resumed{5});
  while (machine_.NextDeadline() != kNever) {
    const Time next = machine_.NextDeadline();
    EXPECT_THAT(Tick(next), Not(IsEmpty()));
    ASSERT_GT(machine_.NextDeadline(), next);
  }
  EXPECT_EQ(machine_.state(), State::kPausing);
}

TEST_F(RunningLease, ATickBeforeTheDeadlineIsHarmless) {
  const Time due = machine_.NextDeadline();
  for (Time now = 0.3; now < due; now += 0.1) {
    EXPECT_THAT(Tick(now), IsEmpty());
  }
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), due);
}

}  // namespace
}  // namespace gavel
