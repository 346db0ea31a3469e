// The copy that a pause makes is also the checkpoint's. These tests look at the
// state while it is parked, afterwards, and in the generation, whether or not
// the write succeeds.
#include "iterator/parked_tensors.h"

#include <torch/types.h>

#include <future>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using internal::ParkedTensors;

class ParkedTensorsTest : public Test {
 protected:
  void Open(FileSystem& file_system) {
    GenerationStoreOptions options;
    options.file_system = &file_system;
    options.shard_size_bytes_max = 1 << 20;
    absl::StatusOr<GenerationStore> store =
        GenerationStore::Open(folder_.path() + "/checkpoints", options);
    ASSERT_OK(store.status());
    writer_ = std::make_unique<CheckpointWriter>(
        *std::move(store),
        [this](Generation, const absl::Status& status) { told_ = status; });
  }

  Snapshot Live() const {
    Snapshot snapshot;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      snapshot.tensors.emplace_back("tensor/" + std::to_string(i),
                                    tensors_[i].detach());
    }
    return snapshot;
  }

  absl::Status Pause(uint64_t step, const CommitOptions& options = {}) {
    std::vector<HostCopy> copies;
    GAVEL_RETURN_IF_ERROR(writer_->Begin({1, step}, Live(), options, &copies));
    // As in a session, a parameter is in the list twice: it is also the
    // optimizer's.
    std::vector<at::Tensor> handles = tensors_;
    handles.insert(handles.end(), tensors_.begin(), tensors_.end());
    GAVEL_ASSIGN_OR_RETURN(const auto matches,
                           internal::MatchCopies(handles, copies));
    return parked_.Park(matches);
  }

  std::vector<const void*> Places() const {
    std::vector<const void*> places;
    for (const at::Tensor& tensor : tensors_) {
      places.push_back(tensor.const_data_ptr());
    }
    return places;
  }

  void Train() {
    const at::NoGradGuard no_grad;
    for (at::Tensor& tensor : tensors_) tensor.add_(1);
  }

  // Whether all tensors have the value that `step` calls of Train() give them.
  bool IsLiveAt(double step) const {
    for (const at::Tensor& tensor : tensors_) {
      if (!tensor.eq(step).all().item<bool>()) return false;
    }
    return true;
  }
  void ExpectGenerationAt(double step) {
    ASSERT_OK_AND_ASSIGN(const Restored restored, writer_->Restore());
    EXPECT_EQ(static_cast<double>(restored.generation.step), step);
    ASSERT_THAT(restored.snapshot.tensors, SizeIs(tensors_.size()));
    for (const auto& [name, tensor] : restored.snapshot.tensors) {
      EXPECT_TRUE(tensor.eq(step).all().item<bool>()) << name;
    }
  }

  TemporaryFolder folder_;
  // The second one is large enough for several threads.
  std::vector<at::Tensor> tensors_ = {
      torch::zeros({3, 5}).requires_grad_(), torch::zeros({3 << 20}),
      torch::zeros({7}, torch::kDouble), torch::zeros({0, 4})};
  absl::Status told_;
  ParkedTensors parked_;
  std::unique_ptr<CheckpointWriter> writer_;
};

TEST_F(ParkedTensorsTest, LookIntoTheCopyAndComeBackToTheirPlaces) {
  Open(FileSystem::Posix());
  Train();
  const std::vector<const void*> before = Places();
  const at::Tensor other = tensors_[1].view({3, -1});  // nobody tracks it
  ASSERT_OK(Pause(1));
  EXPECT_EQ(parked_.size_bytes(), (15u + (3u << 20)) * 4 + 7 * 8);
  for (const size_t i : {0u, 1u, 2u}) EXPECT_NE(Places()[i], before[i]);
  EXPECT_TRUE(IsLiveAt(1));
  // Return() brings back the parked copy, which changes here, and not the
  // values that were left behind.
  tensors_[1].fill_(3);
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  EXPECT_EQ(parked_.size_bytes(), 0u);
  EXPECT_EQ(Places(), before);
  EXPECT_TRUE(other.eq(3).all().item<bool>());
  EXPECT_TRUE(tensors_[0].requires_grad());
  EXPECT_TRUE(tensors_[0].is_leaf());
}

TEST_F(ParkedTensorsTest, ReturnBeforeTheWriteIsDone) {
  ClosedFileSystem closed;
  Open(closed);
  Train();
  ASSERT_OK(Pause(1));
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  Train();  // what is written meanwhile is not changed by it
  EXPECT_TRUE(writer_->IsBusy());
  closed.Open();
  ASSERT_OK(writer_->Wait());
  ASSERT_OK(told_);
  EXPECT_TRUE(IsLiveAt(2));
  ExpectGenerationAt(1);
}

TEST_F(ParkedTensorsTest, ASecondPauseRightAfterAResume) {
  Open(FileSystem::Posix());
  for (int step = 1; step <= 20; ++step) {
    Train();
    ASSERT_OK(Pause(static_cast<uint64_t>(step)));
    ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
    ASSERT_TRUE(IsLiveAt(step));
  }
  ASSERT_OK(writer_->Wait());
  ExpectGenerationAt(20);
}

TEST_F(ParkedTensorsTest, AFailedWriteLeavesTheStateAndTheOldGeneration) {
  FaultInjectingFileSystem faulty(FileSystem::Posix());
  Open(faulty);
  Train();
  ASSERT_OK(Pause(1));
  ASSERT_OK(writer_->Wait());
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  Train();
  faulty.FailAt(1, FaultInjectingFileSystem::Fault::kError,
                absl::ResourceExhaustedError("disk full"));
  ASSERT_OK(Pause(2));
  EXPECT_FALSE(writer_->Wait().ok());
  EXPECT_FALSE(told_.ok());
  EXPECT_TRUE(IsLiveAt(2));

  // An eviction saves the parked state through a copy in other memory.
  const std::vector<const void*> parked = Places();
  std::vector<HostCopy> copies;
  ASSERT_OK(writer_->Begin({1, 2}, Live(), {}, &copies));
  for (const HostCopy& copy : copies) {
    if (copy.source.numel() == 0) continue;
    EXPECT_NE(copy.copy.const_data_ptr(), copy.source.const_data_ptr());
  }
  ASSERT_OK(writer_->Wait());
  EXPECT_EQ(Places(), parked);
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  EXPECT_TRUE(IsLiveAt(2));
  copies.clear();
  ExpectGenerationAt(2);
}

// This happens when the lease goes to another job during the write.
TEST_F(ParkedTensorsTest, ARefusedCommitLeavesTheState) {
  Open(FileSystem::Posix());
  Train();
  CommitOptions options;
  options.before_commit = [] { return absl::CancelledError("lease ended"); };
  ASSERT_OK(Pause(1, options));
  EXPECT_TRUE(absl::IsCancelled(writer_->Wait()));
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  EXPECT_TRUE(IsLiveAt(1));
  EXPECT_TRUE(absl::IsNotFound(writer_->Restore().status()));
}

TEST_F(ParkedTensorsTest, WhatSharesMemoryOrIsNotContiguousStays) {
  Open(FileSystem::Posix());
  const at::Tensor whole = torch::zeros({4, 6});
  tensors_ = {whole.narrow(0, 0, 2), whole.narrow(0, 2, 2),
              torch::zeros({4, 6}).t(), torch::zeros({2})};
  const std::vector<const void*> before = Places();
  Train();
  ASSERT_OK(Pause(1));
  EXPECT_EQ(parked_.size_bytes(), 8u);
  for (const size_t i : {0u, 1u, 2u}) EXPECT_EQ(Places()[i], before[i]);
  ASSERT_OK(parked_.Return(at::Device(at::kCPU)));
  EXPECT_EQ(Places(), before);
  EXPECT_TRUE(IsLiveAt(1));
  ASSERT_OK(writer_->Wait());
  ExpectGenerationAt(1);
}

}  // namespace
}  // namespace gavel::testing
