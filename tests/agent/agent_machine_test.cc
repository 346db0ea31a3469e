// How an agent is welcomed and launches workers (docs/protocol.md, "An agent's
// life").
#include <csignal>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/agent/agent_machine_fixture.h"

namespace gavel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- hello and heartbeats

TEST_F(AgentMachineTest, DoesNothingBeforeItIsStarted) {
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  EXPECT_THAT(Tick(1), IsEmpty());
  EXPECT_THAT(Hear(1, Launch(Key(1, 1))), IsEmpty());
}

TEST_F(AgentMachineTest, SaysHelloWithItsAcceleratorsAndWhoRuns) {
  const auto hellos = MessagesOf<AgentHello>(Start(3));
  ASSERT_THAT(hellos, SizeIs(1));
  EXPECT_EQ(hellos[0].server, "node-1");
  EXPECT_EQ(hellos[0].incarnation, 4u);
  EXPECT_EQ(hellos[0].address, "127.0.0.1");
  EXPECT_EQ(hellos[0].accelerators, Options().accelerators);
  EXPECT_THAT(hellos[0].running, IsEmpty());
  EXPECT_THAT(MessagesOf<AgentHello>(Start(3)), IsEmpty());
}

TEST_F(AgentMachineTest, RepeatsHelloEachSecondUntilItIsWelcome) {
  Start(0);
  EXPECT_THAT(Tick(0.9), IsEmpty());
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(1)), SizeIs(1));
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(2)), SizeIs(1));
  Hear(2.1, Welcome());
  EXPECT_THAT(Tick(3), IsEmpty());
}

TEST_F(AgentMachineTest, AWelcomeOfAnotherServerIsNotItsOwn) {
  Start(0);
  AgentWelcome welcome = Welcome();
  welcome.server = "node-2";
  Hear(0.5, welcome);
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(1)), SizeIs(1));
}

TEST_F(AgentMachineTest, OnceWelcomeItSendsHeartbeatsAsOftenAsAsked) {
  Start(0);
  Hear(0.5, Welcome(3));
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 3.5);
  EXPECT_THAT(Tick(3.4), IsEmpty());
  const auto beats = MessagesOf<AgentHeartbeat>(Tick(3.5));
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_EQ(beats[0].server, "node-1");
  EXPECT_EQ(beats[0].incarnation, 4u);
  EXPECT_EQ(beats[0].highest_seen, position_);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 6.5);
}

TEST_F(AgentMachineTest, TheHeartbeatIntervalIsBounded) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double interval_s : {-1.0, 0.0, 1e9, double{kNever}, nan}) {
    machine_ = AgentMachine(Options());
    Start(0);
    Hear(0, Welcome(interval_s));
    EXPECT_GE(machine_.NextDeadline(), 0.1) << interval_s;
    EXPECT_LE(machine_.NextDeadline(), 60) << interval_s;
  }
}

TEST_F(AgentMachineTest, SaysHelloAgainWhenTheTermRises) {
  StartAndWelcome();
  LaunchAndStart(0, Key(1, 1), 100);
  position_ = {2, 0};
  const auto hellos = MessagesOf<AgentHello>(Hear(0.5, Stop(Key(9, 9), 1)));
  ASSERT_THAT(hellos, SizeIs(1));
  EXPECT_EQ(hellos[0].highest_seen, position_);
  EXPECT_THAT(hellos[0].running, ElementsAre(RunningWorker{Key(1, 1), 100}));
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(1.5)), SizeIs(1));  // until welcome
  Hear(2.1, Welcome());
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(3.1)), IsEmpty());
}

TEST_F(AgentMachineTest, AWelcomeThatNamesNobodyIsAnsweredByAHello) {
  StartAndWelcome();
  position_ = {2, 0};
  EXPECT_THAT(MessagesOf<AgentHello>(Hear(5, HelloWanted())), SizeIs(1));
  Hear(5.1, Welcome());  // this one answers it
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(6.1)), IsEmpty());
}

TEST_F(AgentMachineTest, ADoubledWelcomeChangesNothing) {
  StartAndWelcome();
  EXPECT_THAT(MessagesOf<AgentHello>(Hear(1, Welcome())), IsEmpty());
}

TEST_F(AgentMachineTest, ManyWishesForAHelloCauseAtMostOneASecond) {
  StartAndWelcome();
  size_t hellos = 0;
  for (Time now = 5; now < 10; now += 0.01) {
    hellos += MessagesOf<AgentHello>(Hear(now, HelloWanted())).size();
  }
  EXPECT_GE(hellos, 1u);
  EXPECT_LE(hellos, 6u);
}

TEST_F(AgentMachineTest, MessagesOfALowerTermAreIgnored) {
  position_ = {3, 0};
  StartAndWelcome();
  LaunchAndStart(0, Key(1, 1), 100);
  position_ = {2, 99};
  EXPECT_THAT(Hear(1, Launch(Key(2, 1))), IsEmpty());
  EXPECT_THAT(Hear(1, Stop(Key(1, 1), 0)), IsEmpty());
  EXPECT_THAT(Hear(1, AgentRejected{"node-1", position_, "no", 4}), IsEmpty());
  EXPECT_THAT(Hear(1, Welcome()), IsEmpty());
}

TEST_F(AgentMachineTest, MessagesToAnotherServerAreIgnored) {
  StartAndWelcome();
  LaunchWorker launch = Launch(Key(1, 1));
  launch.server = "node-2";
  EXPECT_THAT(Hear(1, launch), IsEmpty());
}

TEST_F(AgentMachineTest, ShowsTheHighestPositionThatItSaw) {
  StartAndWelcome();
  position_ = {1, 50};
  Hear(1, Launch(Key(1, 1)));
  position_ = {1, 40};
  Hear(1.1, Launch(Key(2, 1)));
  const auto beats = MessagesOf<AgentHeartbeat>(Tick(2));
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_EQ(beats[0].highest_seen, (JournalPosition{1, 50}));
}

// ---- launching

TEST_F(AgentMachineTest, LaunchesAProcessRecordsItAndSaysSo) {
  StartAndWelcome();
  const auto spawns =
      ActionsOf<agent_action::Spawn>(Hear(1, Launch(Key(1, 1))));
  ASSERT_THAT(spawns, SizeIs(1));
  EXPECT_THAT(spawns[0].launch.argv, ElementsAre("./train"));
  EXPECT_THAT(machine_.Running(), IsEmpty());
  EXPECT_FALSE(machine_.Idle());

  const AgentActions actions = Started(1.1, Key(1, 1), 100);
  const auto records = ActionsOf<agent_action::RecordRunning>(actions);
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_THAT(records[0].running, ElementsAre(RunningWorker{Key(1, 1), 100}));
  const auto launched = MessagesOf<WorkerLaunched>(actions);
  ASSERT_THAT(launched, SizeIs(1));
  EXPECT_EQ(launched[0].server, "node-1");
  EXPECT_EQ(launched[0].worker, Key(1, 1));
  EXPECT_EQ(launched[0].pid, 100);
}

TEST_F(AgentMachineTest, ARepeatedLaunchStartsNothingButIsAnswered) {
  StartAndWelcome();
  Hear(1, Launch(Key(1, 1)));
  EXPECT_THAT(Hear(1.05, Launch(Key(1, 1))), IsEmpty());
  Started(1.1, Key(1, 1), 100);
  const AgentActions actions = Hear(1.2, Launch(Key(1, 1)));
  EXPECT_THAT(SpawnsOf(actions), IsEmpty());
  EXPECT_THAT(MessagesOf<WorkerLaunched>(actions), SizeIs(1));
}

TEST_F(AgentMachineTest, RanksAndJobsRunBesideOneAnother) {
  StartAndWelcome();
  for (const WorkerKey& key : {Key(1, 1, 0), Key(1, 1, 1), Key(2, 1, 0)}) {
    EXPECT_THAT(SpawnsOf(Hear(1, Launch(key))), ElementsAre(key));
  }
}

TEST_F(AgentMachineTest, ALaunchThatFailsIsAnExitWithItsError) {
  StartAndWelcome();
  Hear(1, Launch(Key(1, 1)));
  const auto exits = MessagesOf<WorkerExited>(machine_.Step(
      1.1, agent_event::ProcessNotStarted{Key(1, 1), "./train: no such file"}));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].launch_error, "./train: no such file");
  EXPECT_TRUE(machine_.Idle());
  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(2.1)), SizeIs(1));
}

TEST_F(AgentMachineTest, AWorkerThatExitedIsNotStartedAgain) {
  StartAndWelcome();
  LaunchAndStart(1, Key(1, 1), 100);
  Exited(2, Key(1, 1), 3);
  const AgentActions before = Hear(2.1, Launch(Key(1, 1)));
  EXPECT_THAT(SpawnsOf(before), IsEmpty());
  const auto exits = MessagesOf<WorkerExited>(before);
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].exit_code, 3);
  EXPECT_EQ(exits[0].highest_seen, position_);
  // Nor when the launch is so late that the exit was acknowledged before it.
  Hear(2.2, Acknowledge(Key(1, 1)));
  EXPECT_THAT(Hear(2.3, Launch(Key(1, 1))), IsEmpty());
}

TEST_F(AgentMachineTest, AnOlderIncarnationIsKilledAndGoneBeforeANewerStarts) {
  StartAndWelcome();
  LaunchAndStart(1, Key(1, 1), 100);
  const AgentActions actions = Hear(2, Launch(Key(1, 2)));
  EXPECT_THAT(SignalsOf(actions), ElementsAre(SIGKILL));
  EXPECT_THAT(SpawnsOf(actions), IsEmpty());
  EXPECT_THAT(SpawnsOf(Hear(2.1, Launch(Key(1, 2)))), IsEmpty());
  EXPECT_FALSE(machine_.Idle());
  const AgentActions gone = Exited(3, Key(1, 1), 0, SIGKILL);
  EXPECT_THAT(MessagesOf<WorkerExited>(gone), SizeIs(1));
  EXPECT_THAT(SpawnsOf(gone), ElementsAre(Key(1, 2)));
  Started(3.1, Key(1, 2), 101);
  EXPECT_THAT(SpawnsOf(Exited(4, Key(1, 2), 1)), IsEmpty());
}

TEST_F(AgentMachineTest, AnOlderIncarnationThatIsStillStartingIsKilledFirst) {
  StartAndWelcome();
  Hear(1, Launch(Key(1, 1)));
  EXPECT_THAT(Hear(1.1, Launch(Key(1, 2))), IsEmpty());
  EXPECT_THAT(SignalsOf(Started(1.2, Key(1, 1), 100)), ElementsAre(SIGKILL));
  EXPECT_THAT(SpawnsOf(Exited(1.3, Key(1, 1), 0, SIGKILL)),
              ElementsAre(Key(1, 2)));
}

TEST_F(AgentMachineTest, AnOlderIncarnationInItsGraceIsNotWaitedFor) {
  StartAndWelcome();
  Hear(1, Launch(Key(1, 1)));
  Hear(1.1, Stop(Key(1, 1), 30));
  Hear(1.2, Launch(Key(1, 2)));
  EXPECT_THAT(SignalsOf(Started(1.3, Key(1, 1), 100)), ElementsAre(SIGKILL));
}

TEST_F(AgentMachineTest, ANewerStartsWhenTheOlderFailsToStart) {
  StartAndWelcome();
  Hear(1, Launch(Key(1, 1)));
  Hear(1.1, Launch(Key(1, 2)));
  EXPECT_THAT(SpawnsOf(machine_.Step(
                  1.2, agent_event::ProcessNotStarted{Key(1, 1), "no"})),
              ElementsAre(Key(1, 2)));
}

TEST_F(AgentMachineTest, OfTwoThatWaitOnlyTheNewestStarts) {
  StartAndWelcome();
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Launch(Key(1, 2)));
  const auto exits = MessagesOf<WorkerExited>(Hear(2.1, Launch(Key(1, 3))));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].worker, Key(1, 2));
  EXPECT_NE(exits[0].launch_error, "");
  EXPECT_THAT(SpawnsOf(Exited(3, Key(1, 1), 0, SIGKILL)),
              ElementsAre(Key(1, 3)));
}

TEST_F(AgentMachineTest, AnOlderIncarnationIsNeverStartedAfterANewer) {
  StartAndWelcome();
  LaunchAndStart(1, Key(1, 2), 100);
  EXPECT_THAT(Hear(1.5, Launch(Key(1, 1))), IsEmpty());
}

// ---- its end

TEST_F(AgentMachineTest, SaysEachSecondThatItLeavesUntilItIsGone) {
  StartAndWelcome();
  const auto leaves =
      MessagesOf<AgentLeaving>(machine_.Step(5, agent_event::Leaving{}));
  ASSERT_THAT(leaves, SizeIs(1));
  EXPECT_EQ(leaves[0].server, "node-1");
  EXPECT_EQ(leaves[0].incarnation, 4u);
  EXPECT_FALSE(leaves[0].gone);
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(5.9)), IsEmpty());
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(6)), SizeIs(1));
  const auto gone = MessagesOf<AgentLeaving>(
      machine_.Step(6.5, agent_event::Leaving{/*gone=*/true}));
  ASSERT_THAT(gone, SizeIs(1));
  EXPECT_TRUE(gone[0].gone);
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(9)), IsEmpty());
}

}  // namespace
}  // namespace gavel
