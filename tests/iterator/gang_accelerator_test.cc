// A gang on accelerators whose other rank does not come to a collective: it
// runs beside the host there, so that it is waited for at a boundary.
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "iterator/gang.h"
#include "tests/support/accelerator_test.h"

namespace gavel::internal {
namespace {

using testing::TestDevice;
using Clock = std::chrono::steady_clock;

class GangOnAccelerator : public testing::AcceleratorTest {
 protected:
  // Two ranks come together and make their group; then `first` has the gang of
  // rank 0, while rank 1 does nothing but live.
  void Run(const std::function<void(Gang&, at::Tensor)>& first) {
    NeedDevices(2);
    if (IsSkipped()) return;
    std::promise<std::string> opened;
    std::promise<void> ended;
    std::thread second([&, endpoint = opened.get_future().share()] {
      Gang gang([] { return true; });
      GangPlan plan = PlanOf(1);
      plan.endpoint = endpoint.get();
      ASSERT_OK(gang.Join(plan));
      ASSERT_OK(gang.Barrier());
      ended.get_future().wait();
      gang.Leave(Leaving::kBroken);
    });
    Gang gang([] { return true; });
    GangPlan plan = PlanOf(0);
    plan.hosts = true;
    plan.opened = [&](const std::string& at) { opened.set_value(at); };
    plan.lease_is_over = [&] { return lease_is_over_.load(); };
    plan.leave_timeout_s = 0.5;
    EXPECT_OK(gang.Join(plan));
    EXPECT_OK(gang.Barrier());
    first(gang, torch::ones({4}, device_));
    ended.set_value();
    second.join();
    gang.Leave(Leaving::kBroken);
  }
  static GangPlan PlanOf(int rank) {
    GangPlan plan;
    plan.rank = rank;
    plan.address = "127.0.0.1";
    plan.prefix = "gavel/7/1";
    plan.device = at::Device(TestDevice(rank));
    return plan;
  }

  std::atomic<bool> lease_is_over_ = false;
};

TEST_F(GangOnAccelerator, TheEndOfTheLeaseEndsAWaitAtABoundary) {
  Run([&](Gang& gang, const at::Tensor& tensor) {
    ASSERT_OK(gang.AllReduce(tensor, ReduceOp::kSum));
    std::thread clock([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      lease_is_over_ = true;
    });
    EXPECT_TRUE(absl::IsUnavailable(gang.Synchronize()));
    clock.join();
  });
}

TEST_F(GangOnAccelerator, TheEndOfTheLeaseEndsAWaitAtAStop) {
  Run([&](Gang& gang, const at::Tensor& tensor) {
    ASSERT_OK(gang.AllReduce(tensor, ReduceOp::kSum));
    std::thread clock([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      lease_is_over_ = true;
    });
    EXPECT_TRUE(absl::IsUnavailable(gang.Stop(0)));
    clock.join();
  });
}

TEST_F(GangOnAccelerator, WhoIsDoneDoesNotWaitLongForAFrozenRank) {
  Run([](Gang& gang, const at::Tensor& tensor) {
    ASSERT_OK(gang.AllReduce(tensor, ReduceOp::kSum));
    const auto begin = Clock::now();
    gang.Leave(Leaving::kDone);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  });
}

TEST_F(GangOnAccelerator, ATypeThatCantBeReducedIsSaidAndTheGangGoesOn) {
  Run([](Gang& gang, const at::Tensor& tensor) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      const absl::Status status = gang.AllReduce(tensor.to(at::kShort), op);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("Short"));
    }
    EXPECT_TRUE(absl::IsInvalidArgument(
        gang.AllReduce(tensor.to(at::kLong), ReduceOp::kMean)));
    gang.Pass(0, /*begins=*/true, [] { return false; });
    EXPECT_OK(gang.EndStep());
  });
}

}  // namespace
}  // namespace gavel::internal
