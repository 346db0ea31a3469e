// Shards that do not change from one generation to the next are linked, not
// written again. The tests cover which shards are linked, which tensors get
// shards of their own for this, and for how long.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <filesystem>

#include "core/status.h"
#include "runtime/checkpoint/attempt_writer.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

class UnchangedShards : public Test {
 protected:
  GenerationStore Open(GenerationStore::Options options = {}) {
    auto store = GenerationStore::Open(directory_, options);
    EXPECT_OK(store.status());
    return *std::move(store);
  }

  CheckpointFolder folder_;
  std::string directory_ = folder_.path() + "/job";
};

TEST(TensorHistory, CountsTheGenerationsThatATensorHasNotChangedIn) {
  Manifest last{{1, 1}, 1, {{8, 0, {{"a", 1}, {"b", 2}}}, {4, 0, {{"c", 3}}}}};
  for (int generations = 1; generations < 6; ++generations) {
    // The counts do not depend on how tensors are cut into shards. "c" changes
    // each time, and "d" comes and goes.
    std::vector<ShardSummary> shards = {
        {4, 0, {{"b", 2}}},
        {8, 0, {{"a", 1}, {"c", 10 + static_cast<uint64_t>(generations)}}}};
    if (generations == 2) shards[1].tensors.push_back({"d", 4});
    last.unchanged = CountUnchanged(last, shards);
    last.shards = shards;
    const int count = std::min(generations, kUnchangedGenerations);
    EXPECT_THAT(last.unchanged,
                ElementsAre(Pair("a", count), Pair("b", count)));
    const bool known = generations >= kUnchangedGenerations;
    EXPECT_EQ(IsUnchanged(last, 0), known);
    EXPECT_FALSE(IsUnchanged(last, 1));
    const std::map<std::string, uint64_t> sizes = {{"a", 100}, {"b", 50}};
    // "a" shares its shard with another tensor, "b" does not.
    using Names = std::set<std::string>;
    EXPECT_EQ(ChooseUnchanged(last, sizes, 99),
              known ? Names({"a", "b"}) : Names());
    last.unchanged_shards = 1;
    EXPECT_EQ(ChooseUnchanged(last, sizes, 100), Names({"b"}));
    last.unchanged_shards = 7;  // as in a damaged manifest
    EXPECT_GE(ChooseUnchanged(last, sizes, 100).size(), 3u);
    last.unchanged_shards = 0;
  }
}

// Two tensors in shards of their own; one of them never changes.
Snapshot WithFrozenPart(double value) {
  Snapshot snapshot;
  snapshot.tensors = {{"backbone", at::ones({1000})},
                      {"head", at::full({1000}, value)}};
  return snapshot;
}

TEST_F(UnchangedShards, AreNotWrittenAgain) {
  GenerationStore store = Open({.shard_size_bytes_max = 4000});
  ASSERT_OK(store.Commit({1, 1}, WithFrozenPart(1)));
  EXPECT_EQ(store.linked_shards(), 0u);
  for (uint64_t step : {2, 3, 4}) {
    const double value = static_cast<double>(step);
    ASSERT_OK(store.Commit({1, step}, WithFrozenPart(value)));
    EXPECT_EQ(store.linked_shards(),
              2u);  // also the empty one of bytes entries
    const std::string folder = directory_ + "/" + GenerationName({1, step});
    EXPECT_EQ(fs::hard_link_count(folder + "/shard-00000.safetensors"), 2u);
    EXPECT_EQ(fs::hard_link_count(folder + "/shard-00001.safetensors"), 1u);
    // A new process continues from this generation, and shares its shards.
    store = Open({.shard_size_bytes_max = 4000});
    ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
    EXPECT_EQ(restored.snapshot.tensors[0].second.sum().item<double>(), 1000);
    EXPECT_EQ(restored.snapshot.tensors[1].second[0].item<double>(), value);
  }
}

TEST_F(UnchangedShards, AShardThatChangesAgainIsWrittenAgain) {
  GenerationStore store = Open({.shard_size_bytes_max = 4000});
  const double values[] = {1, 1, 2, 2, 2, 2, 3};
  // A shard that changed in the last generation is summed while it is written
  // again, and is linked only from the next generation on.
  const size_t linked[] = {0, 3, 2, 2, 3, 3, 2};
  for (uint64_t step = 0; step < 7; ++step) {
    ASSERT_OK(store.Commit({1, step}, WithFrozenPart(values[step])));
    EXPECT_EQ(store.linked_shards(), linked[step]) << step;
    ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
    EXPECT_EQ(restored.snapshot.tensors[1].second[0].item<double>(),
              values[step]);
  }
}

// At first, frozen and trained tensors take turns in one shard.
TEST_F(UnchangedShards, FrozenTensorsMoveIntoShardsOfTheirOwn) {
  GenerationStore store = Open({.shard_size_bytes_max = 64000});
  for (uint64_t step = 1; step <= 12; ++step) {
    SCOPED_TRACE(step);
    const double value = static_cast<double>(step);
    // The frozen tensors change once, at the ninth generation.
    const double frozen = step < 9 ? -1 : -2;
    ASSERT_OK(store.Commit({1, step}, SnapshotWithFrozenLayers(value, frozen)));
    ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                         store.ReadManifest({1, step}));
    // The tensors are known to be frozen with the fourth generation and get a
    // shard of their own with the fifth. From then on only the trained half is
    // written.
    const bool is_cut = step >= 5;
    ASSERT_EQ(manifest.shards.size(), is_cut ? 3u : 2u);
    const std::string folder = directory_ + "/" + GenerationName({1, step});
    const bool shared = step >= 6 && step != 9 && step != 10;
    EXPECT_EQ(fs::hard_link_count(folder + "/shard-00000.safetensors"),
              shared ? 2u : 1u);
    if (is_cut) {
      EXPECT_EQ(fs::hard_link_count(folder + "/shard-00001.safetensors"), 1u);
      EXPECT_EQ(manifest.shards[0].tensors[0].name, "layer0/frozen");
      EXPECT_EQ(manifest.shards[1].tensors[0].name, "layer0/trained");
    }
    ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
    ASSERT_EQ(restored.snapshot.tensors.size(), 12u);
    for (const auto& [name, tensor] : restored.snapshot.tensors) {
      const bool is_frozen = name.ends_with("/frozen");
      EXPECT_EQ(tensor.sum().item<double>(),
                1000 * (is_frozen ? frozen : value));
    }
  }
}

// A generation contains all that the cut depends on, so a process that starts
// from it does not write unchanged tensors again.
TEST_F(UnchangedShards, ANewProcessCutsAsTheOneBeforeWouldHave) {
  for (uint64_t step = 1; step <= 8; ++step) {
    SCOPED_TRACE(step);
    GenerationStore store = Open({.shard_size_bytes_max = 64000});
    if (step > 1) {
      ASSERT_OK(store.Restore().status());
    }
    ASSERT_OK(store.Commit(
        {1, step}, SnapshotWithFrozenLayers(static_cast<double>(step), 0)));
    ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                         store.ReadManifest({1, step}));
    EXPECT_EQ(manifest.shards.size(), step >= 5 ? 3u : 2u);
    EXPECT_EQ(manifest.unchanged_shards, step >= 5 ? 1u : 0u);
    EXPECT_EQ(manifest.linked.contains(0), step >= 6);
  }
}

// If the disk loses a block of a shared file, later generations must not lack
// it for ever.
TEST_F(UnchangedShards, ASharedFileIsWrittenAnewAfterSomeGenerations) {
  GenerationStore store = Open({.shard_size_bytes_max = 4000});
  std::map<size_t, int> written;  // of shards, after the first generation
  for (uint64_t step = 0; step <= 2 * kLinkedGenerations; ++step) {
    SCOPED_TRACE(step);
    ASSERT_OK(store.Commit({1, step}, WithFrozenPart(1)));
    ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                         store.ReadManifest({1, step}));
    const std::string folder = directory_ + "/" + GenerationName({1, step});
    for (size_t shard = 0; step > 0 && shard < 3; ++shard) {
      const bool linked = manifest.linked.contains(shard);
      const int generations = linked ? manifest.linked.at(shard) : 0;
      EXPECT_LT(generations, 2 * kLinkedGenerations);
      // The store keeps two generations.
      EXPECT_EQ(fs::hard_link_count(folder + "/" + ShardFileName(shard)),
                linked ? 2u : 1u);
      if (!linked) ++written[shard];
    }
    if (step == 3) {
      // The disk loses a byte of the first shard; nobody has noticed.
      const std::string shard = folder + "/" + ShardFileName(0);
      const std::string bytes = ReadBytes(shard);
      WriteBytes(shard, bytes.substr(0, bytes.size() - 1) + "!");
    }
  }
  EXPECT_EQ(written[0], 2);
  EXPECT_EQ(written[1], 1);
  ASSERT_OK(Open().Restore().status());
}

// A generation links only shards that are not damaged: after a generation that
// was found damaged all shards are written, and a shard whose file is gone is
// written again.
TEST_F(UnchangedShards, NothingIsSharedWithADamagedGeneration) {
  GenerationStore store = Open({.shard_size_bytes_max = 4000});
  ASSERT_OK(store.Commit({1, 1}, WithFrozenPart(1)));
  const std::string shard =
      directory_ + "/" + GenerationName({1, 1}) + "/shard-00000.safetensors";
  const std::string bytes = ReadBytes(shard);
  WriteBytes(shard, bytes.substr(0, bytes.size() - 1) + "!");
  EXPECT_FALSE(store.Restore().ok());
  ASSERT_OK(store.Commit({1, 2}, WithFrozenPart(1)));
  EXPECT_EQ(store.linked_shards(), 0u);
  fs::remove(directory_ + "/" + GenerationName({1, 2}) +
             "/shard-00000.safetensors");
  ASSERT_OK(store.Commit({1, 3}, WithFrozenPart(1)));
  EXPECT_EQ(store.linked_shards(), 2u);
  ASSERT_OK_AND_ASSIGN(Restored restored, Open().Restore());
  EXPECT_EQ(restored.generation.step, 3u);
}

}  // namespace
}  // namespace gavel::testing
