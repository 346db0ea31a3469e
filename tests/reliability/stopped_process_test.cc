// Tests processes that SIGSTOP has stopped, and that do not notice it.
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

class StoppedProcessTest : public ClusterTest {};

// A fixed time: the time itself matters, and no event is waited for.
void Pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST_F(StoppedProcessTest, ItsAcceleratorGoesToAnotherOnlyOnceItIsKilled) {
  WriteServers({"here"}, 3, 1.5);
  StartCoordinator();
  StartAgent("here");
  Submit("first", {"--steps", "600"});
  ASSERT_TRUE(Logs("first", " commit "));
  const pid_t stopped = LastPid("first", "take");
  kill(stopped, SIGSTOP);
  Submit("second", {"--steps", "200"});
  // The stopped process holds the lock as long as it lives, and the second job
  // would notice that.
  ASSERT_TRUE(Logs("second", " take ")) << coordinator().errors();
  EXPECT_FALSE(IsAlive(stopped));
  EXPECT_TRUE(ReachesState(endpoint(), "second", "CD"));
  EXPECT_TRUE(ReachesState(endpoint(), "first", "CD"));
  ExpectEachStepOnce("first", 600);
  ExpectEachStepOnce("second", 200);
  ExpectNothingLostOrShared();
}

TEST_F(StoppedProcessTest, ALateCheckpointOfALostServerDoesNoHarm) {
  WriteServers({"left"}, 3, 1.5);
  StartCoordinator();
  Process& left = StartAgent("left");
  Submit("job", {"--steps", "1500"});
  ASSERT_TRUE(Logs("job", " commit ", 3));
  const pid_t late = LastPid("job", "take");
  // The whole server is stopped, and another one joins.
  kill(late, SIGSTOP);
  left.Signal(SIGSTOP);
  WriteServers({"right"}, 3, 1.5);
  StartAgent("right");
  ASSERT_TRUE(Logs("job", " take right", 1, 60)) << coordinator().errors();
  const int commits = Count(WorkerLog("job"), " commit ");
  ASSERT_TRUE(Logs("job", " commit ", commits + 3));

  kill(late, SIGCONT);
  ASSERT_TRUE(Eventually([&] { return LastPid("job", "give") == late; }));
  left.Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(late); }));
  EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  ExpectEachStepOnce("job", 1500);
  ExpectNothingLostOrShared();
}

TEST_F(StoppedProcessTest, ACoordinatorThatStoodStillGrantsNothingTwice) {
  WriteServers({"here"}, 3, 1.5);
  StartCoordinator();
  StartAgent("here");
  Submit("first", {"--steps", "500"});
  Submit("second", {"--steps", "500"});
  ASSERT_TRUE(Logs("first", " commit "));
  for (int i = 0; i < 3; ++i) {
    coordinator().Signal(SIGSTOP);
    // The pause is longer than a lease, so each holder gives its lease up by
    // itself.
    Pause(2.5);
    coordinator().Signal(SIGCONT);
    Pause(1);
  }
  EXPECT_TRUE(ReachesState(endpoint(), "first", "CD"));
  EXPECT_TRUE(ReachesState(endpoint(), "second", "CD"));
  ExpectEachStepOnce("first", 500);
  ExpectEachStepOnce("second", 500);
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
