#include "runtime/checkpoint/generation_store.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <filesystem>
#include <stdexcept>

#include "core/status.h"
#include "gavel_paths.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

class GenerationStoreTest : public Test {
 protected:
  GenerationStore Open(GenerationStore::Options options = {}) {
    auto store = GenerationStore::Open(directory_, options);
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  std::vector<Generation> Committed() {
    auto attempts = ListAttempts(FileSystem::Posix(), directory_);
    EXPECT_OK(attempts.status());
    std::vector<Generation> generations;
    for (const Attempt& attempt : attempts->committed) {
      generations.push_back(attempt.generation);
    }
    return generations;
  }

  CheckpointFolder folder_;
  // Two levels of this path do not exist yet.
  std::string directory_ = folder_.path() + "/jobs/resnet";
};

TEST_F(GenerationStoreTest, RestoresWhatWasCommitted) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({3, 100}, SnapshotOfStep(100)));
  ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
  EXPECT_EQ(restored.generation, (Generation{3, 100}));
  EXPECT_EQ(restored.world_size, 1);
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 100));
  EXPECT_THAT(restored.notes, IsEmpty());
}

TEST_F(GenerationStoreTest, RestoresOverSeveralShards) {
  GenerationStore store = Open({.shard_size_bytes_max = 16});
  ASSERT_OK(store.Commit({1, 7}, SnapshotOfStep(7)));
  ASSERT_OK_AND_ASSIGN(Manifest manifest, store.ReadManifest({1, 7}));
  EXPECT_GT(manifest.shards.size(), 3u);
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 7));
}

// Changes of the state after Stage() do not matter.
TEST_F(GenerationStoreTest, WhatWasStagedIsACopy) {
  GenerationStore store = Open();
  Snapshot snapshot = SnapshotOfStep(7, 100000);
  ASSERT_OK(store.Stage(snapshot));
  snapshot.tensors[0].second.fill_(-1);
  snapshot.tensors.clear();
  snapshot.bytes.clear();
  ASSERT_OK(store.CommitStaged({1, 7}));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 7, 100000));
}

TEST_F(GenerationStoreTest, NothingStagedIsAnError) {
  GenerationStore store = Open();
  EXPECT_THAT(store.CommitStaged({1, 7}),
              StatusIs(kFailedPrecondition, "nothing is staged"));
  Snapshot bad;
  bad.tensors = {{"", at::ones({1})}};
  ASSERT_OK(store.Stage(SnapshotOfStep(7)));
  EXPECT_FALSE(store.Stage(bad).ok());
  EXPECT_THAT(store.CommitStaged({1, 7}),
              StatusIs(kFailedPrecondition, "nothing is staged"));
}

TEST_F(GenerationStoreTest, MemoryForCopiesIsKeptWhileItSuffices) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({1, 1}, SnapshotOfStep(1, 100000)));
  const uint64_t size_bytes = store.arena().size_bytes();
  EXPECT_GE(size_bytes, 400000u);
  ASSERT_OK(store.Commit({1, 2}, SnapshotOfStep(2, 10)));
  ASSERT_OK(store.Commit({1, 3}, SnapshotOfStep(3, 100000)));
  EXPECT_EQ(store.arena().size_bytes(), size_bytes);
  ASSERT_OK_AND_ASSIGN(uint64_t needed, store.SizeOf(SnapshotOfStep(4, 1000)));
  EXPECT_GE(needed, 4000u);
  EXPECT_LT(needed, size_bytes);
}

// Restored tensors refer to the arena, so a save must not overwrite them.
TEST_F(GenerationStoreTest, RestoredTensorsOutliveLaterSaves) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({1, 1}, SnapshotOfStep(1, 1000)));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  ASSERT_OK(store.Commit({1, 2}, SnapshotOfStep(2, 1000)));
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 1, 1000));
  ASSERT_OK_AND_ASSIGN(Restored again, store.Restore());
  EXPECT_TRUE(IsSnapshotOfStep(again.snapshot, 2, 1000));
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 1, 1000));
}

// The generation was written in the first version of the format.
TEST_F(GenerationStoreTest, FormatVersionOneIsStillRead) {
  fs::create_directories(directory_);
  fs::copy(std::string(GAVEL_SOURCE_DIR) + "/tests/checkpoint/format_1",
           directory_, fs::copy_options::recursive);
  GenerationStore store = Open();
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_EQ(restored.generation, (Generation{3, 4}));
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 4));
  // The next generation is written in the present format.
  ASSERT_OK(store.Commit({3, 5}, restored.snapshot));
  ASSERT_OK_AND_ASSIGN(Manifest manifest, store.ReadManifest({3, 5}));
  EXPECT_EQ(manifest.format_version, kManifestFormatVersion);
  ASSERT_OK_AND_ASSIGN(restored, store.Restore());
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 4));
}

TEST_F(GenerationStoreTest, EveryBitOfFormatVersionOneIsVerified) {
  fs::create_directories(directory_);
  fs::copy(std::string(GAVEL_SOURCE_DIR) + "/tests/checkpoint/format_1",
           directory_, fs::copy_options::recursive);
  const std::string shard =
      directory_ + "/" + GenerationName({3, 4}) + "/shard-00001.safetensors";
  const std::string bytes = ReadBytes(shard);
  GenerationStore store = Open();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    WriteBytes(shard, flipped);
    ASSERT_THAT(store.Restore(), StatusIs(kDataLoss, "")) << i;
  }
}

TEST_F(GenerationStoreTest, EmptySnapshotIsAGenerationToo) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({1, 0}, Snapshot{}));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_THAT(restored.snapshot.tensors, IsEmpty());
}

TEST_F(GenerationStoreTest, NothingCommittedIsNotFound) {
  GenerationStore store = Open();
  EXPECT_THAT(store.Restore(), StatusIs(kNotFound, "no committed"));
  EXPECT_THAT(store.LatestGeneration(), StatusIs(kNotFound, "no committed"));
  EXPECT_THAT(store.ReadManifest({1, 1}), StatusIs(kNotFound, "generation-"));
}

TEST_F(GenerationStoreTest, KeepsTheLastTwoByDefault) {
  GenerationStore store = Open();
  for (uint64_t step : {10, 20, 30, 40}) {
    ASSERT_OK(store.Commit({1, step}, SnapshotOfStep(step)));
  }
  EXPECT_OK(store.cleanup_status());
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 30}, Generation{1, 40}));
}

TEST_F(GenerationStoreTest, KeepLastIsAnOption) {
  GenerationStore store = Open({.keep_last = 3});
  for (uint64_t step : {10, 20, 30, 40}) {
    ASSERT_OK(store.Commit({1, step}, SnapshotOfStep(step)));
  }
  EXPECT_EQ(Committed().size(), 3u);
}

TEST_F(GenerationStoreTest, OfEachSoManyStepsOneStays) {
  for (uint64_t step : {10, 20, 30, 40, 50, 60}) {
    // The store is opened anew each time, because the choice must not depend on
    // what a process remembers.
    GenerationStore store = Open({.keep_every_steps = 25});
    ASSERT_OK(store.Commit({1, step}, SnapshotOfStep(step)));
  }
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 30}, Generation{1, 50},
                                       Generation{1, 60}));
  ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
  EXPECT_EQ(restored.generation.step, 60u);
}

TEST_F(GenerationStoreTest, TheBestByAScalarStays) {
  const auto commit = [&](GenerationStore& store, uint64_t step, double loss) {
    CommitOptions options;
    options.scalars = {{"loss", loss}};
    ASSERT_OK(store.Commit({1, step}, SnapshotOfStep(step), options));
    ASSERT_OK(store.cleanup_status());
  };
  const GenerationStore::Options options = {.keep_best = {"loss", false}};
  GenerationStore store = Open(options);
  commit(store, 10, 3);
  commit(store, 20, 1);
  commit(store, 30, 2);
  commit(store, 40, 2);
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 20}, Generation{1, 30},
                                       Generation{1, 40}));
  EXPECT_EQ(store.ReadManifest({1, 20})->scalars.at("loss"), 1);
  // Another process finds the best generation by the manifest, and a better one
  // replaces it.
  GenerationStore other = Open(options);
  commit(other, 50, 2);
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 20}, Generation{1, 40},
                                       Generation{1, 50}));
  commit(other, 60, 0.5);
  commit(other, 70, 0.75);
  commit(other, 80, 0.75);
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 60}, Generation{1, 70},
                                       Generation{1, 80}));
}

TEST_F(GenerationStoreTest, LatestIsByEpochAndStepNeverByTime) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({2, 5}, SnapshotOfStep(5)));
  ASSERT_OK(store.Commit({2, 9}, SnapshotOfStep(9)));
  // The older generation becomes the newest file on disk, by far.
  auto future = fs::file_time_type::clock::now() + std::chrono::hours(1000);
  std::string folder = directory_ + "/" + GenerationName({2, 5});
  fs::last_write_time(folder + "/manifest.json", future);
  fs::last_write_time(folder, future);
  EXPECT_EQ(*store.LatestGeneration(), (Generation{2, 9}));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_EQ(restored.generation.step, 9u);
}

TEST_F(GenerationStoreTest, WriterOfALowerEpochIsRefused) {
  ASSERT_OK(Open().Commit({5, 10}, SnapshotOfStep(10)));
  EXPECT_THAT(Open().Commit({4, 99}, SnapshotOfStep(99)),
              StatusIs(kFailedPrecondition, "higher epoch"));
  EXPECT_THAT(Committed(), ElementsAre(Generation{5, 10}));
}

// The successor commits while the stale writer is at work, and removes its
// attempt.
TEST_F(GenerationStoreTest, StaleWriterUnderWayIsFencedOff) {
  GenerationStore stale = Open();
  ASSERT_OK(stale.Commit({4, 10}, SnapshotOfStep(10)));
  GenerationStore successor = Open();
  auto take_over = [&] {
    return successor.Commit({5, 11}, SnapshotOfStep(11));
  };
  EXPECT_THAT(
      stale.Commit({4, 20}, SnapshotOfStep(20), {.before_commit = take_over}),
      StatusIs(kNotFound, "is not committed"));
  EXPECT_EQ(*stale.LatestGeneration(), (Generation{5, 11}));
}

// The successor commits just after the stale writer's manifest was renamed.
TEST_F(GenerationStoreTest, StaleWriterNeverDeletesAHigherGeneration) {
  class TakeOverAfterRename : public FaultInjectingFileSystem {
   public:
    using FaultInjectingFileSystem::FaultInjectingFileSystem;
    absl::Status Rename(const std::string& from,
                        const std::string& to) override {
      GAVEL_RETURN_IF_ERROR(FaultInjectingFileSystem::Rename(from, to));
      return successor->Commit({5, 11}, SnapshotOfStep(11));
    }
    GenerationStore* successor = nullptr;
  };
  GenerationStore successor = Open();
  ASSERT_OK(successor.Commit({4, 10}, SnapshotOfStep(10)));
  TakeOverAfterRename file_system(FileSystem::Posix());
  file_system.successor = &successor;
  GenerationStore stale = Open({.file_system = &file_system});
  ASSERT_OK(stale.Commit({4, 20}, SnapshotOfStep(20)));
  ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
  EXPECT_EQ(restored.generation, (Generation{5, 11}));
  EXPECT_THAT(Committed(), ElementsAre(Generation{4, 20}, Generation{5, 11}));
}

TEST_F(GenerationStoreTest, LeaseCheckVetoesTheCommit) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({1, 10}, SnapshotOfStep(10)));
  auto expired = [] { return absl::CancelledError("the lease has ended"); };
  EXPECT_THAT(
      store.Commit({1, 20}, SnapshotOfStep(20), {.before_commit = expired}),
      StatusIs(absl::StatusCode::kCancelled, "the lease has ended"));
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 10}));
  EXPECT_FALSE(fs::exists(directory_ + "/" + GenerationName({1, 20})));
}

TEST_F(GenerationStoreTest, CallbackThatThrowsBecomesAStatus) {
  auto broken = []() -> absl::Status { throw std::runtime_error("oops"); };
  EXPECT_THAT(
      Open().Commit({1, 1}, SnapshotOfStep(1), {.before_commit = broken}),
      StatusIs(kInternal, "oops"));
}

// A process that is killed in its first save leaves no manifest, either.
TEST_F(GenerationStoreTest, ADirectoryThatLostAllManifestsIsNotANewOne) {
  const auto veto = [] { return absl::CancelledError("killed"); };
  EXPECT_FALSE(
      Open().Commit({1, 5}, SnapshotOfStep(5), {.before_commit = veto}).ok());
  EXPECT_THAT(Open().Restore(), StatusIs(kNotFound, "no committed"));
  ASSERT_OK(Open().Commit({1, 10}, SnapshotOfStep(10)));
  fs::remove(fs::path(directory_) / AttemptName({{1, 10}}) / "manifest.json");
  EXPECT_THAT(Open().Restore(), StatusIs(kDataLoss, "empty the directory"));
  fs::remove_all(fs::path(directory_) / AttemptName({{1, 10}}));
  EXPECT_THAT(Open().Restore(), StatusIs(kNotFound, "no committed"));
  ASSERT_OK(Open().Commit({1, 20}, SnapshotOfStep(20)));
  EXPECT_OK(Open().Restore());
}

TEST_F(GenerationStoreTest, SameGenerationCommittedAgainReplacesIt) {
  GenerationStore store = Open();
  ASSERT_OK(store.Commit({1, 10}, SnapshotOfStep(1)));
  ASSERT_OK(store.Commit({1, 10}, SnapshotOfStep(2)));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 2));
  EXPECT_THAT(Committed(), ElementsAre(Generation{1, 10}));
}

TEST_F(GenerationStoreTest, LeftoversAreRemovedUnlessOfAHigherEpoch) {
  GenerationStore store = Open();
  for (Generation leftover : {Generation{1, 5}, Generation{9, 5}}) {
    std::string path = directory_ + "/" + GenerationName(leftover);
    fs::create_directory(path);
    WriteBytes(path + "/shard-00000.safetensors", "half a shard");
  }
  ASSERT_OK(store.Commit({2, 10}, SnapshotOfStep(10)));
  EXPECT_FALSE(fs::exists(directory_ + "/" + GenerationName({1, 5})));
  EXPECT_TRUE(fs::exists(directory_ + "/" + GenerationName({9, 5})));
}

TEST_F(GenerationStoreTest, ForeignFilesAndLinksAreLeftAlone) {
  GenerationStore store = Open();
  CheckpointFolder elsewhere;
  WriteBytes(elsewhere.path() + "/manifest.json", "precious");
  fs::create_directory_symlink(elsewhere.path(),
                               directory_ + "/" + GenerationName({1, 1}));
  WriteBytes(directory_ + "/notes.txt", "mine");
  for (uint64_t step : {10, 20, 30}) {
    ASSERT_OK(store.Commit({1, step}, SnapshotOfStep(step)));
  }
  EXPECT_EQ(ReadBytes(elsewhere.path() + "/manifest.json"), "precious");
  EXPECT_EQ(ReadBytes(directory_ + "/notes.txt"), "mine");
}

TEST_F(GenerationStoreTest, TensorNamesNeverBecomePaths) {
  GenerationStore store = Open();
  Snapshot snapshot;
  snapshot.tensors = {{"../../escape", at::ones({2})},
                      {"/etc/passwd", at::ones({2})}};
  snapshot.bytes = {{"../bytes", "x"}};
  ASSERT_OK(store.Commit({1, 1}, snapshot));
  EXPECT_FALSE(fs::exists(folder_.path() + "/escape"));
  ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
  EXPECT_NE(FindTensor(restored.snapshot, "../../escape"), nullptr);
  EXPECT_EQ(restored.snapshot.bytes.at("../bytes"), "x");
}

TEST_F(GenerationStoreTest, OptionsOutOfRangeAreRefused) {
  EXPECT_THAT(GenerationStore::Open(directory_, {.keep_last = 1}),
              IsInvalid("keep at least 2"));
  EXPECT_THAT(GenerationStore::Open(""), IsInvalid("no name"));
  EXPECT_THAT(GenerationStore::Open(directory_, {.threads = 0}),
              IsInvalid("threads"));
  EXPECT_THAT(Open().Commit({1, 1}, {}, {.world_size = 0}),
              IsInvalid("world_size"));
  EXPECT_THAT(Open().Commit({1, 1}, {}, {.rank = 2, .world_size = 2}),
              IsInvalid("rank 2"));
}

TEST_F(GenerationStoreTest, BadNamesAreRefusedBeforeAnythingIsWritten) {
  Snapshot twice;
  twice.tensors = {{"a", at::ones({1})}, {"a", at::ones({1})}};
  EXPECT_THAT(Open().Commit({1, 1}, twice),
              IsInvalid("two tensors are named 'a'"));
  Snapshot reserved;
  reserved.tensors = {{"gavel.bytes/a", at::ones({1})}};
  EXPECT_THAT(Open().Commit({1, 1}, reserved), IsInvalid("reserved prefix"));
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(GenerationStoreTest, ManifestsTellWhichTensorsDiffer) {
  GenerationStore store = Open();
  Snapshot a = SnapshotOfStep(1), b = SnapshotOfStep(1);
  b.tensors[0].second = b.tensors[0].second.add(1);
  b.bytes["more"] = "x";
  ASSERT_OK(store.Commit({1, 1}, a));
  GenerationStore small_shards = Open({.shard_size_bytes_max = 16});
  ASSERT_OK(small_shards.Commit({1, 2}, a));
  ASSERT_OK_AND_ASSIGN(Manifest first, store.ReadManifest({1, 1}));
  ASSERT_OK_AND_ASSIGN(Manifest same, store.ReadManifest({1, 2}));
  EXPECT_THAT(DifferingTensors(first, same), IsEmpty());
  ASSERT_OK(store.Commit({1, 3}, b));
  ASSERT_OK_AND_ASSIGN(Manifest other, store.ReadManifest({1, 3}));
  EXPECT_THAT(DifferingTensors(first, other),
              ElementsAre("gavel.bytes/more", "model/weight"));
}

}  // namespace
}  // namespace gavel::testing
