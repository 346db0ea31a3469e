// One AgentMachine, and the words that a coordinator would say to it.
#ifndef GAVEL_TESTS_AGENT_AGENT_MACHINE_FIXTURE_H_
#define GAVEL_TESTS_AGENT_AGENT_MACHINE_FIXTURE_H_

#include <variant>

#include "coordinator/agent/agent_machine.h"
#include "tests/support/test.h"

namespace gavel {

inline WorkerKey Key(uint64_t job, uint64_t incarnation, int rank = 0) {
  return {JobId(job), rank, incarnation};
}

template <class T>
std::vector<T> ActionsOf(const AgentActions& actions) {
  std::vector<T> found;
  for (const AgentAction& action : actions) {
    if (const T* a = std::get_if<T>(&action)) found.push_back(*a);
  }
  return found;
}

template <class T>
std::vector<T> MessagesOf(const AgentActions& actions) {
  std::vector<T> found;
  for (const auto& send : ActionsOf<agent_action::Send>(actions)) {
    if (const T* m = std::get_if<T>(&send.message)) found.push_back(*m);
  }
  return found;
}

// The one that there is to be of it.
template <class T>
T OnlyAction(const AgentActions& actions) {
  const std::vector<T> found = ActionsOf<T>(actions);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? T() : found.front();
}
template <class T>
T OnlyMessage(const AgentActions& actions) {
  const std::vector<T> found = MessagesOf<T>(actions);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? T() : found.front();
}
inline std::vector<WorkerKey> SpawnsOf(const AgentActions& actions) {
  std::vector<WorkerKey> found;
  for (const auto& spawn : ActionsOf<agent_action::Spawn>(actions)) {
    found.push_back(spawn.launch.worker);
  }
  return found;
}

inline std::vector<int> SignalsOf(const AgentActions& actions) {
  std::vector<int> found;
  for (const auto& s : ActionsOf<agent_action::SignalProcess>(actions)) {
    found.push_back(s.signal);
  }
  return found;
}

inline AgentOptions Options() {
  AgentOptions options;
  options.server = "node-1";
  options.incarnation = 4;
  options.address = "127.0.0.1";
  options.accelerators.resize(1);
  options.accelerators[0].uuid = "cpu-0";
  return options;
}

class AgentMachineTest : public Test {
 protected:
  AgentMachineTest() : machine_(Options()) {}

  AgentActions Tick(Time now) {
    return machine_.Step(now, agent_event::Tick{});
  }
  AgentActions Hear(Time now, Message message) {
    return machine_.Step(now, agent_event::MessageReceived{std::move(message)});
  }
  AgentActions Start(Time now, std::vector<RunningWorker> swept = {}) {
    return machine_.Step(now, agent_event::Started{std::move(swept)});
  }
  void StartAndWelcome() {
    Start(0);
    Hear(0, Welcome());
  }
  AgentActions Started(Time now, const WorkerKey& worker, int64_t pid) {
    return machine_.Step(now, agent_event::ProcessStarted{worker, pid});
  }
  AgentActions Exited(Time now, const WorkerKey& worker, int exit_code,
                      int signal = 0) {
    return machine_.Step(now,
                         agent_event::ProcessExited{worker, exit_code, signal});
  }
  void LaunchAndStart(Time now, const WorkerKey& worker, int64_t pid) {
    Hear(now, Launch(worker));
    Started(now, worker, pid);
  }

  AgentWelcome Welcome(double heartbeat_s = 2) {
    return {"node-1", position_, heartbeat_s, 4};
  }
  AgentWelcome HelloWanted() { return {"node-1", position_, 2}; }
  LaunchWorker Launch(const WorkerKey& worker) {
    LaunchWorker launch;
    launch.server = "node-1";
    launch.worker = worker;
    launch.position = position_;
    launch.argv = {"./train"};
    return launch;
  }
  StopWorker Stop(const WorkerKey& worker, double grace_s) {
    return {"node-1", worker, position_, grace_s};
  }
  static ExitAcknowledged Acknowledge(const WorkerKey& worker) {
    return {"node-1", worker};
  }

  JournalPosition position_ = {1, 10};
  AgentMachine machine_;
};

// The same, started and welcome.
class WelcomeAgent : public AgentMachineTest {
 protected:
  WelcomeAgent() { StartAndWelcome(); }
};

}  // namespace gavel

#endif  // GAVEL_TESTS_AGENT_AGENT_MACHINE_FIXTURE_H_
