// How an agent is welcomed and launches workers (docs/protocol.md, "An agent's
// life").
#include <csignal>
#include <limits>

#include "tests/agent/agent_machine_fixture.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// ---- hello and heartbeats

TEST_F(AgentMachineTest, DoesNothingBeforeItIsStarted) {
  EXPECT_EQ(machine_.NextDeadline(), kNever);
  EXPECT_THAT(Tick(1), IsEmpty());
  EXPECT_THAT(Hear(1, Launch(Key(1, 1))), IsEmpty());
}

TEST_F(AgentMachineTest, SaysHelloWithItsAcceleratorsAndWhoRuns) {
  const auto hellos = OnlyMessage<AgentHello>(Start(3));
  EXPECT_EQ(hellos.server, "node-1");
  EXPECT_EQ(hellos.incarnation, 4u);
  EXPECT_EQ(hellos.address, "127.0.0.1");
  EXPECT_EQ(hellos.accelerators, Options().accelerators);
  EXPECT_THAT(hellos.running, IsEmpty());
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
  const auto beats = OnlyMessage<AgentHeartbeat>(Tick(3.5));
  EXPECT_EQ(beats.server, "node-1");
  EXPECT_EQ(beats.incarnation, 4u);
  EXPECT_EQ(beats.highest_seen, position_);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 6.5);
}

TEST_F(AgentMachineTest, AReadingOfHealthGoesOutOnceWithTheNextHeartbeat) {
  Start(0);
  Hear(0.5, Welcome(3));
  AcceleratorHealth health;
  health.uuid = "GPU-aa";
  health.temperature_c = 70;
  EXPECT_THAT(machine_.Step(1, agent_event::HealthRead{{health}}), IsEmpty());
  EXPECT_THAT(OnlyMessage<AgentHeartbeat>(Tick(3.5)).health,
              ElementsAre(health));
  EXPECT_THAT(OnlyMessage<AgentHeartbeat>(Tick(6.5)).health, IsEmpty());
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

TEST_F(WelcomeAgent, SaysHelloAgainWhenTheTermRises) {
  LaunchAndStart(0, Key(1, 1), 100);
  position_ = {2, 0};
  const auto hellos = OnlyMessage<AgentHello>(Hear(0.5, Stop(Key(9, 9), 1)));
  EXPECT_EQ(hellos.highest_seen, position_);
  EXPECT_THAT(hellos.running, ElementsAre(RunningWorker{Key(1, 1), 100}));
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(1.5)), SizeIs(1));  // until welcome
  Hear(2.1, Welcome());
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(3.1)), IsEmpty());
}

TEST_F(WelcomeAgent, AWelcomeThatNamesNobodyIsAnsweredByAHello) {
  position_ = {2, 0};
  EXPECT_THAT(MessagesOf<AgentHello>(Hear(5, HelloWanted())), SizeIs(1));
  Hear(5.1, Welcome());  // this one answers it
  EXPECT_THAT(MessagesOf<AgentHello>(Tick(6.1)), IsEmpty());
}

TEST_F(WelcomeAgent, ADoubledWelcomeChangesNothing) {
  EXPECT_THAT(MessagesOf<AgentHello>(Hear(1, Welcome())), IsEmpty());
}

TEST_F(WelcomeAgent, ManyWishesForAHelloCauseAtMostOneASecond) {
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

TEST_F(WelcomeAgent, MessagesToAnotherServerAreIgnored) {
  LaunchWorker launch = Launch(Key(1, 1));
  launch.server = "node-2";
  EXPECT_THAT(Hear(1, launch), IsEmpty());
}

TEST_F(WelcomeAgent, ShowsTheHighestPositionThatItSaw) {
  position_ = {1, 50};
  Hear(1, Launch(Key(1, 1)));
  position_ = {1, 40};
  Hear(1.1, Launch(Key(2, 1)));
  const auto beats = OnlyMessage<AgentHeartbeat>(Tick(2));
  EXPECT_EQ(beats.highest_seen, (JournalPosition{1, 50}));
}

// ---- launching

TEST_F(WelcomeAgent, LaunchesAProcessRecordsItAndSaysSo) {
  const auto spawns =
      OnlyAction<agent_action::Spawn>(Hear(1, Launch(Key(1, 1))));
  EXPECT_THAT(spawns.launch.argv, ElementsAre("./train"));
  EXPECT_THAT(machine_.Running(), IsEmpty());
  EXPECT_FALSE(machine_.Idle());

  const AgentActions actions = Started(1.1, Key(1, 1), 100);
  const auto records = OnlyAction<agent_action::RecordRunning>(actions);
  EXPECT_THAT(records.running, ElementsAre(RunningWorker{Key(1, 1), 100}));
  const auto launched = OnlyMessage<WorkerLaunched>(actions);
  EXPECT_EQ(launched.server, "node-1");
  EXPECT_EQ(launched.worker, Key(1, 1));
  EXPECT_EQ(launched.pid, 100);
}

// The coordinator took its process for gone when it heard the first hello.
TEST_F(AgentMachineTest, ALaunchThatTheFirstWelcomeHasOvertakenIsIgnored) {
  Start(0);
  position_ = {1, 9};
  const LaunchWorker overtaken = Launch(Key(1, 1));
  position_ = {1, 10};
  const LaunchWorker next = Launch(Key(1, 2));
  Hear(0.1, Welcome());
  EXPECT_THAT(SpawnsOf(Hear(0.2, overtaken)), IsEmpty());
  EXPECT_THAT(SpawnsOf(Hear(0.3, next)), ElementsAre(Key(1, 2)));
  // No process is taken for gone on a later hello.
  position_ = {1, 20};
  const LaunchWorker since = Launch(Key(2, 1));
  position_ = {1, 30};
  Hear(0.4, Welcome());
  EXPECT_THAT(SpawnsOf(Hear(0.5, since)), ElementsAre(Key(2, 1)));
}

TEST_F(WelcomeAgent, ARepeatedLaunchStartsNothingButIsAnswered) {
  Hear(1, Launch(Key(1, 1)));
  EXPECT_THAT(Hear(1.05, Launch(Key(1, 1))), IsEmpty());
  Started(1.1, Key(1, 1), 100);
  const AgentActions actions = Hear(1.2, Launch(Key(1, 1)));
  EXPECT_THAT(SpawnsOf(actions), IsEmpty());
  EXPECT_THAT(MessagesOf<WorkerLaunched>(actions), SizeIs(1));
}

TEST_F(WelcomeAgent, RanksAndJobsRunBesideOneAnother) {
  for (const WorkerKey& key : {Key(1, 1, 0), Key(1, 1, 1), Key(2, 1, 0)}) {
    EXPECT_THAT(SpawnsOf(Hear(1, Launch(key))), ElementsAre(key));
  }
}

TEST_F(WelcomeAgent, ALaunchThatFailsIsAnExitWithItsError) {
  Hear(1, Launch(Key(1, 1)));
  const auto exits = OnlyMessage<WorkerExited>(machine_.Step(
      1.1, agent_event::ProcessNotStarted{Key(1, 1), "./train: no such file"}));
  EXPECT_EQ(exits.launch_error, "./train: no such file");
  EXPECT_TRUE(machine_.Idle());
  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(2.1)), SizeIs(1));
}

TEST_F(WelcomeAgent, AWorkerThatExitedIsNotStartedAgain) {
  LaunchAndStart(1, Key(1, 1), 100);
  Exited(2, Key(1, 1), 3);
  const AgentActions before = Hear(2.1, Launch(Key(1, 1)));
  EXPECT_THAT(SpawnsOf(before), IsEmpty());
  const auto exits = OnlyMessage<WorkerExited>(before);
  EXPECT_EQ(exits.exit_code, 3);
  EXPECT_EQ(exits.highest_seen, position_);
  // Nor when the launch is so late that the exit was acknowledged before it.
  Hear(2.2, Acknowledge(Key(1, 1)));
  EXPECT_THAT(Hear(2.3, Launch(Key(1, 1))), IsEmpty());
}

TEST_F(WelcomeAgent, AnOlderIncarnationIsKilledAndGoneBeforeANewerStarts) {
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

TEST_F(WelcomeAgent, AnOlderIncarnationThatIsStillStartingIsKilledFirst) {
  Hear(1, Launch(Key(1, 1)));
  EXPECT_THAT(Hear(1.1, Launch(Key(1, 2))), IsEmpty());
  EXPECT_THAT(SignalsOf(Started(1.2, Key(1, 1), 100)), ElementsAre(SIGKILL));
  EXPECT_THAT(SpawnsOf(Exited(1.3, Key(1, 1), 0, SIGKILL)),
              ElementsAre(Key(1, 2)));
}

TEST_F(WelcomeAgent, AnOlderIncarnationInItsGraceIsNotWaitedFor) {
  Hear(1, Launch(Key(1, 1)));
  Hear(1.1, Stop(Key(1, 1), 30));
  Hear(1.2, Launch(Key(1, 2)));
  EXPECT_THAT(SignalsOf(Started(1.3, Key(1, 1), 100)), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, ANewerStartsWhenTheOlderFailsToStart) {
  Hear(1, Launch(Key(1, 1)));
  Hear(1.1, Launch(Key(1, 2)));
  EXPECT_THAT(SpawnsOf(machine_.Step(
                  1.2, agent_event::ProcessNotStarted{Key(1, 1), "no"})),
              ElementsAre(Key(1, 2)));
}

TEST_F(WelcomeAgent, OfTwoThatWaitOnlyTheNewestStarts) {
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Launch(Key(1, 2)));
  const auto exits = OnlyMessage<WorkerExited>(Hear(2.1, Launch(Key(1, 3))));
  EXPECT_EQ(exits.worker, Key(1, 2));
  EXPECT_NE(exits.launch_error, "");
  EXPECT_THAT(SpawnsOf(Exited(3, Key(1, 1), 0, SIGKILL)),
              ElementsAre(Key(1, 3)));
}

TEST_F(WelcomeAgent, AnOlderIncarnationIsNeverStartedAfterANewer) {
  LaunchAndStart(1, Key(1, 2), 100);
  EXPECT_THAT(Hear(1.5, Launch(Key(1, 1))), IsEmpty());
}

// ---- its end

TEST_F(WelcomeAgent, SaysEachSecondThatItLeavesUntilItIsGone) {
  const auto leaves =
      OnlyMessage<AgentLeaving>(machine_.Step(5, agent_event::Leaving{}));
  EXPECT_EQ(leaves.server, "node-1");
  EXPECT_EQ(leaves.incarnation, 4u);
  EXPECT_FALSE(leaves.gone);
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(5.9)), IsEmpty());
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(6)), SizeIs(1));
  const auto gone = OnlyMessage<AgentLeaving>(
      machine_.Step(6.5, agent_event::Leaving{/*gone=*/true}));
  EXPECT_TRUE(gone.gone);
  EXPECT_THAT(MessagesOf<AgentLeaving>(Tick(9)), IsEmpty());
}

}  // namespace
}  // namespace gavel
