// Tests how an agent stops workers and reports their ends (docs/protocol.md,
// "An agent's life").
#include <csignal>

#include "tests/agent/agent_machine_fixture.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// ---- stopping

TEST_F(WelcomeAgent, StopSendsSigtermAndAfterTheGraceSigkill) {
  LaunchAndStart(1, Key(1, 1), 100);
  const auto signals =
      OnlyAction<agent_action::SignalProcess>(Hear(2, Stop(Key(1, 1), 1.5)));
  EXPECT_EQ(signals.worker, Key(1, 1));
  EXPECT_EQ(signals.pid, 100);
  EXPECT_EQ(signals.signal, SIGTERM);
  EXPECT_THAT(SignalsOf(Tick(3.4)), IsEmpty());
  EXPECT_THAT(SignalsOf(Tick(3.5)), ElementsAre(SIGKILL));
  EXPECT_THAT(SignalsOf(Tick(9)), IsEmpty());
}

TEST_F(AgentMachineTest, AnExitTellsWhetherItWasAskedFor) {
  for (const bool stopped : {false, true}) {
    machine_ = AgentMachine(Options());
    StartAndWelcome();
    LaunchAndStart(1, Key(1, 1), 100);
    if (stopped) Hear(2, Stop(Key(1, 1), 5));
    const auto exits =
        OnlyMessage<WorkerExited>(Exited(3, Key(1, 1), 0, SIGKILL));
    EXPECT_EQ(exits.stopped, stopped);
  }
}

TEST_F(WelcomeAgent, StopWithoutGraceKillsAtOnce) {
  LaunchAndStart(1, Key(1, 1), 100);
  EXPECT_THAT(SignalsOf(Hear(2, Stop(Key(1, 1), 0))), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, RepeatedStopsNeverLengthenTheGrace) {
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Stop(Key(1, 1), 10));
  EXPECT_THAT(SignalsOf(Hear(5, Stop(Key(1, 1), 10))), IsEmpty());
  EXPECT_THAT(SignalsOf(Hear(6, Stop(Key(1, 1), 1))), IsEmpty());
  EXPECT_THAT(SignalsOf(Tick(7)), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, ALaterStopDoesNotPostponeTheKill) {
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Stop(Key(1, 1), 10));
  Hear(5, Stop(Key(1, 1), 10));
  EXPECT_THAT(SignalsOf(Tick(12)), ElementsAre(SIGKILL));
}

TEST_F(AgentMachineTest, AStopAfterTheKillIsWithoutEffect) {
  Start(0);
  Hear(0, Welcome(60));
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Stop(Key(1, 1), 0));
  EXPECT_THAT(Hear(3, Stop(Key(1, 1), 5)), IsEmpty());
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 60);
}

TEST_F(WelcomeAgent, ALaterStopDoesNotLengthenTheGraceOfAStart) {
  Hear(1, Launch(Key(1, 1)));
  Hear(1.1, Stop(Key(1, 1), 2));
  Hear(1.2, Stop(Key(1, 1), 20));
  Started(5, Key(1, 1), 100);
  EXPECT_THAT(SignalsOf(Tick(7)), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, AnEndlessGraceEnds) {
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Stop(Key(1, 1), kNever));
  EXPECT_THAT(SignalsOf(Tick(2 + 24 * 3600.0)), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, AStopBeforeTheProcessStartedStopsItWhenItHas) {
  Hear(1, Launch(Key(1, 1)));
  EXPECT_THAT(SignalsOf(Hear(1.1, Stop(Key(1, 1), 2))), IsEmpty());
  EXPECT_THAT(SignalsOf(Started(5, Key(1, 1), 100)), ElementsAre(SIGTERM));
  EXPECT_THAT(SignalsOf(Tick(6.9)), IsEmpty());
  EXPECT_THAT(SignalsOf(Tick(7)), ElementsAre(SIGKILL));
}

TEST_F(WelcomeAgent, AStopOfAWaitingLaunchCancelsIt) {
  LaunchAndStart(1, Key(1, 1), 100);
  Hear(2, Launch(Key(1, 2)));
  const auto exits = OnlyMessage<WorkerExited>(Hear(2.1, Stop(Key(1, 2), 0)));
  EXPECT_EQ(exits.worker, Key(1, 2));
  EXPECT_EQ(exits.launch_error, "stopped before it started");
  EXPECT_THAT(SpawnsOf(Exited(3, Key(1, 1), 0, SIGKILL)), IsEmpty());
}

TEST_F(WelcomeAgent, AStopOfWhoDoesNotRunIsAnsweredByItsExit) {
  const auto exits = OnlyMessage<WorkerExited>(Hear(1, Stop(Key(5, 2), 1)));
  EXPECT_EQ(exits.worker, Key(5, 2));
  EXPECT_NE(exits.launch_error, "");
  // A launch of that worker that arrives late must not make the answer false.
  EXPECT_THAT(SpawnsOf(Hear(1.1, Launch(Key(5, 2)))), IsEmpty());
  EXPECT_THAT(SpawnsOf(Hear(1.2, Launch(Key(5, 3)))), ElementsAre(Key(5, 3)));
}

// Until its own hello is answered, an agent can't know which workers an earlier
// agent left running, so it answers no stop. The welcome of another incarnation
// or state directory does not count, nor does a request for a hello.
TEST_F(AgentMachineTest, AStopBeforeItsOwnWelcomeIsNotAnswered) {
  Start(0);
  AgentWelcome to_another = Welcome();
  to_another.incarnation = 3;
  AgentWelcome to_another_directory = Welcome();
  to_another_directory.state_id = "another";
  for (const AgentWelcome& welcome :
       {HelloWanted(), to_another, to_another_directory}) {
    Hear(0, welcome);
    EXPECT_THAT(Hear(0, Stop(Key(1, 1), 0)), IsEmpty());
    EXPECT_THAT(SpawnsOf(Hear(0, Launch(Key(2, 1)))), IsEmpty());
  }
  Hear(0, Welcome());
  EXPECT_THAT(MessagesOf<WorkerExited>(Hear(0, Stop(Key(1, 1), 0))), SizeIs(1));
}

TEST_F(WelcomeAgent, AStopOfWhoExitedRepeatsHowItEnded) {
  LaunchAndStart(1, Key(1, 1), 100);
  Exited(2, Key(1, 1), 0);
  const auto exits = OnlyMessage<WorkerExited>(Hear(2.1, Stop(Key(1, 1), 0)));
  EXPECT_EQ(exits.launch_error, "");
}

// ---- exits

TEST_F(WelcomeAgent, ExitsAreRecordedAndRepeatedUntilAcknowledged) {
  LaunchAndStart(1, Key(1, 1), 100);
  const AgentActions actions = Exited(2, Key(1, 1), 75);
  const auto records = OnlyAction<agent_action::RecordRunning>(actions);
  EXPECT_THAT(records.running, IsEmpty());
  const auto exits = OnlyMessage<WorkerExited>(actions);
  EXPECT_EQ(exits.server, "node-1");
  EXPECT_EQ(exits.exit_code, 75);
  EXPECT_EQ(exits.signal, 0);
  EXPECT_TRUE(machine_.Idle());

  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(2.9)), IsEmpty());
  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(3)), SizeIs(1));
  Hear(3.5, Acknowledge(Key(1, 2)));
  Hear(3.5, ExitAcknowledged{"node-2", Key(1, 1)});
  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(4)), SizeIs(1));
  Hear(4.5, Acknowledge(Key(1, 1)));
  EXPECT_THAT(MessagesOf<WorkerExited>(Tick(5)), IsEmpty());
}

TEST_F(AgentMachineTest, TheNextDeadlineIsTheNextReportOfAnExit) {
  Start(0);
  Hear(0, Welcome(60));
  LaunchAndStart(1, Key(1, 1), 100);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 60);
  Exited(2, Key(1, 1), 0);
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 3);
  Hear(2.5, Acknowledge(Key(1, 1)));
  EXPECT_DOUBLE_EQ(machine_.NextDeadline(), 60);
}

TEST_F(WelcomeAgent, AnExitTellsTheSignal) {
  LaunchAndStart(1, Key(1, 1), 100);
  const auto exits =
      OnlyMessage<WorkerExited>(Exited(2, Key(1, 1), 0, SIGSEGV));
  EXPECT_EQ(exits.signal, SIGSEGV);
}

TEST_F(WelcomeAgent, EventsOfUnknownProcessesAreIgnored) {
  EXPECT_THAT(Exited(1, Key(8, 1), 0), IsEmpty());
  EXPECT_THAT(Started(1, Key(8, 1), 100), IsEmpty());
  LaunchAndStart(1, Key(1, 1), 100);
  EXPECT_THAT(Started(1, Key(1, 1), 101), IsEmpty());
  EXPECT_THAT(machine_.Running(), ElementsAre(RunningWorker{Key(1, 1), 100}));
}

TEST_F(AgentMachineTest, WhatWasSweptIsToldBeforeTheHello) {
  const AgentActions actions = Start(0, {{Key(1, 1), 77}});
  const auto records = OnlyAction<agent_action::RecordRunning>(actions);
  EXPECT_THAT(records.running, IsEmpty());
  const auto sends = ActionsOf<agent_action::Send>(actions);
  ASSERT_THAT(sends, SizeIs(2));
  const auto* exit = std::get_if<WorkerExited>(&sends[0].message);
  ASSERT_NE(exit, nullptr);
  EXPECT_EQ(exit->worker, Key(1, 1));
  EXPECT_EQ(exit->signal, SIGKILL);
  EXPECT_TRUE(std::holds_alternative<AgentHello>(sends[1].message));
  EXPECT_THAT(SpawnsOf(Hear(0.1, Launch(Key(1, 1)))), IsEmpty());
  Hear(0.2, Acknowledge(Key(1, 1)));
  EXPECT_THAT(SpawnsOf(Hear(0.3, Launch(Key(1, 1)))), IsEmpty());
}

// ---- rejected

TEST_F(WelcomeAgent, RejectedItKillsAllAndQuits) {
  LaunchAndStart(1, Key(1, 1), 100);
  LaunchAndStart(1, Key(2, 1), 101);
  Hear(1, Launch(Key(2, 2)));  // waits, and kills 101
  Hear(1, Launch(Key(3, 1)));  // is starting
  const AgentActions actions =
      Hear(2, AgentRejected{"node-1", position_, "node-1 is there already", 4});
  EXPECT_THAT(SignalsOf(actions), ElementsAre(SIGKILL));
  const auto quits = OnlyAction<agent_action::Quit>(actions);
  EXPECT_EQ(quits.reason, "node-1 is there already");

  // The worker that was starting is killed, too, and the waiting one never
  // starts.
  EXPECT_THAT(SignalsOf(Started(2.1, Key(3, 1), 102)), ElementsAre(SIGKILL));
  EXPECT_THAT(ActionsOf<agent_action::Send>(Exited(2.2, Key(2, 1), 0, SIGKILL)),
              IsEmpty());
  EXPECT_FALSE(machine_.Idle());
  Exited(2.2, Key(1, 1), 0, SIGKILL);
  Exited(2.2, Key(3, 1), 0, SIGKILL);
  EXPECT_TRUE(machine_.Idle());
  EXPECT_EQ(machine_.NextDeadline(), kNever);
}

TEST_F(WelcomeAgent, AfterQuittingItSaysAndTakesNothing) {
  const AgentRejected rejected{"node-1", position_, "no", 4};
  Hear(2, rejected);
  EXPECT_THAT(Hear(2.1, rejected), IsEmpty());
  EXPECT_THAT(Hear(3, Launch(Key(1, 1))), IsEmpty());
  EXPECT_THAT(Tick(10), IsEmpty());
  EXPECT_EQ(machine_.NextDeadline(), kNever);
}

// Agents count their incarnations in each state directory anew. The answer to
// the late hello of an agent that was lost with its directory is not for this
// one.
TEST_F(WelcomeAgent, ARejectionOfAnotherStateDirectorysAgentIsIgnored) {
  LaunchAndStart(1, Key(1, 1), 100);
  const AgentActions actions =
      Hear(2, AgentRejected{"node-1", position_, "a newer one", 4, "lost"});
  EXPECT_THAT(ActionsOf<agent_action::Quit>(actions), IsEmpty());
  EXPECT_THAT(SignalsOf(actions), IsEmpty());
  EXPECT_FALSE(machine_.Idle());
}

// ---- time

TEST_F(AgentMachineTest, ATickAtTheDeadlineAlwaysMovesIt) {
  Start(0);
  for (int i = 0; i < 200; ++i) {
    const Time next = machine_.NextDeadline();
    if (i == 20) Hear(next, Welcome(0));
    if (i == 40) LaunchAndStart(next, Key(1, 1), 100);
    if (i == 60) Hear(next, Stop(Key(1, 1), 2));
    if (i == 120) Exited(next, Key(1, 1), 0, SIGKILL);
    const Time due = machine_.NextDeadline();
    EXPECT_THAT(Tick(due), Not(IsEmpty()));
    ASSERT_GT(machine_.NextDeadline(), due);
  }
}

}  // namespace
}  // namespace gavel
