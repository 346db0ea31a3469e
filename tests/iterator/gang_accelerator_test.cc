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

// Two ranks that have paused; the values are by the owner.
class DividedGang : public GangOnAccelerator {
 protected:
  struct Rank {
    Rank(int number, bool divides) {
      const at::Device device(TestDevice(number));
      for (const double value : {1.0, 2.0, 3.0}) {
        tensors.push_back(torch::full({5}, value, device));
      }
      tensors.push_back(torch::full({1 << 20}, 4.0, device));
      if (!divides) return;
      divided.Divide({{tensors[0], 0}, {tensors[1], 1}, {tensors[3], 1}},
                     number);
      EXPECT_OK(divided.Leave());
      EXPECT_OK(divided.Return(device));
    }
    absl::Status Join(GangPlan plan) {
      plan.divided = &divided;
      return gang.Join(plan);
    }

    std::vector<at::Tensor> tensors;
    DividedTensors divided;
    Gang gang{[] { return true; }};
    absl::Status joined;
  };

  void Join(Rank& zero, Rank& one) {
    std::promise<std::string> opened;
    std::thread second([&, endpoint = opened.get_future().share()] {
      GangPlan plan = PlanOf(1);
      plan.endpoint = endpoint.get();
      one.joined = one.Join(plan);
    });
    GangPlan plan = PlanOf(0);
    plan.hosts = true;
    plan.opened = [&](const std::string& at) { opened.set_value(at); };
    zero.joined = zero.Join(plan);
    second.join();
  }
};

TEST_F(DividedGang, OwnersSendWhatTheOthersAreMissing) {
  NeedDevices(2);
  if (IsSkipped()) return;
  Rank zero(0, /*divides=*/true), one(1, /*divides=*/true);
  EXPECT_TRUE(zero.divided.is_missing() && one.divided.is_missing());
  Join(zero, one);
  ASSERT_OK(zero.joined);
  ASSERT_OK(one.joined);
  for (const Rank* rank : {&zero, &one}) {
    for (size_t i = 0; i < rank->tensors.size(); ++i) {
      const at::Tensor& tensor = rank->tensors[i];
      EXPECT_TRUE(tensor.eq(static_cast<double>(i + 1)).all().item<bool>());
      EXPECT_EQ(tensor._version(), 0);
    }
  }
}

TEST_F(DividedGang, WhoIsMissingWhatNobodyOwnsBeginsAgain) {
  NeedDevices(2);
  if (IsSkipped()) return;
  Rank zero(0, /*divides=*/true), one(1, /*divides=*/false);
  Join(zero, one);
  EXPECT_TRUE(absl::IsAborted(zero.joined)) << zero.joined;
  EXPECT_TRUE(absl::IsUnavailable(one.joined)) << one.joined;
}

TEST_F(DividedGang, OneThatHasAllItsValuesHelpsTheOthers) {
  NeedDevices(2);
  if (IsSkipped()) return;
  Rank zero(0, /*divides=*/true), one(1, /*divides=*/false);
  // It has kept them on its device.
  one.divided.Divide(
      {{one.tensors[0], 0}, {one.tensors[1], 1}, {one.tensors[3], 1}}, 1);
  Join(zero, one);
  ASSERT_OK(zero.joined);
  EXPECT_OK(one.joined);
  EXPECT_TRUE(zero.tensors[3].eq(4).all().item<bool>());
}

class DividedOnAccelerator : public testing::AcceleratorTest {};

TEST_F(DividedOnAccelerator, WhatOthersOwnTakesNoMemory) {
  at::Tensor own = torch::ones({1000}, device_);
  at::Tensor others = torch::ones({1000}, device_);
  DividedTensors divided;
  divided.Divide({{own, 0}, {others, 1}}, 0);
  EXPECT_EQ(divided.missing_bytes(), 0);
  ASSERT_OK(divided.Leave());
  EXPECT_EQ(divided.missing_bytes(), 4000);
  EXPECT_EQ(others.sizes(), own.sizes());
  EXPECT_EQ(others.storage().data(), nullptr);
  EXPECT_EQ(own.device(), device_);
  // A gang that did not come together: anywhere but in memory of its own.
  ASSERT_OK(divided.Return(at::Device(at::kCPU)));
  EXPECT_EQ(divided.missing_bytes(), 0);
  EXPECT_TRUE(divided.is_missing());
  ASSERT_OK(divided.Leave());
  EXPECT_EQ(divided.missing_bytes(), 4000);
}

TEST_F(DividedOnAccelerator, GradientsAreSharedOutByTheirBytes) {
  const at::Tensor bucket = torch::ones({600}, device_);
  std::vector<OwnedTensor> owned;
  ShareOut({bucket.narrow(0, 0, 300), bucket.narrow(0, 300, 300),
            torch::ones({300}, device_), torch::ones({300}, device_)},
           2, &owned);
  std::vector<int> owners;
  for (const OwnedTensor& one : owned) owners.push_back(one.owner);
  EXPECT_THAT(owners, testing::ElementsAre(0, 0, 0, 1));
}

}  // namespace
}  // namespace gavel::internal
