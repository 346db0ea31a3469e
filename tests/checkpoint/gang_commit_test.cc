// Generations of several ranks, each a thread with a store of its own over one
// directory.
#include "runtime/checkpoint/gang_commit.h"

#include <ATen/ops/arange.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
constexpr int kWorldSize = 3;

// The same tensors on all ranks, and entries of this one.
Snapshot StateOf(uint64_t step, int rank) {
  Snapshot snapshot = SnapshotOfStep(step);
  snapshot.bytes[RankEntryPrefix(rank) + "random"] =
      "random of " + std::to_string(rank);
  return snapshot;
}

class GangCommit : public ::testing::Test {
 protected:
  GangCommit() {
    for (int rank = 0; rank < kWorldSize; ++rank) {
      stores_.push_back(*GenerationStore::Open(
          folder_.path(), {.shard_size_bytes_max = 30, .threads = 2}));
    }
  }
  // What each rank's commit comes to; those of `absent` don't take part.
  std::vector<absl::Status> Commit(Generation generation, int absent = -1,
                                   double wait_s = 20) {
    std::vector<absl::Status> outcomes(kWorldSize);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      if (rank == absent) continue;
      ranks.emplace_back([&, rank] {
        outcomes[static_cast<size_t>(rank)] =
            stores_[static_cast<size_t>(rank)].Commit(
                generation, StateOf(generation.step, rank),
                {.rank = rank,
                 .world_size = kWorldSize,
                 .gang_wait_s = wait_s});
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return outcomes;
  }
  void ExpectRestores(uint64_t step) {
    ASSERT_OK_AND_ASSIGN(GenerationStore store,
                         GenerationStore::Open(folder_.path()));
    ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
    EXPECT_EQ(restored.generation.step, step);
    EXPECT_EQ(restored.world_size, kWorldSize);
    for (int rank = 0; rank < kWorldSize; ++rank) {
      EXPECT_EQ(restored.snapshot.bytes.at(RankEntryPrefix(rank) + "random"),
                "random of " + std::to_string(rank));
      restored.snapshot.bytes.erase(RankEntryPrefix(rank) + "random");
    }
    EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, step));
  }

  TemporaryFolder folder_;
  std::vector<GenerationStore> stores_;
};

TEST_F(GangCommit, RanksWriteOneGenerationTogether) {
  for (uint64_t step : {10, 20, 30}) {
    for (const absl::Status& status : Commit({1, step})) EXPECT_OK(status);
    ExpectRestores(step);
  }
  ASSERT_OK_AND_ASSIGN(Attempts left,
                       ListAttempts(FileSystem::Posix(), folder_.path()));
  EXPECT_EQ(left.committed.size(), 2u);
  EXPECT_TRUE(left.uncommitted.empty());
  // Each rank has written shards, and none of another's.
  const std::string folder = folder_.path() + "/" + GenerationName({1, 30});
  for (int rank = 1; rank < kWorldSize; ++rank) {
    ASSERT_OK_AND_ASSIGN(
        ManifestPart part,
        DecodePart(ReadBytes(folder + "/" + PartFileName(rank))));
    EXPECT_GE(part.shards.size(), 2u);
    EXPECT_EQ(part.shards[0].index, static_cast<size_t>(rank));
  }
}

TEST_F(GangCommit, UnchangedShardsAreSharedOnEveryRank) {
  for (uint64_t step : {10, 12}) {
    for (const absl::Status& status : Commit({1, step})) EXPECT_OK(status);
  }
  size_t linked = 0;
  for (const GenerationStore& store : stores_) linked += store.linked_shards();
  // The mask of even steps, and the ranks' own entries.
  EXPECT_GE(linked, 3u);
  ExpectRestores(12);
}

TEST_F(GangCommit, RestoresOntoAnotherNumberOfWorkers) {
  for (const absl::Status& status : Commit({1, 10})) ASSERT_OK(status);
  ASSERT_OK_AND_ASSIGN(GenerationStore alone,
                       GenerationStore::Open(folder_.path()));
  ASSERT_OK_AND_ASSIGN(Restored restored, alone.Restore());
  ASSERT_OK(alone.Commit({2, 11}, SnapshotOfStep(11)));
  ASSERT_OK_AND_ASSIGN(restored, stores_[1].Restore());
  EXPECT_EQ(restored.world_size, 1);
  EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, 11));
  for (const absl::Status& status : Commit({3, 12})) ASSERT_OK(status);
  ExpectRestores(12);
}

TEST_F(GangCommit, AMissingRankIsNamedAndTheOldGenerationStays) {
  for (const absl::Status& status : Commit({1, 10})) ASSERT_OK(status);
  const std::vector<absl::Status> outcomes = Commit({1, 20}, 2, 0.3);
  EXPECT_THAT(outcomes[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "rank 2 of 3 has not written its part"));
  EXPECT_FALSE(outcomes[1].ok());
  ExpectRestores(10);
  // All there again.
  for (const absl::Status& status : Commit({1, 21})) EXPECT_OK(status);
  ExpectRestores(21);
}

TEST_F(GangCommit, WithoutRankZeroNothingIsCommitted) {
  const std::vector<absl::Status> outcomes = Commit({1, 10}, 0, 0.2);
  EXPECT_THAT(outcomes[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "rank 0 has not begun"));
  EXPECT_THAT(stores_[0].Restore(), StatusIs(kNotFound, ""));
}

TEST_F(GangCommit, APartThatIsDamagedFailsTheCommit) {
  const std::string folder = folder_.path() + "/x";
  fs::create_directory(folder);
  const ManifestPart own{{1, 10}, 0, 2, {{0, {}}}};
  ManifestPart other{{1, 10}, 1, 2, {{1, {}}}};
  const auto collect = [&](const std::string& text) {
    WriteBytes(folder + "/" + PartFileName(1), text);
    return CollectParts(FileSystem::Posix(), folder, own, {0.1}).status();
  };
  const std::string good = EncodePart(other);
  EXPECT_OK(collect(good));
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    ASSERT_THAT(collect(good.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, "part-00001.json"));
  }
  other.generation.step = 11;
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "another generation"));
  other.generation.step = 10;
  other.shards = {{0, {}}};
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "another rank wrote"));
  other.shards = {{2, {}}};
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "misses shard-00001"));
}

// A gang that died in mid-save and comes again at the same epoch and step.
TEST_F(GangCommit, NoRankJoinsWhatADeadGangHasBegun) {
  for (const absl::Status& status : Commit({1, 10})) ASSERT_OK(status);
  const std::string dead = folder_.path() + "/" + GenerationName({1, 20});
  const std::string other = folder_.path() + "/" + GenerationName({2, 5});
  for (const std::string& left : {dead, other}) {
    fs::create_directory(left);
    for (size_t shard = 0; shard < 8; ++shard) {
      WriteBytes(left + "/" + ShardFileName(shard), "half");
    }
  }
  ASSERT_OK(stores_[0].RemoveLeftovers(1));
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(other));  // may be under way
  // Rank 0 is the last one to come.
  absl::Status first;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first = stores_[0].Commit({1, 20}, StateOf(20, 0),
                              {.rank = 0, .world_size = kWorldSize});
  });
  const std::vector<absl::Status> outcomes = Commit({1, 20}, 0);
  late.join();
  EXPECT_OK(first);
  EXPECT_OK(outcomes[1]);
  EXPECT_OK(outcomes[2]);
  ExpectRestores(20);
}

// An error at every call of one rank: all fail, or all commit.
class GangCommitFault : public GangCommit,
                        public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GangCommitFault, ::testing::Values(0, 1));

TEST_P(GangCommitFault, NeverCommitsInPart) {
  const size_t faulty_rank = static_cast<size_t>(GetParam());
  for (const absl::Status& status : Commit({1, 10})) ASSERT_OK(status);
  uint64_t committed = 10;
  int failures = 0;
  for (int call = 1;; ++call) {
    SCOPED_TRACE(call);
    FaultInjectingFileSystem faulty(FileSystem::Posix());
    stores_[faulty_rank] = *GenerationStore::Open(
        folder_.path(),
        {.shard_size_bytes_max = 30, .threads = 1, .file_system = &faulty});
    faulty.FailAt(call, FaultInjectingFileSystem::Fault::kError,
                  absl::UnknownError("EIO"));
    const uint64_t step = 10 + static_cast<uint64_t>(call);
    const std::vector<absl::Status> outcomes = Commit({1, step}, -1, 0.3);
    if (outcomes[0].ok()) {
      // Rank 1 may fail when all is committed and it only looks for that.
      committed = step;
    } else {
      ++failures;
      EXPECT_FALSE(outcomes[1].ok());
      EXPECT_FALSE(outcomes[2].ok());
    }
    ExpectRestores(committed);
    if (HasFatalFailure()) return;
    if (faulty.calls() < call) break;
    // It has come to deleting what is old.
    if (!stores_[0].cleanup_status().ok()) break;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace gavel::testing
