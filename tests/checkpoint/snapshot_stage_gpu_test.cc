// Copies of a GPU's tensors for a checkpoint: into pinned memory, and after all
// that was begun on any stream.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

#include "runtime/checkpoint/snapshot_stage.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

class SnapshotStageGpu : public Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no usable GPU here";
    arena_.AllowPinned();
  }

  WorkerPool pool_{2};
  Arena arena_;
  SnapshotStage stage_{uint64_t{1} << 20, pool_, arena_};
};

TEST_F(SnapshotStageGpu, CopiesLieInPinnedMemory) {
  Snapshot snapshot;
  snapshot.tensors = {{"a", at::ones({1 << 20}, kGpu)},
                      {"b", at::ones({3, 4}, kGpu).t()}};
  ASSERT_OK(stage_.Copy(snapshot, 0, 1));
  const std::vector<HostCopy> copies = stage_.Copies(snapshot);
  ASSERT_EQ(copies.size(), 2u);
  for (const HostCopy& copy : copies) {
    EXPECT_TRUE(copy.copy.is_pinned());
    EXPECT_TRUE(copy.copy.equal(copy.source.cpu()));
  }
}

TEST_F(SnapshotStageGpu, WorkOfOtherStreamsIsInTheCopy) {
  const c10::impl::VirtualGuardImpl gpu(c10::kCUDA);
  Snapshot snapshot;
  snapshot.tensors = {{"a", at::zeros({1 << 24}, kGpu)}};
  gpu.synchronizeDevice(0);
  {
    const c10::StreamGuard guard(gpu.getNewStream(kGpu));
    for (int i = 0; i < 200; ++i) snapshot.tensors[0].second.add_(1);
  }
  ASSERT_OK(stage_.Copy(snapshot, 0, 1));
  const at::Tensor copy = stage_.Copies(snapshot)[0].copy;
  EXPECT_TRUE(copy.eq(200).all().item<bool>());
}

}  // namespace
}  // namespace gavel::testing
