// Between an agent, its workers and the coordinator lies a network that cuts,
// goes silent, delays and throttles. The job gets through, each step once.

#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kLong_s = 90;

class BadNetworkTest : public ClusterTest {
 protected:
  // A job of `steps` over such a network, to its end.
  void Train(const Chaos& chaos, uint64_t steps) {
    WriteServers({"here"}, 4, 2);
    StartCoordinator();
    ChaosProxy network("127.0.0.1", port(), /*seed=*/1);
    StartAgent("here", network.endpoint());
    Submit("job", {"--steps", std::to_string(steps), "--step-ms", "10"});
    ASSERT_TRUE(Logs("job", " take "));
    network.Set(chaos);
    EXPECT_TRUE(
        Eventually([&] { return CheckpointOf("job").steps == steps; }, kLong_s))
        << WorkerLog("job");
    network.Set({});
    EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
    ExpectEachStepOnce("job", steps);
    ExpectNothingLostOrShared();
    EXPECT_GE(network.connections(), 2);  // the agent's and a worker's
    happened_ = network.cuts() + network.silences();
  }

  uint64_t happened_ = 0;
};

TEST_F(BadNetworkTest, ConnectionsAreCutInTheMiddleOfFrames) {
  Train({.cuts_per_s = 1}, 500);
  EXPECT_GT(happened_, 2);
}

TEST_F(BadNetworkTest, ConnectionsGoSilent) {
  Train({.silences_per_s = 0.5, .silence_s = 1}, 400);
  EXPECT_GT(happened_, 0);
}

TEST_F(BadNetworkTest, EverythingIsLate) { Train({.delay_s_max = 0.3}, 400); }

TEST_F(BadNetworkTest, ThereIsHardlyAnyBandwidth) {
  Train({.bytes_per_s = 2000}, 300);
}

TEST_F(BadNetworkTest, AllConnectionsAreResetAtOnce) {
  WriteServers({"here"}, 10, 5);
  StartCoordinator();
  ChaosProxy network("127.0.0.1", port(), 1);
  StartAgent("here", network.endpoint());
  Submit("job", {"--steps", "600"});
  ASSERT_TRUE(Logs("job", " commit "));
  for (int i = 0; i < 5; ++i) {
    network.CutAll();
    ASSERT_TRUE(Logs("job", " commit ", 8 * (i + 2)));
  }
  EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  ExpectEachStepOnce("job", 600);
  // Back within the lease: nobody stopped.
  EXPECT_EQ(Count(WorkerLog("job"), " take "), 1) << WorkerLog("job");
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
