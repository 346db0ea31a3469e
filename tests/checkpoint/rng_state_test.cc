#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>

#include "runtime/checkpoint/snapshot.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const c10::Device kCpu(c10::kCPU);

TEST(RngState, SameStateSameNumbers) {
  at::randn({3});  // leaves a cached normal number behind
  ASSERT_OK_AND_ASSIGN(std::string state, GetRngState(kCpu));
  at::Tensor normal = at::randn({7});
  at::Tensor order = at::randperm(50);
  ASSERT_OK(SetRngState(kCpu, state));
  EXPECT_TRUE(at::randn({7}).equal(normal));
  EXPECT_TRUE(at::randperm(50).equal(order));
}

TEST(RngState, TravelsInASnapshot) {
  Snapshot snapshot;
  ASSERT_OK(CollectRngState(kCpu, "rng", &snapshot));
  EXPECT_TRUE(snapshot.bytes.contains("rng/cpu"));
  at::Tensor numbers = at::randn({5});
  ASSERT_OK(RestoreRngState(snapshot, kCpu, "rng"));
  EXPECT_TRUE(at::randn({5}).equal(numbers));
  EXPECT_THAT(RestoreRngState(snapshot, kCpu, "other"),
              StatusIs(kNotFound, "'other'"));
}

TEST(RngState, BadStatesAreRefusedAndChangeNothing) {
  ASSERT_OK_AND_ASSIGN(std::string state, GetRngState(kCpu));
  EXPECT_THAT(SetRngState(kCpu, ""), IsInvalid("cpu"));
  EXPECT_THAT(SetRngState(kCpu, "short"), IsInvalid("cpu"));
  EXPECT_EQ(*GetRngState(kCpu), state);
}

TEST(RngState, DevicesThatAreNotThereAreRefused) {
  c10::Device gpu(c10::kCUDA, 100);
  EXPECT_THAT(GetRngState(gpu), StatusIs(kFailedPrecondition, "cuda:100"));
  EXPECT_THAT(SetRngState(gpu, ""), StatusIs(kFailedPrecondition, "cuda:100"));
  EXPECT_THAT(GetRngState(c10::Device(c10::kMPS, 0)),
              StatusIs(kFailedPrecondition, "mps:0"));
}

}  // namespace
}  // namespace gavel::testing
