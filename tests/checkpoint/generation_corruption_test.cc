// Damaged files: rejected by checksum, one generation back, and reported.
#include <filesystem>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

class Corruption : public Test {
 protected:
  Corruption() : store_(*GenerationStore::Open(folder_.path())) {
    EXPECT_OK(store_.Commit({1, 10}, SnapshotOfStep(10)));
    EXPECT_OK(store_.Commit({1, 20}, SnapshotOfStep(20)));
    const std::string latest = folder_.path() + "/" + GenerationName({1, 20});
    shard_ = latest + "/shard-00000.safetensors";
    shards_ = {shard_, latest + "/shard-00001.safetensors"};
    manifest_ = latest + "/manifest.json";
  }

  void ExpectFallsBack() {
    absl::StatusOr<Restored> restored = store_.Restore();
    ASSERT_OK(restored.status());
    ASSERT_EQ(restored->generation, (Generation{1, 10}));
    ASSERT_TRUE(IsSnapshotOfStep(restored->snapshot, 10));
    ASSERT_THAT(restored->notes,
                ElementsAre(HasSubstr(GenerationName({1, 20}) + " rejected")));
  }

  // The whole of the latest generation, or the one before: never anything else.
  void ExpectLatestOrFallsBack() {
    absl::StatusOr<Restored> restored = store_.Restore();
    ASSERT_OK(restored.status());
    if (restored->generation.step == 10) return ExpectFallsBack();
    ASSERT_TRUE(IsSnapshotOfStep(restored->snapshot, 20));
  }

  static std::string Flipped(std::string bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    return bytes;
  }

  // One bit in `stride` at a time.
  void FlipBitsOfShards(size_t stride) {
    for (const std::string& shard : shards_) {
      const std::string bytes = ReadBytes(shard);
      for (size_t bit = 0; bit < bytes.size() * 8; bit += stride) {
        SCOPED_TRACE(bit);
        WriteBytes(shard, Flipped(bytes, bit));
        ExpectFallsBack();
        if (HasFatalFailure()) return;
      }
      WriteBytes(shard, bytes);
    }
  }

  void FlipBitsOfManifest(size_t stride) {
    const std::string bytes = ReadBytes(manifest_);
    size_t flips = 0;
    size_t rejected = 0;
    for (size_t bit = 0; bit < bytes.size() * 8; bit += stride) {
      SCOPED_TRACE(bit);
      WriteBytes(manifest_, Flipped(bytes, bit));
      ExpectLatestOrFallsBack();
      if (HasFatalFailure()) return;
      ++flips;
      rejected += store_.Restore()->generation.step == 10 ? 1 : 0;
    }
    // Blanks between the values may turn into other blanks, nothing else.
    EXPECT_GT(rejected * 8, flips * 7);
  }

  CheckpointFolder folder_;
  GenerationStore store_;
  std::string shard_, manifest_;
  std::vector<std::string> shards_;  // of tensors, and of bytes entries
};

TEST_F(Corruption, ShardTruncatedAtEveryByte) {
  for (const std::string& shard : shards_) {
    std::string bytes = ReadBytes(shard);
    for (size_t size = 0; size < bytes.size(); ++size) {
      SCOPED_TRACE(size);
      WriteBytes(shard, bytes.substr(0, size));
      ExpectFallsBack();
      if (HasFatalFailure()) return;
    }
    WriteBytes(shard, bytes);
  }
}

TEST_F(Corruption, ManifestTruncatedAtEveryByte) {
  std::string bytes = ReadBytes(manifest_);
  for (size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE(size);
    WriteBytes(manifest_, bytes.substr(0, size));
    // Without the line's end nothing is missing.
    size + 1 < bytes.size() ? ExpectFallsBack() : ExpectLatestOrFallsBack();
    if (HasFatalFailure()) return;
  }
}

TEST_F(Corruption, ABitOfEachByteOfTheShardFlipped) { FlipBitsOfShards(9); }
TEST_F(Corruption, EveryBitOfTheShardFlipped) { FlipBitsOfShards(1); }

TEST_F(Corruption, ABitOfEachByteOfTheManifestFlipped) {
  FlipBitsOfManifest(9);
}
TEST_F(Corruption, EveryBitOfTheManifestFlipped) { FlipBitsOfManifest(1); }

TEST_F(Corruption, BytesAppendedToAShard) {
  WriteBytes(shard_, ReadBytes(shard_) + '\0');
  ExpectFallsBack();
}

TEST_F(Corruption, MissingShard) {
  fs::remove(shard_);
  ExpectFallsBack();
}

TEST_F(Corruption, ShardOfAnotherGeneration) {
  std::string other = folder_.path() + "/" + GenerationName({1, 10}) +
                      "/shard-00000.safetensors";
  WriteBytes(shard_, ReadBytes(other));
  ExpectFallsBack();
}

TEST_F(Corruption, ManifestOfAnotherGeneration) {
  WriteBytes(manifest_, ReadBytes(folder_.path() + "/" +
                                  GenerationName({1, 10}) + "/manifest.json"));
  ExpectFallsBack();
}

TEST_F(Corruption, ShardReplacedByALinkIsNotFollowed) {
  std::string copy = folder_.path() + "/copy";
  fs::rename(shard_, copy);
  fs::create_symlink(copy, shard_);
  ExpectFallsBack();
}

TEST_F(Corruption, AllDamagedIsAnErrorAndNotAFreshStart) {
  for (uint64_t step : {10, 20}) {
    WriteBytes(folder_.path() + "/" + GenerationName({1, step}) +
                   "/shard-00000.safetensors",
               "damaged");
  }
  EXPECT_THAT(store_.Restore(), StatusIs(kDataLoss, GenerationName({1, 10})));
}

// A damaged generation does not count as kept: with keep_last = 2 both of the
// two that stay must be good ones.
TEST_F(Corruption, DamagedGenerationIsReplacedByTheNextCommits) {
  WriteBytes(shard_, "damaged");
  ExpectFallsBack();
  ASSERT_OK(store_.Commit({1, 15}, SnapshotOfStep(15)));
  EXPECT_EQ(*store_.LatestGeneration(), (Generation{1, 15}));
  ASSERT_OK_AND_ASSIGN(Restored restored, store_.Restore());
  EXPECT_THAT(restored.notes, IsEmpty());
  ASSERT_OK_AND_ASSIGN(Attempts left,
                       ListAttempts(FileSystem::Posix(), folder_.path()));
  EXPECT_THAT(left.committed, ElementsAre(Attempt{{1, 10}}, Attempt{{1, 15}}));
}

TEST_F(Corruption, NewerFormatIsRefusedRatherThanGoneBackFrom) {
  // As a later version would write it, with a valid checksum.
  ASSERT_OK_AND_ASSIGN(Manifest manifest, store_.ReadManifest({1, 20}));
  std::string text = EncodeManifest(manifest, kManifestFormatVersion + 1);
  WriteBytes(manifest_, text);
  EXPECT_THAT(store_.Restore(),
              StatusIs(kFailedPrecondition, "use the version that wrote it"));
}

}  // namespace
}  // namespace gavel::testing
