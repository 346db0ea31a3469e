// Collectives on accelerators: a gang of one rank, which does everything except
// use the network, and a gang of two.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <thread>

#include "core/status.h"
#include "runtime/device/process_group.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

using ProcessGroupOnAccelerator = AcceleratorTest;

TEST_F(ProcessGroupOnAccelerator, AddsUpBroadcastsAndAverages) {
  ASSERT_OK_AND_ASSIGN(const auto store, GangStore::Host("127.0.0.1", 0, 10));
  ProcessGroupOptions options;
  options.device = device_;
  options.prefix = "test";
  ASSERT_OK_AND_ASSIGN(const auto group, ProcessGroup::Create(*store, options));
  const at::Tensor ones = torch::ones({1000}, options.device);
  ASSERT_OK_AND_ASSIGN(const auto pending, group->AllReduce(ones));
  ASSERT_OK(pending->Wait());
  ASSERT_OK(group->Broadcast({ones}));
  EXPECT_EQ(ones.sum().item<double>(), 1000);

  const at::Tensor weight =
      torch::ones({3}, at::TensorOptions(options.device).requires_grad(true));
  absl::Status failure;
  GradientBucketsOptions bucket_options;
  bucket_options.failed = [&](absl::Status status) { failure.Update(status); };
  ASSERT_OK_AND_ASSIGN(
      const auto buckets,
      GradientBuckets::Create({weight}, *group, bucket_options));
  (weight * 2).sum().backward();
  ASSERT_OK(failure);
  EXPECT_EQ(weight.grad().sum().item<double>(), 6);
}

// Gradients are only in the buckets. Both ways of resetting them, and adding to
// them in place, give the same values.
TEST_F(ProcessGroupOnAccelerator, GradientsTakeNoMemoryBesideTheirBuckets) {
  ASSERT_OK_AND_ASSIGN(const auto store, GangStore::Host("127.0.0.1", 0, 10));
  ProcessGroupOptions options;
  options.device = device_;
  options.prefix = "test";
  ASSERT_OK_AND_ASSIGN(const auto group, ProcessGroup::Create(*store, options));
  const at::Tensor weight = torch::ones(
      {1 << 20}, at::TensorOptions(options.device).requires_grad(true));
  torch::optim::SGD optimizer({weight}, 0.0);
  const int64_t before = AllocatedBytes();
  ASSERT_OK_AND_ASSIGN(const auto buckets,
                       GradientBuckets::Create({weight}, *group, {}));
  EXPECT_GE(buckets->size_bytes(), 4 << 20);
  for (const bool set_to_none : {true, false, true}) {
    (weight * 2).sum().backward();
    EXPECT_EQ(weight.grad().sum().item<double>(), 2 << 20);
    ASSERT_OK(Synchronize(device_));
    EXPECT_LT(AllocatedBytes() - before, buckets->size_bytes() + (1 << 20));
    (weight * 2).sum().backward();  // adds to it
    EXPECT_EQ(weight.grad().sum().item<double>(), 4 << 20);
    optimizer.zero_grad(set_to_none);
  }
}

// The values of a rank after an all-reduce, a broadcast from rank 0, and a
// backward pass with averaged gradients.
struct Results {
  double sum = 0;
  double broadcast = 0;
  double gradient = 0;
};

absl::StatusOr<Results> RunRank(const std::string& endpoint, int rank) {
  GAVEL_ASSIGN_OR_RETURN(const auto store, GangStore::Connect(endpoint, 10));
  ProcessGroupOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.device = at::Device(TestDevice(rank));
  options.prefix = "test";
  GAVEL_ASSIGN_OR_RETURN(const auto group,
                         ProcessGroup::Create(*store, options));
  const at::Tensor counted = torch::full({1000}, 1.0 + rank, options.device);
  GAVEL_ASSIGN_OR_RETURN(const auto pending, group->AllReduce(counted));
  GAVEL_RETURN_IF_ERROR(pending->Wait());
  const at::Tensor told = torch::full({2}, 5.0 + rank, options.device);
  GAVEL_RETURN_IF_ERROR(group->Broadcast({told}));

  const at::Tensor weight =
      torch::ones({3}, at::TensorOptions(options.device).requires_grad(true));
  absl::Status failure;
  GradientBucketsOptions bucket_options;
  bucket_options.failed = [&](absl::Status status) { failure.Update(status); };
  GAVEL_ASSIGN_OR_RETURN(
      const auto buckets,
      GradientBuckets::Create({weight}, *group, bucket_options));
  (weight * (1.0 + rank)).sum().backward();
  GAVEL_RETURN_IF_ERROR(failure);
  return Results{counted[0].item<double>(), told[0].item<double>(),
                 weight.grad()[0].item<double>()};
}

TEST_F(ProcessGroupOnAccelerator, AGangOfTwoAddsUpBroadcastsAndAverages) {
  NeedDevices(2);
  if (IsSkipped()) return;
  ASSERT_OK_AND_ASSIGN(const auto host, GangStore::Host("127.0.0.1", 0, 10));
  std::vector<absl::StatusOr<Results>> results(2, absl::UnknownError("no run"));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      results[static_cast<size_t>(rank)] = RunRank(host->endpoint(), rank);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::StatusOr<Results>& result : results) {
    ASSERT_OK(result.status());
    EXPECT_EQ(result->sum, 3);
    EXPECT_EQ(result->broadcast, 5);
    EXPECT_EQ(result->gradient, 1.5);
  }
}

// Raises `tensor` by `count` in many operations, which take the device a while.
void RaiseSlowly(const at::Tensor& tensor, int count) {
  for (int i = 0; i < count; ++i) tensor.add_(1);
}

TEST_F(ProcessGroupOnAccelerator, FinishWaitsForWhatIsUnderWay) {
  ASSERT_OK_AND_ASSIGN(const auto store, GangStore::Host("127.0.0.1", 0, 10));
  ProcessGroupOptions options;
  options.device = device_;
  options.prefix = "test";
  ASSERT_OK_AND_ASSIGN(auto group, ProcessGroup::Create(*store, options));
  const at::Tensor tensor = torch::zeros({1 << 22}, device_);
  RaiseSlowly(tensor, 100);
  ASSERT_OK(group->AllReduce(tensor).status());
  ASSERT_OK(group->Finish());
  // All work that began before is done, on any stream.
  const c10::impl::VirtualGuardImpl guard(device_.type());
  EXPECT_TRUE(guard.queryStream(guard.getStream(device_)));
  group.reset();
  EXPECT_TRUE(tensor.eq(100).all().item<bool>());
}

TEST_F(ProcessGroupOnAccelerator, AfterAnAbortNothingIsTaken) {
  ASSERT_OK_AND_ASSIGN(const auto store, GangStore::Host("127.0.0.1", 0, 10));
  ProcessGroupOptions options;
  options.device = device_;
  options.prefix = "test";
  ASSERT_OK_AND_ASSIGN(const auto group, ProcessGroup::Create(*store, options));
  group->Abort();
  EXPECT_THAT(group->Synchronize(), StatusIs(kUnavailable, "aborted"));
  EXPECT_THAT(group->Finish(), StatusIs(kUnavailable, "aborted"));
}

}  // namespace
}  // namespace gavel::testing
