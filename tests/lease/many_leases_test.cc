// A thousand lease machines at once: a coordinator has to answer all of them.
#include <array>

#include "runtime/lease/lease_machine.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// Granted or told at once, they do not all ask at once.
class ManyLeases : public Test {
 protected:
  static constexpr int kMachines = 1000;

  ManyLeases() {
    for (int i = 0; i < kMachines; ++i) {
      keys_.push_back({JobId(static_cast<uint64_t>(i) / 10 + 1), i % 10, 1});
      machines_.emplace_back(LeaseOptions{keys_.back()});
      machines_.back().Step(0, lease_event::Started{Progress(), 1});
    }
  }
  void Grant(Time now, uint64_t nonce, double duration_s) {
    for (int i = 0; i < kMachines; ++i) {
      LeaseGrant grant;
      grant.worker = keys_[i];
      grant.epoch = 5;
      grant.nonce = nonce;
      grant.duration_s = duration_s;
      grant.world_size = world_size_;
      grant.extension_lead_s = extension_lead_s_;
      machines_[i].Step(now, lease_event::MessageReceived{grant});
    }
  }
  void Tell(Time now) {
    for (int i = 0; i < kMachines; ++i) {
      const LeaseNotice notice{keys_[i], {0, 0}, 5};
      machines_[i].Step(now, lease_event::MessageReceived{notice});
    }
  }
  // No tenth of this time is asked in by more than a fifth of them, and by
  // fewer than a twentieth.
  void ExpectSpread(Time from, Time to) {
    std::array<int, 10> asked{};
    for (const LeaseMachine& machine : machines_) {
      const double at = 10 * (machine.NextDeadline() - from) / (to - from);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, 10);
      ++asked[static_cast<size_t>(at)];
    }
    for (const int count : asked) {
      EXPECT_GT(count, kMachines / 20);
      EXPECT_LT(count, kMachines / 5);
    }
  }

  int world_size_ = 1;
  double extension_lead_s_ = 0;
  std::vector<WorkerKey> keys_;
  std::vector<LeaseMachine> machines_;
};

TEST_F(ManyLeases, EachIsRenewedAtAMomentOfItsOwn) {
  Grant(0, 1, 60);
  ExpectSpread(12, 20);
}

// Asked for together once, they come apart.
TEST_F(ManyLeases, EachRenewalIsAtAnotherMoment) {
  Grant(0, 1, 60);
  for (LeaseMachine& machine : machines_) machine.Step(20, lease_event::Tick{});
  Grant(20, 2, 60);
  ExpectSpread(32, 40);
}

TEST_F(ManyLeases, EachIsExtendedAtAMomentOfItsOwn) {
  Grant(0, 1, 60);
  Tell(3);
  ExpectSpread(3, 8);
}

// The less is left, the sooner they ask.
TEST_F(ManyLeases, ExtensionsAreAskedForWhileHalfOfTheLeaseIsLeft) {
  Grant(0, 1, 60);
  for (LeaseMachine& machine : machines_) {
    machine.Step(58.8, lease_event::Tick{});
  }
  Grant(58.8, 2, 1.2);
  Tell(58.9);
  ExpectSpread(58.9, 59.45);
}

// A gang that is not extended stops ahead of the end of its leases.
TEST_F(ManyLeases, RanksOfAGangAskBeforeTheirGangStops) {
  world_size_ = 2;
  Grant(0, 1, 10);
  for (LeaseMachine& machine : machines_) {
    machine.Step(7.5, lease_event::Tick{});
  }
  Grant(7.5, 2, 2.5);
  Tell(7.5);
  ExpectSpread(7.5, 7.75);
}

TEST(GangStop, IsAskedForWhenTwoStepsAreLeftAndNotBeforeAnExtension) {
  // The agreement itself takes a moment, however short the steps are.
  EXPECT_DOUBLE_EQ(GangStopAhead({60, 40, 0.01}), 3);
  EXPECT_DOUBLE_EQ(GangStopAhead({5, 3, 0.01}), 1);
  // The boundary before it has three steps ahead of it, or more.
  EXPECT_DOUBLE_EQ(GangStopAhead({60, 40, 5}), 15.2);
  // By then a lease that goes on has been extended.
  EXPECT_DOUBLE_EQ(GangStopAhead({60, 40, 20}), 30);
  EXPECT_DOUBLE_EQ(GangStopAhead({20, 7.5, 20}), 5.625);
  // A coordinator of an earlier version does not tell.
  EXPECT_DOUBLE_EQ(GangStopAhead({60, 0, 20}), 3);
}

// The longer its steps, the earlier a gang asks for its stop, and its ranks
// for the extension that they have the notice of.
TEST_F(ManyLeases, RanksOfAGangOfLongStepsAskBeforeTheirGangStops) {
  world_size_ = 2;
  extension_lead_s_ = 10;
  Grant(0, 1, 10);
  Progress progress;
  progress.throughput_steps_per_s = 1;
  for (LeaseMachine& machine : machines_) {
    machine.Step(1, lease_event::Progressed{progress});
  }
  for (LeaseMachine& machine : machines_) machine.Step(5, lease_event::Tick{});
  Grant(5, 2, 5);
  Tell(5.5);
  // It would ask 3.2 s before the end, in 1.3 s.
  ExpectSpread(5.5, 6.15);
}

}  // namespace
}  // namespace gavel
