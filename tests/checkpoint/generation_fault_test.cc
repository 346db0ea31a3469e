// The commit protocol against a disk that fails: an error at every call, a loss
// of power at every call, and random sequences of both.
#include <random>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/simulated_disk.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using Fault = FaultInjectingFileSystem::Fault;
constexpr char kDirectory[] = "/checkpoints";
constexpr int kCallsMax = 1000;
constexpr int kCrashesPerCall = 20;

// With one thread, calls come in the same order each time; with several, in
// any.
GenerationStore OpenOn(FileSystem& file_system, int threads = 1) {
  // Small shards, so that a generation has several.
  auto store = GenerationStore::Open(kDirectory, {.shard_size_bytes_max = 40,
                                                  .threads = threads,
                                                  .file_system = &file_system});
  EXPECT_OK(store.status());
  return *std::move(store);
}

// A disk with the generations of steps 10 and 20.
std::unique_ptr<SimulatedDisk> DiskWithTwo() {
  auto disk = std::make_unique<SimulatedDisk>();
  GenerationStore store = OpenOn(*disk);
  EXPECT_OK(store.Commit({1, 10}, SnapshotOfStep(10)));
  EXPECT_OK(store.Commit({1, 20}, SnapshotOfStep(20)));
  return disk;
}

// The step that a new process restores, checked to the last bit.
uint64_t RestoredStep(FileSystem& file_system) {
  absl::StatusOr<Restored> restored = OpenOn(file_system).Restore();
  EXPECT_OK(restored.status());
  if (!restored.ok()) return 0;
  uint64_t step = restored->generation.step;
  EXPECT_TRUE(IsSnapshotOfStep(restored->snapshot, step));
  // Nothing was rejected: a manifest on disk has all its shards.
  EXPECT_THAT(restored->notes, IsEmpty());
  return step;
}

bool IsEmptyOfLeftovers(FileSystem& file_system) {
  absl::StatusOr<Attempts> attempts = ListAttempts(file_system, kDirectory);
  return attempts.ok() && attempts->uncommitted.empty();
}

struct FaultCase {
  Fault fault;
  int threads;
  bool links;
};

class ErrorAtEveryCall : public TestWithParam<FaultCase> {};

TEST_P(ErrorAtEveryCall, OldGenerationStaysAndTheNextCommitWorks) {
  int failures = 0;
  for (int call = 1; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
    if (!GetParam().links) disk->RefuseLinks();
    FaultInjectingFileSystem faulty(*disk);
    GenerationStore store = OpenOn(faulty, GetParam().threads);
    // After a restore, the store knows which shards are unchanged.
    ASSERT_EQ(store.Restore()->generation.step, 20u);
    faulty.FailAt(call, GetParam().fault,
                  absl::ResourceExhaustedError("disk full"));
    absl::Status status = store.Commit({1, 30}, SnapshotOfStep(30));
    bool reached = faulty.calls() >= call;
    faulty.FailAt(0, Fault::kError, absl::OkStatus());
    if (status.ok()) {
      ASSERT_EQ(RestoredStep(*disk), 30u);
    } else {
      ++failures;
      ASSERT_THAT(status, StatusIs(kResourceExhausted, "disk full"));
      ASSERT_EQ(RestoredStep(*disk), 20u);
      // The failed commit deleted nothing.
      ASSERT_OK_AND_ASSIGN(Attempts left, ListAttempts(*disk, kDirectory));
      ASSERT_THAT(left.committed,
                  ElementsAre(Attempt{{1, 10}}, Attempt{{1, 20}}));
    }
    // The job continues: the same step again, then the next.
    ASSERT_OK(store.Commit({1, 30}, SnapshotOfStep(30)));
    ASSERT_EQ(store.linked_shards() > 0, GetParam().links);
    ASSERT_EQ(RestoredStep(*disk), 30u);
    ASSERT_OK(store.Commit({1, 40}, SnapshotOfStep(40)));
    ASSERT_EQ(RestoredStep(*disk), 40u);
    ASSERT_TRUE(IsEmptyOfLeftovers(*disk));
    if (!reached) {
      EXPECT_GT(failures, 20) << "calls of the protocol that failed a commit";
      return;
    }
  }
  FAIL() << "a commit takes more than " << kCallsMax << " calls";
}

INSTANTIATE_TEST_SUITE_P(Faults, ErrorAtEveryCall,
                         Values(FaultCase{Fault::kError, 1, true},
                                FaultCase{Fault::kShortWrite, 1, true},
                                FaultCase{Fault::kDoneAndError, 1, true},
                                FaultCase{Fault::kError, 1, false},
                                FaultCase{Fault::kError, 4, true},
                                FaultCase{Fault::kShortWrite, 4, true},
                                FaultCase{Fault::kDoneAndError, 4, true}));

// A restore returns a whole generation or an error.
TEST(GenerationFault, ErrorAtEveryCallOfARestore) {
  for (int call = 1; call < kCallsMax; ++call) {
    SCOPED_TRACE(call);
    std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
    FaultInjectingFileSystem faulty(*disk);
    GenerationStore store = OpenOn(faulty);
    faulty.FailAt(call, Fault::kError, absl::UnknownError("EIO"));
    absl::StatusOr<Restored> restored = store.Restore();
    if (faulty.calls() < call) {
      EXPECT_GT(call, 5);
      return;
    }
    if (restored.ok()) {
      EXPECT_TRUE(IsSnapshotOfStep(restored->snapshot, 10));
      EXPECT_EQ(restored->notes.size(), 1u);
    } else {
      EXPECT_THAT(restored, StatusIs(kUnknown, "EIO"));
    }
    // The error is not remembered once the disk reads again.
    ASSERT_OK_AND_ASSIGN(restored, store.Restore());
    EXPECT_TRUE(IsSnapshotOfStep(restored->snapshot, 20));
  }
  FAIL() << "a restore takes more than " << kCallsMax << " calls";
}

// With keep_last = 2, both generations that stay must be readable. The other
// one stays beside them until there are two later ones.
TEST(GenerationFault, AnUnreadableGenerationDisplacesNoGoodOne) {
  std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
  FaultInjectingFileSystem faulty(*disk);
  GenerationStore store = OpenOn(faulty);
  uint64_t step = 0;
  for (int call = 1; step != 10 && call < kCallsMax; ++call) {
    faulty.FailAt(call, Fault::kError, absl::UnknownError("EIO"));
    const absl::StatusOr<Restored> restored = store.Restore();
    step = restored.ok() ? restored->generation.step : 0;
  }
  ASSERT_EQ(step, 10u);
  const auto left = [&] {
    std::vector<uint64_t> steps;
    const auto attempts = ListAttempts(faulty, kDirectory);
    if (!attempts.ok()) return steps;
    for (const Attempt& attempt : attempts->committed) {
      steps.push_back(attempt.generation.step);
    }
    return steps;
  };
  ASSERT_OK(store.Commit({1, 30}, SnapshotOfStep(30)));
  EXPECT_EQ(left(), (std::vector<uint64_t>{10, 20, 30}));
  ASSERT_OK(store.Commit({1, 40}, SnapshotOfStep(40)));
  EXPECT_EQ(left(), (std::vector<uint64_t>{30, 40}));
}

class CrashAtEveryCall : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, CrashAtEveryCall, Values(1, 4));

TEST_P(CrashAtEveryCall, LeavesTheOldOrTheNewGeneration) {
  std::mt19937 random(1);
  int old_count = 0, new_count = 0;
  for (int call = 1; call < kCallsMax; ++call) {
    bool reached = false;
    for (int i = 0; i < kCrashesPerCall; ++i) {
      SCOPED_TRACE(call);
      std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
      FaultInjectingFileSystem faulty(*disk);
      GenerationStore store = OpenOn(faulty, GetParam());
      ASSERT_OK(store.Restore());
      faulty.FailAt(call, Fault::kCrash, absl::UnknownError("power lost"));
      bool acknowledged = store.Commit({1, 30}, SnapshotOfStep(30)).ok();
      reached = faulty.calls() >= call;
      disk->Crash(random);
      uint64_t step = RestoredStep(*disk);
      ASSERT_TRUE(step == 30 || (step == 20 && !acknowledged)) << step;
      ++(step == 30 ? new_count : old_count);
      GenerationStore next = OpenOn(*disk);
      ASSERT_OK(next.Commit({2, 40}, SnapshotOfStep(40)));
      ASSERT_EQ(RestoredStep(*disk), 40u);
      ASSERT_TRUE(IsEmptyOfLeftovers(*disk));
    }
    if (!reached) {
      EXPECT_GT(old_count, 0);
      EXPECT_GT(new_count, 0);
      return;
    }
  }
  FAIL() << "a commit takes more than " << kCallsMax << " calls";
}

TEST(GenerationFault, FileWhoseFsyncFailedIsNeverSyncedAgain) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
    GenerationStore store = OpenOn(*disk);
    disk->FailNextSync();
    EXPECT_FALSE(store.Commit({1, 30}, SnapshotOfStep(30)).ok());
    EXPECT_OK(store.Commit({1, 30}, SnapshotOfStep(30)));
    EXPECT_FALSE(disk->synced_after_failure());
    std::mt19937 random(seed);
    disk->Crash(random);
    EXPECT_EQ(RestoredStep(*disk), 30u);
  }
}

// Removing the failed attempt fails as well, so its folder is in the way.
TEST(GenerationFault, RetryWritesIntoANewFolderWhenTheOldOneCannotBeRemoved) {
  class Stubborn : public FaultInjectingFileSystem {
   public:
    using FaultInjectingFileSystem::FaultInjectingFileSystem;
    absl::Status RemoveFile(const std::string& path) override {
      return absl::PermissionDeniedError("cannot remove " + path);
    }
  };
  std::unique_ptr<SimulatedDisk> disk = DiskWithTwo();
  Stubborn stubborn(*disk);
  GenerationStore store = OpenOn(stubborn);
  disk->FailNextSync();
  EXPECT_FALSE(store.Commit({1, 30}, SnapshotOfStep(30)).ok());
  EXPECT_OK(store.Commit({1, 30}, SnapshotOfStep(30)));
  EXPECT_THAT(store.cleanup_status(), Not(IsOk()));
  EXPECT_FALSE(disk->synced_after_failure());
  EXPECT_EQ(RestoredStep(*disk), 30u);
  ASSERT_OK_AND_ASSIGN(Attempts attempts, ListAttempts(*disk, kDirectory));
  EXPECT_EQ(attempts.committed.back(), (Attempt{{1, 30}, 1}));
}

// Writers follow each other on the same disk, and a loss of power ends each.
TEST(GenerationFaultProperty, AcknowledgedGenerationsNeverGetLost) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SimulatedDisk disk;
    uint64_t acknowledged = 0, attempted = 0;
    for (uint64_t epoch = 1; epoch <= 6; ++epoch) {
      FaultInjectingFileSystem faulty(disk);
      absl::StatusOr<GenerationStore> store =
          GenerationStore::Open(kDirectory, {.shard_size_bytes_max = 40,
                                             .threads = seed % 2 == 0 ? 1 : 4,
                                             .file_system = &faulty});
      ASSERT_OK(store.status());
      absl::StatusOr<Restored> restored = store->Restore();
      uint64_t step = 0;
      if (restored.ok()) {
        step = restored->generation.step;
        ASSERT_TRUE(IsSnapshotOfStep(restored->snapshot, step));
      } else {
        ASSERT_THAT(restored, StatusIs(kNotFound, ""));
      }
      ASSERT_GE(step, acknowledged);
      ASSERT_LE(step, attempted);
      int call = static_cast<int>(random() % 120) + 1;
      auto fault = static_cast<Fault>(random() % 4);
      faulty.FailAt(call, fault, absl::UnknownError("simulated"));
      for (int i = 0; i < 4; ++i) {
        attempted = std::max(attempted, ++step);
        if (store->Commit({epoch, step}, SnapshotOfStep(step)).ok()) {
          acknowledged = step;
        }
      }
      disk.Crash(random);
    }
  }
}

}  // namespace
}  // namespace gavel::testing
