#include <ATen/ops/zeros.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// A door that a save waits at.
class Gate {
 public:
  absl::Status Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return absl::OkStatus();
  }
  void Open() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class CheckpointWriterTest : public Test {
 protected:
  CheckpointWriter Make(GenerationStore::Options options = {}) {
    return CheckpointWriter(
        *GenerationStore::Open(folder_.path(), options),
        [this](Generation generation, const absl::Status& status) {
          done_on_ = std::this_thread::get_id();
          if (status.ok()) committed_.push_back(generation.step);
          if (!status.ok()) failed_.push_back(generation.step);
        });
  }
  uint64_t RestoredStep() {
    auto restored = GenerationStore::Open(folder_.path())->Restore();
    if (!restored.ok()) return 0;
    EXPECT_TRUE(
        IsSnapshotOfStep(restored->snapshot, restored->generation.step));
    return restored->generation.step;
  }

  CheckpointFolder folder_;
  std::vector<uint64_t> committed_, failed_;
  std::thread::id done_on_;
};

TEST_F(CheckpointWriterTest, TheCallerGoesOnWhileASaveIsWritten) {
  CheckpointWriter writer = Make();
  Gate gate;
  Snapshot snapshot = SnapshotOfStep(10);
  ASSERT_OK(writer.Begin({1, 10}, snapshot,
                         {.before_commit = [&] { return gate.Pass(); }}));
  // Training goes on, in place.
  for (auto& [name, tensor] : snapshot.tensors) tensor.zero_();
  EXPECT_TRUE(writer.IsBusy());
  EXPECT_EQ(writer.InFlight(), (Generation{1, 10}));
  EXPECT_EQ(RestoredStep(), 0u);
  gate.Open();
  EXPECT_OK(writer.Wait());
  EXPECT_FALSE(writer.IsBusy());
  EXPECT_EQ(writer.InFlight(), std::nullopt);
  EXPECT_THAT(committed_, ElementsAre(10u));
  EXPECT_NE(done_on_, std::this_thread::get_id());
  EXPECT_EQ(RestoredStep(), 10u);
}

TEST_F(CheckpointWriterTest, ASecondSaveWaitsForTheFirst) {
  CheckpointWriter writer = Make();
  Gate gate;
  ASSERT_OK(writer.Begin({1, 10}, SnapshotOfStep(10),
                         {.before_commit = [&] { return gate.Pass(); }}));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.Open();
  });
  ASSERT_OK(writer.Begin({1, 20}, SnapshotOfStep(20), {}));
  opener.join();
  EXPECT_OK(writer.Wait());
  EXPECT_THAT(committed_, ElementsAre(10u, 20u));
  EXPECT_EQ(RestoredStep(), 20u);
}

TEST_F(CheckpointWriterTest, DestructionWaitsForTheSaveUnderWay) {
  {
    CheckpointWriter writer = Make();
    ASSERT_OK(writer.Begin({1, 10}, SnapshotOfStep(10), {}));
  }
  EXPECT_THAT(committed_, ElementsAre(10u));
  EXPECT_EQ(RestoredStep(), 10u);
}

TEST_F(CheckpointWriterTest, AFailedSaveIsToldAndTheNextOneWorks) {
  FaultInjectingFileSystem faulty(FileSystem::Posix());
  CheckpointWriter writer = Make({.file_system = &faulty});
  ASSERT_OK(writer.Begin({1, 10}, SnapshotOfStep(10), {}));
  ASSERT_OK(writer.Wait());
  faulty.FailAt(3, FaultInjectingFileSystem::Fault::kError,
                absl::ResourceExhaustedError("disk full"));
  ASSERT_OK(writer.Begin({1, 20}, SnapshotOfStep(20), {}));
  EXPECT_THAT(writer.Wait(), StatusIs(kResourceExhausted, "disk full"));
  EXPECT_THAT(failed_, ElementsAre(20u));
  EXPECT_EQ(RestoredStep(), 10u);
  ASSERT_OK(writer.Begin({1, 21}, SnapshotOfStep(21), {}));
  EXPECT_OK(writer.Wait());
  EXPECT_EQ(RestoredStep(), 21u);
}

TEST_F(CheckpointWriterTest, StateThatCannotBeStoredIsRefusedAtOnce) {
  CheckpointWriter writer = Make();
  Snapshot bad;
  bad.tensors = {{"", at::zeros({1})}};
  EXPECT_THAT(writer.Begin({1, 10}, bad, {}), IsInvalid("reserved"));
  writer.Prepare(bad, {});
  EXPECT_FALSE(writer.IsBusy());
}

TEST_F(CheckpointWriterTest, PreparedMemoryIsWhatASaveUses) {
  CheckpointWriter writer = Make();
  const Snapshot snapshot = SnapshotOfStep(1, 1'000'000);
  writer.Prepare(snapshot, {});
  EXPECT_OK(writer.Wait());
  const uint64_t size_bytes = writer.arena().size_bytes();
  EXPECT_GE(size_bytes, 4'000'000u);
  ASSERT_OK(writer.Begin({1, 1}, snapshot, {}));
  EXPECT_OK(writer.Wait());
  EXPECT_EQ(writer.arena().size_bytes(), size_bytes);
}

}  // namespace
}  // namespace gavel::testing
