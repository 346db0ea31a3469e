#include <ATen/ops/randn.h>
#include <torch/cuda.h>

#include "runtime/checkpoint/rng_state.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(RngStateGpu, SameStateSameNumbers) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no usable GPU here";
  c10::Device gpu(c10::kCUDA, 0);
  at::TensorOptions options = at::device(gpu).dtype(at::kFloat);
  at::randn({3}, options);
  Snapshot snapshot;
  ASSERT_OK(CollectRngState(gpu, "rng", &snapshot));
  EXPECT_TRUE(snapshot.bytes.contains("rng/cuda"));
  at::Tensor numbers = at::randn({1000}, options);
  ASSERT_OK(RestoreRngState(snapshot, gpu, "rng"));
  EXPECT_TRUE(at::randn({1000}, options).equal(numbers));
}

}  // namespace
}  // namespace gavel::testing
