#include <signal.h>

#include <thread>

#include "iterator/process_exit.h"
#include "iterator/session_context.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

lease_action::Resume Lease(uint64_t epoch, Time deadline) {
  lease_action::Resume lease;
  lease.epoch = epoch;
  lease.deadline = deadline;
  return lease;
}

class BoundaryGateTest : public Test {
 protected:
  BoundaryGate gate;
};

TEST_F(BoundaryGateTest, CallsAtEachBoundaryWithoutALease) {
  EXPECT_TRUE(gate.IsCalled(1));
  gate.NeedNoLease();
  EXPECT_FALSE(gate.IsCalled(1));
}

TEST_F(BoundaryGateTest, CallsForACheckpointThatASignalAskedFor) {
  gate.NeedNoLease();
  gate.RequestCheckpoint();
  EXPECT_TRUE(gate.IsCalled(1));
  EXPECT_TRUE(gate.Take(false).checkpoint);
  EXPECT_FALSE(gate.IsCalled(1));
  EXPECT_FALSE(gate.Take(false).any());
}

TEST_F(BoundaryGateTest, AStopThatComesAfterTheGraceEndsTheProcess) {
  EXPECT_EXIT(
      {
        Signals signals;
        signals.Install(&gate, nullptr, /*pause_grace_s=*/0);
        raise(SIGTERM);
        if (gate.stop_requested()) raise(SIGTERM);
        _exit(3);
      },
      ::testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(
      {
        Signals signals;
        signals.Install(&gate, nullptr, /*pause_grace_s=*/3600);
        for (int i = 0; i < 5; ++i) raise(SIGTERM);
        _exit(3);
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(BoundaryGateTest, CallsFromTheDeadlineOn) {
  gate.Grant(Lease(1, 10));
  EXPECT_TRUE(gate.Take(false).resume.has_value());
  gate.HoldLease();
  EXPECT_FALSE(gate.IsCalled(9'999'999'999));
  EXPECT_TRUE(gate.IsCalled(10'000'000'000));
  EXPECT_FALSE(gate.Take(false).any());
}

TEST_F(BoundaryGateTest, AnExtensionMovesTheDeadlineOfItsLeaseOnly) {
  gate.Grant(Lease(2, 10));
  gate.Extend({2, 20, 1});  // before the lease was taken
  gate.Take(false);
  gate.HoldLease();
  EXPECT_FALSE(gate.IsCalled(15'000'000'000));
  gate.Extend({1, 90, 1});
  EXPECT_TRUE(gate.IsCalled(20'000'000'000));
  gate.Extend({2, 30, 1});
  EXPECT_FALSE(gate.IsCalled(20'000'000'000));
  gate.ForgetLease();
  EXPECT_TRUE(gate.IsCalled(1));
  gate.Extend({2, 40, 1});
  EXPECT_TRUE(gate.IsCalled(1));
}

TEST_F(BoundaryGateTest, AnExtensionTellsOnceThatThreadsHaveChanged) {
  lease_action::Resume lease = Lease(2, 10);
  lease.accelerator.threads = 2;
  gate.Grant(lease);
  gate.Take(false);
  gate.HoldLease();
  gate.Extend({2, 20, 2});
  EXPECT_FALSE(gate.IsCalled(1));
  gate.Extend({1, 30, 4});  // of an earlier lease
  EXPECT_FALSE(gate.IsCalled(1));
  gate.Extend({2, 30, 4});
  EXPECT_TRUE(gate.IsCalled(1));
  EXPECT_EQ(gate.Take(false).threads, 4);
  EXPECT_FALSE(gate.IsCalled(1));
  gate.Extend({2, 40, 4});
  EXPECT_FALSE(gate.Take(false).any());
  gate.Extend({2, 50, 2});
  gate.Grant(lease);  // whose own count
  EXPECT_FALSE(gate.Take(false).threads.has_value());
}

TEST_F(BoundaryGateTest, APauseCallsOnce) {
  gate.NeedNoLease();
  gate.Pause({PauseTier::kEvict, "round over"});
  EXPECT_TRUE(gate.IsCalled(1));
  const BoundaryGate::Calls calls = gate.Take(false);
  ASSERT_TRUE(calls.pause.has_value());
  EXPECT_EQ(calls.pause->tier, PauseTier::kEvict);
  EXPECT_FALSE(gate.IsCalled(1));
}

TEST_F(BoundaryGateTest, AStopStays) {
  gate.NeedNoLease();
  gate.RequestStop();
  EXPECT_TRUE(gate.IsCalled(1));
  EXPECT_TRUE(gate.Take(false).stop);
  EXPECT_TRUE(gate.IsCalled(1));
  EXPECT_TRUE(gate.Take(true).stop);
}

TEST_F(BoundaryGateTest, AGrantReplacesAnEarlierParkButNotAnEnd) {
  gate.Pause({PauseTier::kPark, ""});
  gate.Grant(Lease(2, 10));
  EXPECT_FALSE(gate.Take(false).pause.has_value());
  gate.Pause({PauseTier::kEvict, ""});
  gate.Grant(Lease(3, 10));
  EXPECT_TRUE(gate.Take(false).pause.has_value());
}

TEST_F(BoundaryGateTest, WakesWhoWaits) {
  std::thread lease_thread([this] { gate.Grant(Lease(5, 10)); });
  const BoundaryGate::Calls calls = gate.Take(/*wait=*/true);
  lease_thread.join();
  ASSERT_TRUE(calls.resume.has_value());
  EXPECT_EQ(calls.resume->epoch, 5u);
}

}  // namespace
}  // namespace gavel::internal
