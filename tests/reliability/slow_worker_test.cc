// Processes that take long to start and to leave, beyond the limits of the
// cluster: what moves is waited for, what stands still is not.
#include <chrono>
#include <filesystem>
#include <thread>

#include "core/text.h"
#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kLimit_s = 1;
constexpr char kLimits[] =
    "start_timeout_s = 1\npause_grace_s = 1\nretries_max = 1\n";

class SlowWorkerTest : public ClusterTest {
 protected:
  // A process that does nothing; the test speaks for it.
  void StartWorker() {
    WriteServers({"here"}, 600, 2);
    StartCoordinator({"--stop-grace", "1"});
    StartAgent("here");
    const Ended submitted =
        Run({"submit", "--coordinator", endpoint(),
             WriteCommand("slow", {"/bin/sleep", "300"}, kLimits)});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
    voice_ = VoiceOf("here", {JobId(1), 0, 1});
    ASSERT_NE(voice_, nullptr);
  }
  bool Lives() const {
    return std::filesystem::exists(WorkersKeyFile("here", voice_->worker()));
  }
  // For several times the limit.
  void MoveBytes() {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(5 * kLimit_s);
    while (std::chrono::steady_clock::now() < end) {
      bytes_ += 1 << 20;
      voice_->Send(BytesMoved{voice_->worker(), {}, bytes_});
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  std::unique_ptr<WorkerVoice> voice_;
  uint64_t bytes_ = 0;
};

TEST_F(SlowWorkerTest, ASetUpBeyondTheLimitIsWaitedForWhileItReads) {
  StartWorker();
  ASSERT_TRUE(voice_->Hello(/*ready=*/false));
  MoveBytes();
  EXPECT_TRUE(Lives());
  ASSERT_TRUE(voice_->Hello());
  EXPECT_TRUE(voice_->AskForLease(0, false).has_value());
}

TEST_F(SlowWorkerTest, ASetUpThatStandsStillIsEnded) {
  StartWorker();
  ASSERT_TRUE(voice_->Hello(/*ready=*/false));
  EXPECT_TRUE(Eventually([&] { return !Lives(); }));
  EXPECT_TRUE(ReachesState(endpoint(), "slow", "F"));
}

TEST_F(SlowWorkerTest, ACheckpointBeyondTheGraceIsWaitedForWhileItWrites) {
  StartWorker();
  ASSERT_TRUE(voice_->Hello());
  const auto lease = voice_->AskForLease(0, false);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(Run({"cancel", "slow", "--coordinator", endpoint()}).exit_code, 0);
  // As at each end of a round: the accelerator is free, the state is not safe.
  voice_->Send(LeaseReleased{voice_->worker(), lease->epoch, {}});
  MoveBytes();
  EXPECT_TRUE(Lives());
  // It has stopped writing.
  EXPECT_TRUE(Eventually([&] { return !Lives(); }));
  EXPECT_TRUE(ReachesState(endpoint(), "slow", "CA"));
}

}  // namespace
}  // namespace gavel::testing
