// A packed pair on one accelerator: two processes, so two contexts with streams
// of their own, each with one lock of it and its part of the memory.
#include <filesystem>

#include "gavel/session.h"
#include "tests/iterator/training.h"
#include "tests/iterator/worker_process.h"
#include "tests/support/accelerator_test.h"
#include "tests/support/coordinator_thread.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kLimitBytes = 96 << 20;

class PairOnAccelerator : public AcceleratorTest {
 protected:
  // One of the pair, told by a coordinator of its own.
  struct Member {
    Member(const std::string& folder, const std::string& name,
           uint64_t limit_bytes)
        : own(folder + "/" + name) {
      coordinator.Share(limit_bytes);
      coordinator.Grant(TestSlot("slot-a"));
      std::filesystem::create_directories(own);
      process.emplace(own,
                      WorkerProcess::Variables{
                          {"GAVEL_WORKER_COORDINATOR", coordinator.endpoint()},
                          {"GAVEL_JOB", "1"},
                          {"GAVEL_INCARNATION", "1"},
                          {"GAVEL_RUN_DIRECTORY", folder + "/run"},
                          {"GAVEL_CHECKPOINT_DIRECTORY", own + "/checkpoints"},
                          {"STEP_MS", "500"}});
    }
    uint64_t StepsReported() const {
      const auto reports = coordinator.Heard<StepReport>();
      return reports.empty() ? 0 : reports.back().progress.steps_done;
    }
    std::string own;
    CoordinatorThread coordinator;
    std::optional<WorkerProcess> process;
  };

  // The libraries of CUDA take seconds to load.
  static bool Eventually(const CoordinatorThread& coordinator,
                         const std::function<bool()>& happened) {
    return coordinator.Wait(happened) || coordinator.Wait(happened) ||
           coordinator.Wait(happened);
  }

  TemporaryFolder folder_;
};

TEST_F(PairOnAccelerator, BothTrainAtTheSameTimeWithinTheirMemory) {
  Member a(folder_.path(), "a", kLimitBytes);
  Member b(folder_.path(), "b", kLimitBytes);
  ASSERT_TRUE(Eventually(
      a.coordinator,
      [&] { return a.StepsReported() > 0 && b.StepsReported() > 0; }))
      << a.process->Output() << b.process->Output();
  EXPECT_TRUE(a.coordinator.Heard<WorkerFinished>().empty());
  EXPECT_TRUE(b.coordinator.Heard<WorkerFinished>().empty());
  for (Member* one : {&a, &b}) {
    EXPECT_EQ(one->process->Wait(), 0) << one->process->Output();
    EXPECT_TRUE(one->coordinator.Heard<LeaseReleased>().empty());
    for (const StepReport& report : one->coordinator.Heard<StepReport>()) {
      EXPECT_GT(report.progress.device_bytes, 0u);
      EXPECT_LE(report.progress.device_bytes, kLimitBytes);
    }
  }
  SessionOptions alone;
  alone.device = device_.str();
  const std::string weights = Train(alone).weights;
  EXPECT_EQ(a.process->Weights(), weights);
  EXPECT_EQ(b.process->Weights(), weights);
}

// Less than the allocator's smallest block.
TEST_F(PairOnAccelerator,
       WhoExceedsItsPartRunsOutOfMemoryAndItsPartnerDoesNot) {
  Member a(folder_.path(), "a", kLimitBytes);
  Member b(folder_.path(), "b", 1 << 20);
  ASSERT_TRUE(Eventually(b.coordinator, [&] {
    return !b.coordinator.Heard<LeaseReleased>().empty();
  })) << b.process->Output();
  EXPECT_EQ(b.coordinator.Heard<LeaseReleased>()[0].cause,
            ReleaseCause::kOutOfMemory);
  EXPECT_EQ(a.process->Wait(), 0) << a.process->Output();
  EXPECT_TRUE(a.coordinator.Heard<LeaseReleased>().empty());
}

}  // namespace
}  // namespace gavel::testing
