// One LeaseMachine, and the words that a coordinator would say to it.
#ifndef GAVEL_TESTS_LEASE_LEASE_MACHINE_FIXTURE_H_
#define GAVEL_TESTS_LEASE_LEASE_MACHINE_FIXTURE_H_

#include <variant>

#include "runtime/lease/lease_machine.h"
#include "tests/support/test.h"

namespace gavel {

inline const WorkerKey kWorker = {JobId(3), 1, 7};

inline Progress Steps(uint64_t steps_done) {
  Progress progress;
  progress.steps_done = steps_done;
  return progress;
}

template <class T>
std::vector<T> MessagesOf(const LeaseActions& actions) {
  std::vector<T> found;
  for (const LeaseAction& action : actions) {
    const auto* send = std::get_if<lease_action::Send>(&action);
    if (send == nullptr) continue;
    if (const T* m = std::get_if<T>(&send->message)) found.push_back(*m);
  }
  return found;
}

template <class T>
std::vector<T> ActionsOf(const LeaseActions& actions) {
  std::vector<T> found;
  for (const LeaseAction& action : actions) {
    if (const T* a = std::get_if<T>(&action)) found.push_back(*a);
  }
  return found;
}

// The one that there is to be of it.
template <class T>
T OnlyMessage(const LeaseActions& actions) {
  const std::vector<T> found = MessagesOf<T>(actions);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? T() : found.front();
}
template <class T>
T OnlyAction(const LeaseActions& actions) {
  const std::vector<T> found = ActionsOf<T>(actions);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? T() : found.front();
}

class LeaseMachineTest : public Test {
 protected:
  LeaseMachineTest() : machine_({.worker = kWorker}) {}

  LeaseActions Step(Time now, LeaseEvent event) {
    LeaseActions actions = machine_.Step(now, event);
    const auto requests = MessagesOf<LeaseRequest>(actions);
    if (!requests.empty()) last_request_ = requests.back();
    return actions;
  }
  LeaseActions Tick(Time now) { return Step(now, lease_event::Tick{}); }
  LeaseActions Hear(Time now, Message message) {
    return Step(now, lease_event::MessageReceived{std::move(message)});
  }
  LeaseActions Start(Time now) {
    return Step(now, lease_event::Started{Steps(40), 4711});
  }

  LeaseGrant Grant(uint64_t epoch, double duration_s = 60) {
    LeaseGrant grant;
    grant.worker = kWorker;
    grant.position = position_;
    grant.epoch = epoch;
    grant.nonce = last_request_.nonce;
    grant.duration_s = duration_s;
    grant.accelerator.uuid = "gpu-0";
    grant.slots = 1;
    grant.world_size = 2;
    grant.gang_address = "10.0.0.7:4100";
    return grant;
  }
  LeaseDenied Denied(uint64_t epoch, double retry_after_s) {
    return {kWorker, position_, epoch, last_request_.nonce, retry_after_s};
  }
  LeaseNotice Notice(uint64_t epoch) { return {kWorker, position_, epoch}; }
  PauseRequest PauseOf(uint64_t epoch, PauseTier tier = PauseTier::kPark) {
    return {kWorker, position_, epoch, tier};
  }
  WorkerRejected Rejected() { return {kWorker, position_, "unknown job"}; }

  // Started at 0, granted epoch 5 for 60 s by the request of time 0, training.
  void Run() {
    Start(0);
    Hear(0.1, Grant(5));
    Step(0.2, lease_event::Resumed{5});
    ASSERT_EQ(machine_.state(), LeaseMachine::State::kRunning);
  }
  // The same, parked at 10 by the coordinator.
  void RunAndPark() {
    Run();
    Hear(9, PauseOf(5));
    Step(10, lease_event::Parked{5, Steps(90)});
    ASSERT_EQ(machine_.state(), LeaseMachine::State::kWaiting);
  }

  JournalPosition position_ = {1, 10};
  LeaseMachine machine_;
  LeaseRequest last_request_;
};

// The same, started at 0.
class StartedLease : public LeaseMachineTest {
 protected:
  StartedLease() { Start(0); }
};

// The same, training.
class RunningLease : public LeaseMachineTest {
 protected:
  void SetUp() override { Run(); }
};

}  // namespace gavel

#endif  // GAVEL_TESTS_LEASE_LEASE_MACHINE_FIXTURE_H_
