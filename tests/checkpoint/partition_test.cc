// Tensors of which each rank has a part: as they lie in a generation, and as
// ranks of another gang take them out again.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/checkpoint/generation_store.h"
#include "runtime/checkpoint/snapshot.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// [5, size] or [size, 5], no two elements alike.
at::Tensor Whole(int64_t dim, int64_t size) {
  const at::Tensor all = at::arange(5 * size, at::kFloat);
  return dim == 0 ? all.view({size, 5}) : all.view({5, size});
}

at::Tensor Part(const at::Tensor& whole, const OwnPart& own) {
  const PartRange range = own.range();
  return whole.narrow(own.partition.dim, range.begin, range.size());
}

std::vector<StoredPart> Store(const at::Tensor& whole,
                              const Partition& partition, int world_size) {
  std::vector<StoredPart> parts;
  for (int rank = 0; rank < world_size; ++rank) {
    const PartRange range = RangeOfRank(partition, rank, world_size);
    if (range.size() == 0) continue;
    parts.push_back({partition, range.begin,
                     Part(whole, {partition, rank, world_size}).clone()});
  }
  return parts;
}

TEST(Partition, RanksHaveTheChunksOfTorch) {
  for (const int64_t size : {1, 2, 6, 7, 8, 100}) {
    for (int world_size = 1; world_size <= 5; ++world_size) {
      const at::Tensor whole = at::arange(size);
      const std::vector<at::Tensor> chunks = whole.chunk(world_size);
      for (int rank = 0; rank < world_size; ++rank) {
        const at::Tensor part = Part(whole, {{0, size}, rank, world_size});
        const auto i = static_cast<size_t>(rank);
        if (i < chunks.size()) {
          EXPECT_TRUE(part.equal(chunks[i]));
        } else {
          EXPECT_EQ(part.numel(), 0);
        }
      }
    }
  }
}

TEST(Partition, NamesOfPartsTellWhereTheyLie) {
  const std::string name = PartEntryName("model/a/b.weight", {1, 12}, 8);
  EXPECT_EQ(name, "gavel.part/1/8/12/model/a/b.weight");
  const std::optional<PartEntry> entry = ParsePartEntryName(name);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->name, "model/a/b.weight");
  EXPECT_EQ(entry->partition, (Partition{1, 12}));
  EXPECT_EQ(entry->begin, 8);
  for (const char* other :
       {"model", "gavel.part/", "gavel.part/1/2/3", "gavel.part/1/2/3/",
        "gavel.part/-1/2/3/a", "gavel.part/1/x/3/a"}) {
    EXPECT_FALSE(ParsePartEntryName(other)) << other;
  }
}

TEST(Partition, AnyGangTakesItsPartsOfThoseOfAnother) {
  for (const int64_t size : {1, 3, 8, 13}) {
    const at::Tensor whole = Whole(1, size);
    for (int saved = 1; saved <= 4; ++saved) {
      const std::vector<StoredPart> parts = Store(whole, {1, size}, saved);
      ASSERT_OK_AND_ASSIGN(const at::Tensor all,
                           TakePart("a", nullptr, &parts, nullptr));
      EXPECT_TRUE(all.equal(whole));
      for (int world_size = 1; world_size <= 4; ++world_size) {
        for (int rank = 0; rank < world_size; ++rank) {
          for (const Partition& cut : {Partition{1, size}, Partition{0, 5}}) {
            const OwnPart own{cut, rank, world_size};
            ASSERT_OK_AND_ASSIGN(const at::Tensor part,
                                 TakePart("a", nullptr, &parts, &own));
            EXPECT_TRUE(part.equal(Part(whole, own)));
            ASSERT_OK_AND_ASSIGN(const at::Tensor of_whole,
                                 TakePart("a", &whole, nullptr, &own));
            EXPECT_TRUE(of_whole.equal(part));
          }
        }
      }
    }
  }
}

TEST(Partition, WhatDoesNotFitIsSaid) {
  const at::Tensor whole = Whole(0, 8);
  std::vector<StoredPart> parts = Store(whole, {0, 8}, 4);
  const OwnPart other_size{{0, 9}, 1, 3};
  EXPECT_THAT(
      TakePart("w", nullptr, &parts, &other_size).status(),
      StatusIs(kFailedPrecondition,
               "tensor 'w' has 8 elements in dimension 0 in the checkpoint (4 "
               "workers), and the parts of the 3 workers make 9 here"));
  EXPECT_THAT(TakePart("w", &whole, nullptr, &other_size).status(),
              StatusIs(kFailedPrecondition, "(1 worker)"));
  parts.erase(parts.begin() + 2);
  EXPECT_THAT(TakePart("w", nullptr, &parts, nullptr).status(),
              StatusIs(kDataLoss, "from element 4 of 8"));
  ASSERT_OK_AND_ASSIGN(const at::Tensor none,
                       TakePart("w", nullptr, nullptr, nullptr));
  EXPECT_FALSE(none.defined());
}

constexpr int kWorldSize = 3;
constexpr int64_t kSize = 7;

class PartsOfAGang : public Test {
 protected:
  PartsOfAGang() {
    for (int rank = 0; rank < kWorldSize; ++rank) {
      stores_.push_back(*GenerationStore::Open(
          folder_.path(), {.shard_size_bytes_max = 30, .threads = 2}));
    }
  }
  // One tensor that all have, and two in parts, of which one never changes.
  Snapshot StateOf(uint64_t step, int rank) const {
    Snapshot snapshot;
    const auto value = static_cast<double>(step);
    const OwnPart own{{0, kSize}, rank, kWorldSize};
    snapshot.tensors = {{"all", at::ones({4}).mul(value)},
                        {"part", Part(Whole(0, kSize).add(value), own)},
                        {"frozen", Part(Whole(0, kSize), own)}};
    snapshot.partitions = {{"part", own.partition}, {"frozen", own.partition}};
    return snapshot;
  }
  std::vector<absl::Status> Commit(uint64_t step) {
    std::vector<absl::Status> outcomes(kWorldSize);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto i = static_cast<size_t>(rank);
        outcomes[i] = stores_[i].Commit(
            {1, step}, StateOf(step, rank),
            {.rank = rank, .world_size = kWorldSize, .gang_wait_s = 20});
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return outcomes;
  }

  TemporaryFolder folder_;
  std::vector<GenerationStore> stores_;
};

TEST_F(PartsOfAGang, AreWrittenByTheirRanksAndLinkedWhenUnchanged) {
  for (uint64_t step = 1; step <= 8; ++step) {
    for (const absl::Status& status : Commit(step)) EXPECT_OK(status);
  }
  for (const GenerationStore& store : stores_) {
    EXPECT_GT(store.linked_shards(), 0u);
  }
  ASSERT_OK_AND_ASSIGN(GenerationStore store,
                       GenerationStore::Open(folder_.path()));
  ASSERT_OK_AND_ASSIGN(const Restored restored, store.Restore());
  EXPECT_EQ(restored.snapshot.tensors.size(), 1u);
  EXPECT_EQ(restored.snapshot.parts.at("part").size(), size_t{kWorldSize});
  ASSERT_OK_AND_ASSIGN(const at::Tensor part,
                       FindPart(restored.snapshot, "part", nullptr));
  EXPECT_TRUE(part.equal(Whole(0, kSize).add(8)));
  ASSERT_OK_AND_ASSIGN(const at::Tensor frozen,
                       FindPart(restored.snapshot, "frozen", nullptr));
  EXPECT_TRUE(frozen.equal(Whole(0, kSize)));
}

// Bytes of this process that are no pages of files.
int64_t AnonymousBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string key;
  int64_t kib = 0;
  for (std::string line; std::getline(rollup, line);) {
    if (std::istringstream(line) >> key >> kib && key == "Anonymous:") break;
  }
  return kib << 10;
}

TEST(RestoreOfAGang, SharesTheMemoryOfAllRanks) {
  constexpr int64_t kElements = 8 << 20;
  constexpr int64_t kBytes = kElements * sizeof(float);
  const TemporaryFolder folder;
  Snapshot snapshot;
  snapshot.tensors = {{"large", at::arange(kElements, at::kFloat)}};
  {
    ASSERT_OK_AND_ASSIGN(GenerationStore store,
                         GenerationStore::Open(folder.path()));
    ASSERT_OK(store.Commit({1, 1}, snapshot));
  }
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares);
    ASSERT_OK_AND_ASSIGN(
        GenerationStore store,
        GenerationStore::Open(folder.path(), {.shares_restored = shares}));
    const int64_t before = AnonymousBytes();
    ASSERT_OK_AND_ASSIGN(const Restored restored, store.Restore());
    const int64_t taken = AnonymousBytes() - before;
    const at::Tensor* const large = FindTensor(restored.snapshot, "large");
    ASSERT_NE(large, nullptr);
    EXPECT_TRUE(large->equal(snapshot.tensors[0].second));
    if (shares) {
      EXPECT_LT(taken, kBytes / 2);
    } else {
      EXPECT_GE(taken, kBytes * 9 / 10);
    }
  }
}

TEST_F(PartsOfAGang, DamageIsFoundInSharedMemory) {
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const absl::Status& status : Commit(step)) EXPECT_OK(status);
  }
  const std::string path =
      folder_.path() + "/" + GenerationName({1, 2}) + "/" + ShardFileName(0);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  ASSERT_OK_AND_ASSIGN(
      GenerationStore store,
      GenerationStore::Open(folder_.path(), {.shares_restored = true}));
  ASSERT_OK_AND_ASSIGN(const Restored restored, store.Restore());
  EXPECT_EQ(restored.generation.step, 1u);
  EXPECT_THAT(restored.notes, ElementsAre(HasSubstr("checksum differs")));
}

TEST_F(PartsOfAGang, OneRankStoresThemWhole) {
  Snapshot snapshot;
  snapshot.tensors = {{"part", Whole(0, kSize)}};
  snapshot.partitions = {{"part", {0, kSize}}};
  ASSERT_OK(stores_[0].Commit({1, 1}, snapshot));
  ASSERT_OK_AND_ASSIGN(const Restored restored, stores_[0].Restore());
  EXPECT_NE(FindTensor(restored.snapshot, "part"), nullptr);
  EXPECT_TRUE(restored.snapshot.parts.empty());
}

TEST_F(PartsOfAGang, OneOfAnotherShapeThanItsPartIsRefused) {
  Snapshot snapshot = StateOf(1, 1);
  snapshot.tensors[1].second = at::ones({2, 5});
  EXPECT_THAT(stores_[1].Stage(snapshot, {.rank = 1, .world_size = kWorldSize}),
              StatusIs(kInvalidArgument,
                       "tensor 'part' has 2 elements in dimension 0 on rank 1 "
                       "of 3, whose part of 7 has 3"));
}

}  // namespace
}  // namespace gavel::testing
