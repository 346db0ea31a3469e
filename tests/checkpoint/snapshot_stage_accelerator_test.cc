// Copies of an accelerator's tensors for a checkpoint: into pinned memory, and
// after all that was begun on any stream.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/checkpoint/snapshot_stage.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

class SnapshotStageOnAccelerator : public AcceleratorTest {
 protected:
  WorkerPool pool_{2};
  Arena arena_;
  SnapshotStage stage_{uint64_t{1} << 20, pool_, arena_};
};

TEST_F(SnapshotStageOnAccelerator, CopiesLieInPinnedMemory) {
  Snapshot snapshot;
  snapshot.tensors = {{"a", at::ones({1 << 20}, device_)},
                      {"b", at::ones({3, 4}, device_).t()}};
  ASSERT_OK(stage_.Copy(snapshot, 0, 1));
  arena_.Pin();
  ASSERT_OK(stage_.Copy(snapshot, 0, 1));
  const std::vector<HostCopy> copies = stage_.Copies(snapshot);
  ASSERT_EQ(copies.size(), 2u);
  for (const HostCopy& copy : copies) {
    EXPECT_TRUE(copy.copy.is_pinned());
    EXPECT_TRUE(copy.copy.equal(copy.source.cpu()));
  }
}

TEST_F(SnapshotStageOnAccelerator, WorkOfOtherStreamsIsInTheCopy) {
  const c10::impl::VirtualGuardImpl guard_impl(device_.type());
  Snapshot snapshot;
  snapshot.tensors = {{"a", at::zeros({1 << 24}, device_)}};
  guard_impl.synchronizeDevice(0);
  {
    const c10::StreamGuard guard(guard_impl.getNewStream(device_));
    for (int i = 0; i < 200; ++i) snapshot.tensors[0].second.add_(1);
  }
  ASSERT_OK(stage_.Copy(snapshot, 0, 1));
  const at::Tensor copy = stage_.Copies(snapshot)[0].copy;
  EXPECT_TRUE(copy.eq(200).all().item<bool>());
}

}  // namespace
}  // namespace gavel::testing
