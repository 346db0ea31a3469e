// How a worker says that it is there before it is ready, and that it is at work
// (docs/protocol.md, "A worker's life").
#include "tests/lease/lease_machine_fixture.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using State = LeaseMachine::State;

TEST_F(LeaseMachineTest, SaysHelloBeforeItIsReadyAndAsksForNothing) {
  const auto hellos =
      OnlyMessage<WorkerHello>(Step(1, lease_event::Began{4711}));
  EXPECT_FALSE(hellos.ready);
  EXPECT_EQ(hellos.pid, 4711);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 2);
  EXPECT_THAT(Tick(2), SizeIs(1));  // again
  Hear(2.5, Notice(1));
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  const LeaseActions actions = Start(300);
  ASSERT_THAT(MessagesOf<WorkerHello>(actions), SizeIs(1));
  EXPECT_TRUE(MessagesOf<WorkerHello>(actions)[0].ready);
  EXPECT_THAT(MessagesOf<LeaseRequest>(actions), SizeIs(1));
}

TEST_F(LeaseMachineTest, ALateNoticeDoesNotAnswerTheSecondHello) {
  Step(0, lease_event::Began{1});
  Start(0.5);
  Hear(0.6, Notice(1));  // to the first one
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(1.5)), SizeIs(1));
  Hear(1.6, Denied(1, 60));
  EXPECT_THAT(MessagesOf<WorkerHello>(Tick(2.5)), IsEmpty());
}

TEST_F(LeaseMachineTest, WhoIsToEndBeforeItIsReadyAsksForNothing) {
  Step(0, lease_event::Began{1});
  const auto pauses =
      OnlyAction<lease_action::Pause>(Hear(1, PauseOf(1, PauseTier::kEvict)));
  EXPECT_EQ(pauses.tier, PauseTier::kEvict);
  EXPECT_THAT(Start(2), IsEmpty());
}

TEST_F(LeaseMachineTest, TellsOfBytesWhileItStartsIfTheyRose) {
  EXPECT_THAT(Step(0, lease_event::BytesCounted{1 << 20}), IsEmpty());
  Step(1, lease_event::Began{1});
  Hear(1.1, Notice(1));
  const auto told =
      OnlyMessage<BytesMoved>(Step(5, lease_event::BytesCounted{1 << 20}));
  EXPECT_EQ(told.worker, kWorker);
  EXPECT_EQ(told.bytes, uint64_t{1} << 20);
  const uint64_t few = (1 << 20) + kBytesRiseMin - 1;
  EXPECT_THAT(Step(10, lease_event::BytesCounted{few}), IsEmpty());
  EXPECT_THAT(Step(15, lease_event::BytesCounted{few + 1}), SizeIs(1));
}

TEST_F(RunningLease, TellsOfBytesWhileItStopsAndNotWhileItTrains) {
  const uint64_t training = uint64_t{1} << 30;
  EXPECT_THAT(
      MessagesOf<BytesMoved>(Step(5, lease_event::BytesCounted{training})),
      IsEmpty());
  Hear(6, PauseOf(5, PauseTier::kEvict));
  EXPECT_THAT(
      MessagesOf<BytesMoved>(Step(7, lease_event::BytesCounted{training + 1})),
      IsEmpty());  // it is stuck in its step
  Step(8, lease_event::Parked{5, Steps(90)});
  EXPECT_EQ(machine_.state(), State::kEnded);
  EXPECT_THAT(MessagesOf<BytesMoved>(Step(
                  12, lease_event::BytesCounted{training + kBytesRiseMin})),
              SizeIs(1));
}

TEST_F(RunningLease, TellsOfBytesWhileItsLoopWaitsForACheckpoint) {
  EXPECT_THAT(Step(5, lease_event::BytesCounted{1 << 30}), IsEmpty());
  EXPECT_THAT(MessagesOf<BytesMoved>(
                  Step(10, lease_event::BytesCounted{2 << 29, true})),
              IsEmpty());
  EXPECT_THAT(MessagesOf<BytesMoved>(
                  Step(15, lease_event::BytesCounted{uint64_t{3} << 29, true})),
              SizeIs(1));
}

}  // namespace
}  // namespace gavel
