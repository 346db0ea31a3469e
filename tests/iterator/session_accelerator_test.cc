// Sessions on an accelerator: a pause frees its memory, and the resumed run
// gives the same result to the bit, its random numbers included.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <thread>

#include "gavel/internal/placement.h"
#include "gavel/session.h"
#include "runtime/device/device_move.h"
#include "tests/iterator/training.h"
#include "tests/support/accelerator_test.h"
#include "tests/support/coordinator_thread.h"

namespace gavel::testing {
namespace {

class SessionOnAccelerator : public AcceleratorTest {
 protected:
  SessionOptions Options() {
    SessionOptions options;
    options.device = device_.str();
    options.log = log_.Sink();
    return options;
  }
  SessionOptions Under(const CoordinatorThread& coordinator) {
    SessionOptions options = Options();
    options.coordinator = coordinator.endpoint();
    options.job = 1;
    options.incarnation = 1;
    options.run_directory = folder_.path() + "/run";
    options.checkpoint_directory = folder_.path() + "/checkpoints";
    return options;
  }
  // Trains and pauses after step 8; calls `running` before the pause and
  // `paused` during it.
  Outcome TrainWithPause(CoordinatorThread& coordinator, PauseTier tier,
                         const std::function<void()>& running,
                         const std::function<void()>& paused) {
    const AcceleratorInfo gpu = TestSlot("slot-a");
    coordinator.Grant(gpu);
    std::thread resume;
    TrainingOptions training;
    training.after_step = [&](Session& session) {
      if (session.steps_done() == 8) {
        running();
        coordinator.Pause(tier);
        resume = std::thread([&] {
          EXPECT_TRUE(coordinator.Wait(
              [&] { return !coordinator.Heard<LeaseReleased>().empty(); }));
          paused();
          coordinator.Grant(gpu);
        });
      }
      if (coordinator.Heard<LeaseReleased>().empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    };
    const Outcome outcome = Train(Under(coordinator), training);
    resume.join();
    EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
    return outcome;
  }

  TemporaryFolder folder_;
  Lines log_;
};

TEST_F(SessionOnAccelerator, TrainsAlone) {
  const Outcome outcome = Train(Options());
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.device, device_);
}

TEST_F(SessionOnAccelerator, IsTheDefaultDevice) {
  SessionOptions options = Options();
  options.device.clear();
  EXPECT_EQ(Train(options).device, device_);
}

TEST_F(SessionOnAccelerator, GoesOnToTheSameResultInAnotherSession) {
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

TEST_F(SessionOnAccelerator, PausingGivesTheMemoryBackAndChangesNothing) {
  const Outcome whole = Train(Options());
  // Only the context and the libraries' kernels are loaded now.
  ASSERT_TRUE(ReleaseMemory(device_).ok());
  const int64_t context_bytes = UsedBytes();
  CoordinatorThread coordinator;
  int64_t running_bytes = 0, parked_bytes = -1, parked_used_bytes = 0;
  const Outcome outcome = TrainWithPause(
      coordinator, PauseTier::kPark, [&] { running_bytes = ReservedBytes(); },
      [&] {
        parked_bytes = ReservedBytes();
        parked_used_bytes = UsedBytes();
      });
  EXPECT_EQ(outcome.weights, whole.weights);
  EXPECT_GT(running_bytes, 0);
  EXPECT_EQ(parked_bytes, 0);
  constexpr int64_t kSlackBytes = 8 << 20;  // small allocations of the driver's
  EXPECT_LE(parked_used_bytes, context_bytes + kSlackBytes);
  EXPECT_EQ(coordinator.Heard<LeaseReleased>()[0].progress.device_bytes, 0u);
}

// The steps' own memory is freed, and the job reports all that stays.
TEST_F(SessionOnAccelerator, AKeptJobTellsAllThatItsAllocatorHolds) {
  const Outcome whole = Train(Options());
  CoordinatorThread coordinator;
  int64_t running_bytes = 0, kept_bytes = 0;
  const Outcome outcome = TrainWithPause(
      coordinator, PauseTier::kKeep,
      [&] {
        // A step with a large batch leaves memory like this.
        at::empty({64 << 20}, at::device(device_).dtype(at::kByte));
        running_bytes = ReservedBytes();
      },
      [&] { kept_bytes = ReservedBytes(); });
  EXPECT_EQ(outcome.weights, whole.weights);
  EXPECT_GE(running_bytes, 64 << 20);
  EXPECT_GT(kept_bytes, 0);
  EXPECT_LT(kept_bytes, 32 << 20);
  EXPECT_EQ(coordinator.Heard<LeaseReleased>()[0].progress.device_bytes,
            static_cast<uint64_t>(kept_bytes));
  // The job needs as much memory to run as the most that it has held.
  uint64_t need_bytes = 0;
  for (const StepReport& report : coordinator.Heard<StepReport>()) {
    need_bytes = std::max(need_bytes, report.progress.device_bytes);
  }
  EXPECT_GE(need_bytes, static_cast<uint64_t>(running_bytes));
}

// If placing a batch waited, every step would begin only when the device has
// done the last one.
TEST_F(SessionOnAccelerator, ABatchIsPlacedWhileTheDeviceWorks) {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  at::Tensor batch = at::ones({1000});
  internal::PlaceTensor(batch, device_);  // makes pinned memory
  const at::Tensor busy = at::zeros({1 << 22}, device_);
  ASSERT_OK(Synchronize(device_));
  for (int i = 0; i < 100; ++i) busy.add_(1);
  batch = at::full({1000}, 2);
  internal::PlaceTensor(batch, device_);
  EXPECT_FALSE(guard.queryStream(guard.getStream(device_)));
  EXPECT_EQ(batch.device(), device_);
  EXPECT_EQ(batch.sum().item<int64_t>(), 2000);
}

}  // namespace
}  // namespace gavel::testing
