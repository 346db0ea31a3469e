// The lease of a training program without LibTorch, held by the real lease
// machine over the real transport, all on the training thread. For fakes.
#ifndef GAVEL_TESTS_SUPPORT_FAKE_LEASE_H_
#define GAVEL_TESTS_SUPPORT_FAKE_LEASE_H_

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/messages.h"
#include "runtime/lease/lease_machine.h"
#include "runtime/transport/dealer_router.h"

namespace gavel::testing {

class FakeLease {
 public:
  // `on_pause` is called at each pause, before the accelerator is given back.
  FakeLease(const std::string& coordinator, std::function<void()> on_pause)
      : on_pause_(std::move(on_pause)),
        machine_(LeaseOptions{WorkerKey{JobId(1), 0, 1}}) {
    auto dealer = Dealer::Connect(coordinator);
    if (!dealer.ok()) std::abort();
    dealer_ = *std::move(dealer);
    dealer_->WaitUntilConnected(1);
    Step(lease_event::Started{{}, getpid()});
  }

  // Returns once the accelerator is held. Pauses wait here.
  void Boundary(uint64_t steps_done) {
    progress_.steps_done = steps_done;
    do {
      Turn(running_ ? 0 : 0.005);
    } while (!running_);
  }

  void Finish(int exit_code) {
    Step(lease_event::Finished{exit_code, "", progress_});
    dealer_->Receive(0.05).IgnoreError();  // for the last messages to leave
  }

  double slow_down_factor() const { return slow_down_factor_; }

 private:
  Time Now() const {
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - started_;
    return elapsed.count();
  }

  void Turn(double wait_s) {
    while (true) {
      const auto message = dealer_->Receive(wait_s);
      if (!message.ok() || !message->has_value()) break;
      Step(lease_event::MessageReceived{**message});
      wait_s = 0;
    }
    if (Now() >= machine_.NextDeadline()) Step(lease_event::Tick{});
  }

  void Step(const LeaseEvent& event) {
    for (const LeaseAction& action : machine_.Step(Now(), event)) {
      std::visit([this](const auto& a) { Carry(a); }, action);
    }
  }
  void Carry(const lease_action::Send& action) {
    dealer_->Send(action.message).IgnoreError();
  }
  void Carry(const lease_action::Resume& action) {
    running_ = true;
    epoch_ = action.epoch;
    slow_down_factor_ = action.accelerator.slow_down_factor;
    Step(lease_event::Resumed{action.epoch});
  }
  void Carry(const lease_action::Extend&) {}
  void Carry(const lease_action::Checkpoint&) {}
  void Carry(const lease_action::Pause&) {
    if (!std::exchange(running_, false)) return;
    on_pause_();
    Step(lease_event::Parked{epoch_, progress_});
  }

  const std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
  const std::function<void()> on_pause_;
  LeaseMachine machine_;
  std::unique_ptr<Dealer> dealer_;
  Progress progress_;
  bool running_ = false;
  uint64_t epoch_ = 0;
  double slow_down_factor_ = 1;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_FAKE_LEASE_H_
