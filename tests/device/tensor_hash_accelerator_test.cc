// The accelerator's hash against the host's.
#include <ATen/ops/randint.h>

#include "runtime/device/tensor_hash.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

class TensorHashOnAccelerator : public AcceleratorTest {
 protected:
  void SetUp() override {
    AcceleratorTest::SetUp();
    if (IsSkipped()) return;
    if (!hasher_.Hash({Bytes(8)})[0]) GTEST_SKIP() << "built without nvcc";
  }

  at::Tensor Bytes(int64_t count) {
    return at::randint(256, {count}, at::device(device_).dtype(at::kByte));
  }

  TensorHasher hasher_;
};

TEST_F(TensorHashOnAccelerator, IsTheHostsForEveryLength) {
  std::vector<at::Tensor> tensors;
  for (int64_t count = 1; count <= 70; ++count) tensors.push_back(Bytes(count));
  for (const int64_t count : {2047, 2048, 2049, 1 << 20, (1 << 24) + 5}) {
    tensors.push_back(Bytes(count));
  }
  const auto hashes = hasher_.Hash(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor on_host = tensors[i].cpu();
    ASSERT_TRUE(hashes[i].has_value()) << tensors[i].numel();
    EXPECT_EQ(*hashes[i], HashBytes(on_host.const_data_ptr(), on_host.nbytes()))
        << tensors[i].numel();
  }
}

TEST_F(TensorHashOnAccelerator, WhatTheKernelCannotReadIsLeftOut) {
  const at::Tensor square = Bytes(64 * 64).view({64, 64});
  const auto hashes =
      hasher_.Hash({square, square.t(), Bytes(17).slice(0, 1), square.cpu()});
  EXPECT_TRUE(hashes[0].has_value());
  EXPECT_FALSE(hashes[1].has_value());
  EXPECT_FALSE(hashes[2].has_value());
  EXPECT_FALSE(hashes[3].has_value());
}

TEST_F(TensorHashOnAccelerator, AChangedElementChangesIt) {
  at::Tensor tensor = Bytes(1 << 24);
  const auto before = hasher_.Hash({tensor});
  tensor[12'345'678].add_(1);
  EXPECT_NE(hasher_.Hash({tensor}), before);
  tensor[12'345'678].sub_(1);
  EXPECT_EQ(hasher_.Hash({tensor}), before);
}

}  // namespace
}  // namespace gavel::testing
