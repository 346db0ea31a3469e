// The same on a GPU: pausing frees its memory, and going on gives the same
// result to the bit, the GPU's random numbers included.
#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <chrono>
#include <string>
#include <thread>

#include "gavel/session.h"
#include "tests/iterator/fake_coordinator.h"
#include "tests/iterator/training.h"

namespace gavel::testing {
namespace {

class SessionGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) {
      GTEST_SKIP() << "no GPU that LibTorch can use on this machine";
    }
  }
  SessionOptions Options() {
    SessionOptions options;
    options.device = "cuda:0";
    options.log = log_.Sink();
    return options;
  }
  static int64_t ReservedBytes() {
    return c10::getDeviceAllocator(c10::kCUDA)
        ->getDeviceStats(0)
        .reserved_bytes[0]
        .current;
  }

  TemporaryFolder folder_;
  Lines log_;
};

TEST_F(SessionGpu, TrainsOnTheGpuAlone) {
  const Outcome outcome = Train(Options());
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(outcome.device.is_cuda());
}

TEST_F(SessionGpu, IsTheDefaultDevice) {
  SessionOptions options = Options();
  options.device.clear();
  EXPECT_TRUE(Train(options).device.is_cuda());
}

TEST_F(SessionGpu, GoesOnToTheSameResultInAnotherSession) {
  const Outcome whole = Train(Options());
  SessionOptions options = Options();
  options.checkpoint_directory = folder_.path();
  options.steps_total = 9;
  Train(options);
  options.steps_total = 0;
  const Outcome rest = Train(options);
  EXPECT_EQ(rest.losses.size(), 15u);
  EXPECT_EQ(rest.weights, whole.weights);
}

TEST_F(SessionGpu, PausingGivesTheMemoryBackAndChangesNothing) {
  const Outcome whole = Train(Options());
  FakeCoordinator coordinator;
  AcceleratorInfo gpu = CpuSlot("gpu-0");
  gpu.device = "cuda:0";
  coordinator.Grant(gpu);
  SessionOptions options = Options();
  options.coordinator = coordinator.endpoint();
  options.job = 1;
  options.incarnation = 1;
  options.run_directory = folder_.path() + "/run";
  options.checkpoint_directory = folder_.path() + "/checkpoints";

  int64_t running_bytes = 0;
  int64_t parked_bytes = 0;
  std::thread resume;
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 8) {
      running_bytes = ReservedBytes();
      coordinator.Pause();
      resume = std::thread([&] {
        EXPECT_TRUE(coordinator.Wait(
            [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
        parked_bytes = ReservedBytes();
        coordinator.Grant(gpu);
      });
    }
    if (coordinator.Heard<LeaseReleased>().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  const Outcome outcome = Train(options, training);
  resume.join();
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, whole.weights);
  EXPECT_GT(running_bytes, 0);
  // What cuBLAS keeps as its workspace is not ours to free.
  EXPECT_LT(parked_bytes, running_bytes);
}

}  // namespace
}  // namespace gavel::testing
