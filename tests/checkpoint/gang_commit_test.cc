// Generations that several ranks write together. Each rank is a thread with a
// store of its own on the same directory.
#include <ATen/ops/arange.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/checkpoint/attempt_writer.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
constexpr int kGangSize = 3;

// The tensors are the same on all ranks; only this rank has the entry.
Snapshot StateOf(uint64_t step, int rank) {
  Snapshot snapshot = SnapshotOfStep(step);
  snapshot.bytes[RankEntryPrefix(rank) + "random"] =
      "random of " + std::to_string(rank);
  return snapshot;
}

// Runs `commit` on all ranks but `absent`, in parallel, and returns the status
// of each rank.
std::vector<absl::Status> OnAllRanks(
    const std::function<absl::Status(int rank)>& commit, int absent = -1) {
  std::vector<absl::Status> outcomes(kGangSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kGangSize; ++rank) {
    if (rank == absent) continue;
    ranks.emplace_back(
        [&, rank] { outcomes[static_cast<size_t>(rank)] = commit(rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

class GangCommit : public Test {
 protected:
  GangCommit() { OpenStores(30); }
  GenerationStore OpenStore(uint64_t shard_size_bytes_max) {
    return *GenerationStore::Open(
        folder_.path(),
        {.shard_size_bytes_max = shard_size_bytes_max, .threads = 2});
  }
  void OpenStores(uint64_t shard_size_bytes_max) {
    stores_.clear();
    for (int rank = 0; rank < kGangSize; ++rank) {
      stores_.push_back(OpenStore(shard_size_bytes_max));
    }
  }
  std::vector<absl::Status> Commit(Generation generation, int absent = -1,
                                   double wait_s = 20) {
    return OnAllRanks(
        [&](int rank) {
          return stores_[static_cast<size_t>(rank)].Commit(
              generation, StateOf(generation.step, rank),
              {.rank = rank, .world_size = kGangSize, .gang_wait_s = wait_s});
        },
        absent);
  }
  // Whether rank 0 has made the folder of the generation.
  bool HasBegun(Generation generation) const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().filename().string().starts_with(
              GenerationName(generation))) {
        return true;
      }
    }
    return false;
  }
  void ExpectRestores(uint64_t step) {
    ASSERT_OK_AND_ASSIGN(GenerationStore store,
                         GenerationStore::Open(folder_.path()));
    ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
    EXPECT_EQ(restored.generation.step, step);
    EXPECT_EQ(restored.world_size, kGangSize);
    for (int rank = 0; rank < kGangSize; ++rank) {
      EXPECT_EQ(restored.snapshot.bytes.at(RankEntryPrefix(rank) + "random"),
                "random of " + std::to_string(rank));
      restored.snapshot.bytes.erase(RankEntryPrefix(rank) + "random");
    }
    EXPECT_TRUE(IsSnapshotOfStep(restored.snapshot, step));
  }

  CheckpointFolder folder_;
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
  // Each rank has written its own shards only.
  const std::string folder = folder_.path() + "/" + GenerationName({1, 30});
  for (int rank = 1; rank < kGangSize; ++rank) {
    ASSERT_OK_AND_ASSIGN(
        ManifestPart part,
        DecodePart(ReadBytes(folder + "/" + PartFileName(rank))));
    EXPECT_GE(part.shards.size(), 2u);
    EXPECT_EQ(part.shards[0].index, static_cast<size_t>(rank));
  }
}

TEST_F(GangCommit, TheWaitCountsFromWhenAllHaveBegun) {
  std::atomic<bool> all_have_begun = false;
  const auto outcomes = OnAllRanks([&](int rank) {
    if (rank == 0) {  // it begins later than the others
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      all_have_begun = true;
    }
    return stores_[static_cast<size_t>(rank)].Commit(
        {1, 10}, StateOf(10, rank),
        {.rank = rank,
         .world_size = kGangSize,
         .gang_wait_s = 0.3,
         .all_have_begun = [&] { return all_have_begun.load(); }});
  });
  for (const absl::Status& status : outcomes) EXPECT_OK(status);
  ExpectRestores(10);
  // All have begun, but rank 0 does not commit.
  const auto without = OnAllRanks(
      [&](int rank) {
        return stores_[static_cast<size_t>(rank)].Commit(
            {1, 20}, StateOf(20, rank),
            {.rank = rank,
             .world_size = kGangSize,
             .gang_wait_s = 0.3,
             .all_have_begun = [&] { return all_have_begun.load(); }});
      },
      /*absent=*/0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(without[1])) << without[1];
}

TEST_F(GangCommit, UnchangedShardsAreSharedOnEveryRank) {
  for (uint64_t step : {10, 12}) {
    for (const absl::Status& status : Commit({1, step})) EXPECT_OK(status);
  }
  size_t linked = 0;
  for (const GenerationStore& store : stores_) linked += store.linked_shards();
  // The mask, which all even steps share, and the ranks' own entries.
  EXPECT_GE(linked, 3u);
  ExpectRestores(12);
}

// The number of tensor shards that the ranks linked instead of writing them;
// -1 if some rank did not commit.
int LinkedByGang(std::vector<GenerationStore>& stores, uint64_t step) {
  const std::vector<absl::Status> outcomes = OnAllRanks([&](int rank) {
    return stores[static_cast<size_t>(rank)].Commit(
        {1, step}, SnapshotWithFrozenLayers(static_cast<double>(step), -1),
        {.rank = rank, .world_size = kGangSize, .gang_wait_s = 20});
  });
  for (const absl::Status& outcome : outcomes) {
    if (!outcome.ok()) return -1;
  }
  const absl::StatusOr<Manifest> manifest = stores[0].ReadManifest({1, step});
  if (!manifest.ok()) return -1;
  int linked = 0;
  for (const auto& [shard, generations] : manifest->linked) {
    // The last shards hold the bytes entries of the ranks.
    if (shard + kGangSize < manifest->shards.size()) ++linked;
  }
  return linked;
}

TEST_F(GangCommit, FrozenTensorsOfAllRanksAreNotWrittenAgain) {
  OpenStores(16000);
  for (uint64_t step = 1; step <= 8; ++step) {
    SCOPED_TRACE(step);
    // Ranks 1 and 2 restart from the last generation, and rank 0 continues, as
    // after a move of some ranks.
    if (step == 4 || step == 7) {
      for (size_t rank : {1, 2}) {
        stores_[rank] = OpenStore(16000);
        ASSERT_OK(stores_[rank].Restore().status());
      }
    }
    const int linked = LinkedByGang(stores_, step);
    // As with a single worker, the frozen tensors are known with the fourth
    // generation, and get shards of their own with the fifth.
    EXPECT_EQ(linked, step >= 6 ? 2 : 0);
    ASSERT_OK_AND_ASSIGN(Manifest manifest, stores_[0].ReadManifest({1, step}));
    EXPECT_EQ(manifest.unchanged_shards, step >= 5 ? 2u : 0u);
    ASSERT_OK_AND_ASSIGN(Restored restored, OpenStore(16000).Restore());
    ASSERT_EQ(restored.snapshot.tensors.size(), 12u);
    for (const auto& [name, tensor] : restored.snapshot.tensors) {
      const double value =
          name.ends_with("/frozen") ? -1 : static_cast<double>(step);
      EXPECT_EQ(tensor.sum().item<double>(), 1000 * value) << name;
    }
  }
}

// All ranks have gone back to the generation before the damaged one, so none
// may cut its shards by the damaged one.
TEST_F(GangCommit, ADamagedGenerationIsNoneToCutBy) {
  OpenStores(16000);
  for (uint64_t step = 1; step <= 4; ++step) {
    ASSERT_GE(LinkedByGang(stores_, step), 0);
  }
  WriteBytes(
      folder_.path() + "/" + GenerationName({1, 4}) + "/" + ShardFileName(0),
      "damaged");
  OpenStores(16000);
  for (GenerationStore& store : stores_) {
    ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
    ASSERT_EQ(restored.generation.step, 3u);
  }
  const auto without = OnAllRanks(
      [&](int rank) {
        return stores_[static_cast<size_t>(rank)].Commit(
            {1, 5}, SnapshotWithFrozenLayers(5, -1),
            {.rank = rank, .world_size = kGangSize, .gang_wait_s = 0.1});
      },
      /*absent=*/0);
  EXPECT_FALSE(without[1].ok());
  EXPECT_GE(LinkedByGang(stores_, 6), 0);
}

// Rank 1 does not know the last generation, so it cuts its state into other
// shards than the other ranks do.
TEST_F(GangCommit, ARankThatCutsOtherwiseCostsOneGeneration) {
  OpenStores(16000);
  for (uint64_t step = 1; step <= 4; ++step) {
    ASSERT_GE(LinkedByGang(stores_, step), 0);
  }
  stores_[1] = OpenStore(16000);
  EXPECT_EQ(LinkedByGang(stores_, 5), -1);
  ASSERT_OK_AND_ASSIGN(Restored restored, OpenStore(16000).Restore());
  EXPECT_EQ(restored.generation.step, 4u);
  EXPECT_EQ(LinkedByGang(stores_, 6), 0);
  EXPECT_EQ(LinkedByGang(stores_, 7), 2);
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
  // All ranks take part again.
  for (const absl::Status& status : Commit({1, 21})) EXPECT_OK(status);
  ExpectRestores(21);
}

TEST_F(GangCommit, WithoutRankZeroNothingIsCommitted) {
  const std::vector<absl::Status> outcomes = Commit({1, 10}, 0, 0.2);
  EXPECT_THAT(outcomes[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "rank 0 has not begun"));
  EXPECT_THAT(stores_[0].Restore(), StatusIs(kNotFound, ""));
}

// The other ranks learn of the failure by `gives_up`, not by the disk, and stop
// waiting at once.
TEST_F(GangCommit, ARankWhoseDiskFailsEndsTheSaveForAllAtOnce) {
  for (const absl::Status& status : Commit({1, 10})) ASSERT_OK(status);
  FaultInjectingFileSystem faulty(FileSystem::Posix());
  stores_[2] = *GenerationStore::Open(
      folder_.path(),
      {.shard_size_bytes_max = 30, .threads = 1, .file_system = &faulty});
  // The call fails as rank 2 looks for the attempt, makes its files, or renames
  // its part.
  for (const int call : {1, 6, 9}) {
    SCOPED_TRACE(call);
    faulty.FailAt(call, FaultInjectingFileSystem::Fault::kError,
                  absl::UnknownError("EIO"));
    std::atomic<bool> failed = false;
    const uint64_t step = 20 + static_cast<uint64_t>(call);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<absl::Status> outcomes = OnAllRanks([&](int rank) {
      CommitOptions options{
          .rank = rank, .world_size = kGangSize, .gang_wait_s = 60};
      options.gives_up = [&] {
        return failed ? absl::AbortedError("rank 2 can't write its part")
                      : absl::OkStatus();
      };
      // Rank 2 begins only when the attempt exists. Otherwise the number of its
      // looks for the attempt would decide which call fails.
      while (rank == 2 && !HasBegun({1, step})) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      absl::Status status = stores_[static_cast<size_t>(rank)].Commit(
          {1, step}, StateOf(step, rank), options);
      if (rank == 2) failed = true;
      return status;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(20));
    EXPECT_THAT(outcomes[0], StatusIs(kAborted, "rank 2 can't write its part"));
    EXPECT_THAT(outcomes[1], StatusIs(kAborted, ""));
    EXPECT_THAT(outcomes[2], StatusIs(kUnknown, "EIO"));
    ExpectRestores(10);
  }
  for (const absl::Status& status : Commit({1, 40})) EXPECT_OK(status);
  ExpectRestores(40);
}

TEST_F(GangCommit, APartThatIsDamagedFailsTheCommit) {
  const std::string folder = folder_.path() + "/x";
  fs::create_directory(folder);
  const ManifestPart own{{1, 10}, 0, 2, {{0, {}}}, 5};
  ManifestPart other{{1, 10}, 1, 2, {{1, {}}}, 5};
  const auto collect = [&](const std::string& text) {
    WriteBytes(folder + "/" + PartFileName(1), text);
    return CollectParts(FileSystem::Posix(), folder, own, {0.1}).status();
  };
  const std::string good = EncodePart(other);
  EXPECT_OK(collect(good));
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    ASSERT_THAT(collect(good.substr(0, size)),
                StatusIs(kDataLoss, "part-00001.json"));
  }
  other.generation.step = 11;
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "another generation"));
  other.generation.step = 10;
  other.cut = 6;
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "cut the state into other shards"));
  other.cut = 5;
  other.shards = {{0, {}}};
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "another rank wrote"));
  other.shards = {{2, {}}};
  EXPECT_THAT(collect(EncodePart(other)),
              StatusIs(kFailedPrecondition, "misses shard-00001"));
}

// A gang died in the middle of a save and saves again at the same epoch and
// step.
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
  EXPECT_TRUE(fs::exists(other));  // its save may still be in progress
  // Rank 0 begins last.
  absl::Status first;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first = stores_[0].Commit({1, 20}, StateOf(20, 0),
                              {.rank = 0, .world_size = kGangSize});
  });
  const std::vector<absl::Status> outcomes = Commit({1, 20}, 0);
  late.join();
  EXPECT_OK(first);
  EXPECT_OK(outcomes[1]);
  EXPECT_OK(outcomes[2]);
  ExpectRestores(20);
}

// Each file-system call of one rank fails in turn. Either the generation is
// committed or no rank commits.
class GangCommitFault : public GangCommit,
                        public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GangCommitFault, Values(0, 1));

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
      // Rank 1 may still fail as it checks that the generation is committed.
      committed = step;
    } else {
      ++failures;
      EXPECT_FALSE(outcomes[1].ok());
      EXPECT_FALSE(outcomes[2].ok());
    }
    ExpectRestores(committed);
    if (HasFatalFailure()) return;
    if (faulty.calls() < call) break;
    // The failing call was in the deletion of old generations, so every call
    // of the commit itself has failed once.
    if (!stores_[0].cleanup_status().ok()) break;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace gavel::testing
