// Tensors are not copied again if their hash equals that of the last copy. The
// hash function here reads host memory.
#include "runtime/checkpoint/snapshot_stage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr int64_t kElements = 1000;
constexpr uint64_t kBytes = kElements * sizeof(float);

class SnapshotStageTest : public Test {
 protected:
  SnapshotStageTest() {
    for (const char* name : {"a", "b", "c"}) {
      snapshot_.tensors.emplace_back(name, at::full({kElements}, 1.0f));
    }
    snapshot_.bytes["position"] = "0";
  }

  // Hashes only the first element, which is enough for tensors of equal
  // elements.
  std::vector<std::optional<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors) const {
    std::vector<std::optional<uint64_t>> hashes;
    for (const at::Tensor& tensor : tensors) {
      hashes.emplace_back();
      if (tensor.storage().data() == nullptr) continue;
      hashes.back() = static_cast<uint64_t>(tensor[0].item<float>());
    }
    if (!hashes.empty() && first_is_not_hashed_) hashes[0].reset();
    return hashes;
  }
  void Set(size_t tensor, float value) {
    snapshot_.tensors[tensor].second.fill_(value);
  }
  // Copies, and checks that the copy equals the present state.
  void Copy(int rank = 0, int world_size = 1) {
    ASSERT_OK(stage_.Copy(snapshot_, rank, world_size));
    for (const HostCopy& copy : stage_.Copies(snapshot_)) {
      ASSERT_EQ(copy.copy.defined(), copy.owner == rank);
      if (copy.owner == rank) {
        EXPECT_TRUE(copy.copy.equal(copy.source));
      }
    }
  }

  Snapshot snapshot_;
  bool first_is_not_hashed_ = false;
  WorkerPool pool_{1};
  Arena arena_;
  // Each tensor has a shard of its own.
  SnapshotStage stage_{1, pool_, arena_,
                       [this](const auto& tensors) { return Hash(tensors); }};
};

TEST_F(SnapshotStageTest, WhatIsAsItWasIsNotCopiedAgain) {
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
  Set(1, 2);
  snapshot_.bytes["position"] = "1";
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 2 * kBytes);
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 3 * kBytes);
}

TEST_F(SnapshotStageTest, WhatHasNoHashIsCopied) {
  Copy();
  first_is_not_hashed_ = true;
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 2 * kBytes);
  // Without a hash of the last copy, the tensor is copied once more.
  first_is_not_hashed_ = false;
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 2 * kBytes);
}

TEST_F(SnapshotStageTest, WhileSomebodyHoldsTheCopyAllGoesToAnotherPlace) {
  Copy();
  const std::vector<HostCopy> held = stage_.Copies(snapshot_);
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
}

TEST_F(SnapshotStageTest, AnotherCutPutsOtherTensorsIntoTheSamePlaces) {
  for (size_t i = 0; i < 3; ++i) Set(i, static_cast<float>(i));
  Copy();
  stage_.GroupUnchanged({"c"});  // comes first
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
  std::swap(snapshot_.tensors[0], snapshot_.tensors[1]);
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
}

TEST_F(SnapshotStageTest, AnotherRankStoresOtherTensorsInTheSamePlaces) {
  for (size_t i = 0; i < 3; ++i) Set(i, static_cast<float>(i));
  Copy(0, 2);
  Copy(1, 2);
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
  Copy(1, 2);
  EXPECT_EQ(stage_.skipped_bytes(), kBytes);
}

TEST_F(SnapshotStageTest, SaysWhichRankHasTheCopyOfEachTensor) {
  Copy(1, 2);
  std::map<const void*, int> owners;
  for (const HostCopy& copy : stage_.Copies(snapshot_)) {
    EXPECT_TRUE(copy.is_shared);
    owners[copy.source.const_data_ptr()] = copy.owner;
  }
  std::vector<int> by_tensor;
  for (const auto& [name, tensor] : snapshot_.tensors) {
    by_tensor.push_back(owners.at(tensor.const_data_ptr()));
  }
  EXPECT_THAT(by_tensor, ElementsAre(0, 1, 0));
}

TEST_F(SnapshotStageTest, ATensorWhoseValuesAreElsewhereIsNotStored) {
  Copy(1, 2);
  at::Tensor elsewhere = at::empty({0});
  elsewhere.unsafeGetTensorImpl()->set_sizes_contiguous({kElements});
  snapshot_.tensors[0].second = elsewhere;
  first_is_not_hashed_ = true;
  ASSERT_OK(stage_.Copy(snapshot_, 1, 2));
  const absl::Status status = stage_.Copy(snapshot_, 0, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(SnapshotStageTest, WhatWasReadIntoTheArenaIsOverwritten) {
  Copy();
  stage_.Release();
  std::memset((*arena_.Take(1))->data(), 1, arena_.size_bytes());
  Copy();
  EXPECT_EQ(stage_.skipped_bytes(), 0u);
}

TEST_F(SnapshotStageTest, AfterACopyThatFailedAllIsCopied) {
  Copy();
  const at::Tensor good = snapshot_.tensors[2].second;
  snapshot_.tensors[2].second = good.to_sparse();
  EXPECT_FALSE(stage_.Copy(snapshot_, 0, 1).ok());
  snapshot_.tensors[2].second = good;
  Set(0, 5);
  Copy();
}

}  // namespace
}  // namespace gavel::testing
