#include <ATen/ops/randn.h>

#include "runtime/checkpoint/snapshot.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

using RngStateOnAccelerator = AcceleratorTest;

TEST_F(RngStateOnAccelerator, SameStateSameNumbers) {
  at::TensorOptions options = at::device(device_).dtype(at::kFloat);
  at::randn({3}, options);
  Snapshot snapshot;
  ASSERT_OK(CollectRngState(device_, "rng", &snapshot));
  EXPECT_THAT(snapshot.bytes, SizeIs(2));  // with the CPU's
  at::Tensor numbers = at::randn({1000}, options);
  ASSERT_OK(RestoreRngState(snapshot, device_, "rng"));
  EXPECT_TRUE(at::randn({1000}, options).equal(numbers));
}

}  // namespace
}  // namespace gavel::testing
