// The cost of pauses by counts: all bytes go through pinned memory, of which no
// more is held than allowed, and the host waits as often for many tensors as
// for few.
#include <ATen/ops/full.h>

#include <chrono>
#include <thread>

#include "iterator/tracked_state.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/iterator/session_fixture.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/simulated_device/allocator.h"
#include "tests/support/simulated_device/streams.h"

namespace gavel::testing {
namespace {

const at::Device kDevice(at::kHPU, 0);
constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kPiecesBytes = Arena::kPieces * Arena::kPieceBytes;

struct Counted {
  uint64_t copies, unpinned_bytes, waits;
};
Counted Now() {
  const simulated::Counts& counts = simulated::TheCounts();
  return {counts.copies, counts.unpinned_bytes, counts.waits};
}

// A job on the accelerator with `count` tensors of 4 MiB together, and as much
// of gradients, which no checkpoint holds.
class Job {
 public:
  Job(FileSystem& file_system, int64_t count, uint64_t pinned_bytes_max)
      : arena_(pinned_bytes_max) {
    EXPECT_OK(ChooseDevice(kDevice));
    GenerationStoreOptions options;
    options.file_system = &file_system;
    options.arena = &arena_;
    auto store = GenerationStore::Open(folder_.path() + "/saved", options);
    EXPECT_OK(store.status());
    writer_ = std::make_unique<CheckpointWriter>(
        *std::move(store), [](Generation, const absl::Status&) {});
    const int64_t size = (1 << 20) / count;
    for (int64_t i = 0; i < count; ++i) {
      tensors_.push_back(at::full({size}, static_cast<float>(i)));
      tensors_.back().mutable_grad() = at::full({size}, static_cast<float>(-i));
    }
    state_.SetArena(&arena_);
    EXPECT_OK(state_.Add(internal::TrackTensors("state", tensors_), nullptr));
    EXPECT_OK(state_.MoveTo(kDevice));
    arena_.ExpectMove(state_.MoveBytes());
    writer_->Prepare(Live(), {});
    EXPECT_OK(writer_->Wait());
  }

  void Save(std::vector<HostCopy>* copies = nullptr) {
    EXPECT_OK(writer_->Begin({1, ++step_}, Live(), {}, copies));
  }
  void PauseWithSave() {
    std::vector<HostCopy> copies;
    Save(&copies);
    EXPECT_OK(state_.Park(copies));
    Pause();
  }
  void Pause() { EXPECT_OK(state_.MoveToHost()); }
  void Resume() { EXPECT_OK(state_.MoveTo(kDevice)); }
  bool IsPinned() const {
    return std::ranges::all_of(tensors_, [](const at::Tensor& tensor) {
      return simulated::IsPinned(tensor.const_data_ptr()) &&
             simulated::IsPinned(tensor.grad().const_data_ptr());
    });
  }
  bool HasItsValues() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto value = static_cast<float>(i);
      if (!tensors_[i].cpu().eq(value).all().item<bool>()) return false;
      if (!tensors_[i].grad().cpu().eq(-value).all().item<bool>()) return false;
    }
    return true;
  }
  CheckpointWriter& writer() { return *writer_; }
  const Arena& arena() const { return arena_; }

 private:
  Snapshot Live() {
    Snapshot snapshot;
    EXPECT_OK(state_.Collect(&snapshot));
    return snapshot;
  }

  TemporaryFolder folder_;
  Arena arena_;
  std::vector<at::Tensor> tensors_;
  internal::TrackedState state_;
  std::unique_ptr<CheckpointWriter> writer_;
  uint64_t step_ = 0;
};

TEST(PauseCounts, TheFirstPauseTheSecondAtOnceAndOneBesideAWriteArePinned) {
  ClosedFileSystem closed;
  Job job(closed, /*count=*/300, 64 * kMib);
  const uint64_t before = Now().unpinned_bytes;
  job.PauseWithSave();
  EXPECT_TRUE(job.IsPinned());
  job.Resume();
  EXPECT_TRUE(job.writer().IsBusy());  // from the first block
  for (int i = 0; i < 2; ++i) {
    job.Pause();
    EXPECT_TRUE(job.IsPinned());
    job.Resume();
  }
  EXPECT_EQ(Now().unpinned_bytes, before);
  EXPECT_TRUE(job.HasItsValues());
  closed.Open();
  EXPECT_OK(job.writer().Wait());
}

TEST(PauseCounts, WithoutMemoryForThemBytesGoThroughThePinnedPieces) {
  ClosedFileSystem closed;
  const uint64_t pinned_before = simulated::PinnedBytes();
  Job job(closed, /*count=*/300, /*pinned_bytes_max=*/kMib);
  const uint64_t before = Now().unpinned_bytes;
  job.PauseWithSave();
  job.Resume();
  job.Pause();
  EXPECT_FALSE(job.IsPinned());
  EXPECT_LE(simulated::PinnedBytes() - pinned_before, kMib + kPiecesBytes);
  job.Resume();
  EXPECT_EQ(Now().unpinned_bytes, before);
  EXPECT_TRUE(job.HasItsValues());
  EXPECT_GT(job.arena().refused_bytes(), 0u);
  closed.Open();
  EXPECT_OK(job.writer().Wait());
}

TEST(PauseCounts, NoMoreIsHeldPinnedThanAllowed) {
  for (const uint64_t allowed : {1 * kMib, 7 * kMib, 14 * kMib, 64 * kMib}) {
    const uint64_t before = simulated::PinnedBytes();
    Job job(FileSystem::Posix(), /*count=*/10, allowed);
    for (int i = 0; i < 3; ++i) {
      job.PauseWithSave();
      EXPECT_LE(simulated::PinnedBytes() - before, allowed + kPiecesBytes);
      EXPECT_EQ(simulated::PinnedBytes() - before, job.arena().pinned_bytes());
      job.Resume();
      EXPECT_OK(job.writer().Wait());
    }
  }
}

// The hash of each tensor on the device is not asked for here.
TEST(PauseCounts, TheHostWaitsAsOftenForManyTensorsAsForFew) {
  const auto count = [](int64_t tensors, bool beside_a_write) {
    ClosedFileSystem closed;
    Job job(closed, tensors, 64 * kMib);
    if (beside_a_write) job.Save();
    const Counted before = Now();
    beside_a_write ? job.Pause() : job.PauseWithSave();
    job.Resume();
    const Counted after = Now();
    closed.Open();
    return std::pair(after.waits - before.waits, after.copies - before.copies);
  };
  for (const bool beside_a_write : {false, true}) {
    const auto few = count(8, beside_a_write);
    const auto many = count(512, beside_a_write);
    EXPECT_EQ(many.first, few.first);
    EXPECT_LE(many.first, 6u);
    EXPECT_EQ(many.second, few.second);
    EXPECT_LE(many.second, 4u);
  }
}

class SessionPauseCounts : public SessionTest {};

TEST_F(SessionPauseCounts, NoPauseOfATrainingCopiesThroughUnpinnedMemory) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  TrainingOptions training;
  uint64_t first = 0, last = 0;
  training.after_step = [&](Session& session) {
    if (session.steps_done() <= 1) first = Now().unpinned_bytes;
    last = Now().unpinned_bytes;
    coordinator.PauseThenGrant(TestSlot("slot-a"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  const Outcome outcome = Train(Under(coordinator.endpoint()), training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_GE(log_.Count("paused after step"), 20) << log_.Text();
  EXPECT_EQ(last, first);
}

}  // namespace
}  // namespace gavel::testing
