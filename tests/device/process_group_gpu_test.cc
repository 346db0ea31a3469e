// NCCL on one GPU: a gang of one rank goes the whole way but for the network.
#include <torch/cuda.h>
#include <torch/types.h>

#include <memory>

#include "gtest/gtest.h"
#include "runtime/device/gradient_buckets.h"
#include "runtime/device/process_group.h"
#include "tests/support/status_matchers.h"

namespace gavel {
namespace {

TEST(ProcessGroupGpu, AddsUpBroadcastsAndAverages) {
  if (!torch::cuda::is_available()) {
    GTEST_SKIP() << "needs a GPU: torch::cuda::is_available() is false";
  }
  ASSERT_OK_AND_ASSIGN(const auto store, GangStore::Host("127.0.0.1", 0, 10));
  ProcessGroupOptions options;
  options.device = at::Device(at::kCUDA, 0);
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

}  // namespace
}  // namespace gavel
