#include "core/generation.h"

#include <limits>
#include <random>

#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

TEST(Generation, IsOrderedByEpochThenStep) {
  EXPECT_LT((Generation{1, 900}), (Generation{2, 3}));
  EXPECT_LT((Generation{2, 3}), (Generation{2, 4}));
  EXPECT_EQ((Generation{2, 3}), (Generation{2, 3}));
}

TEST(GenerationName, HasFixedWidth) {
  EXPECT_EQ(GenerationName({7, 1200}), "generation-000000000007-000000001200");
}

TEST(GenerationName, SortsAsGenerationsDo) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Generation a{random() % 20, random() % 1000000};
    const Generation b{random() % 20, random() % 1000000};
    EXPECT_EQ(a < b, GenerationName(a) < GenerationName(b));
  }
}

TEST(ParseGenerationName, InvertsGenerationName) {
  for (const Generation generation :
       {Generation{0, 0}, Generation{7, 1200}, Generation{kHuge, kHuge},
        Generation{999999999999, 1000000000000}}) {
    EXPECT_EQ(ParseGenerationName(GenerationName(generation)), generation);
  }
}

TEST(ParseGenerationName, AcceptsNothingElse) {
  for (const char* name :
       {"", "generation-", "generation--", "generation-7-1200",
        "generation-000000000007-00000000120",
        "generation-000000000007-0000000001200",
        "generation-000000000007-000000001200 ",
        "generation-000000000007-000000001200.tmp",
        " generation-000000000007-000000001200",
        "Generation-000000000007-000000001200",
        "generation-000000000007_000000001200",
        "generation-00000000000a-000000001200",
        "generation-+00000000007-000000001200",
        "generation--00000000007-000000001200",
        "generation- 00000000007-000000001200",
        "generation-000000000007-000000001200-000000000001",
        "generation-99999999999999999999-000000001200", "manifest.json"}) {
    EXPECT_EQ(ParseGenerationName(name), std::nullopt) << name;
  }
}

TEST(GenerationsToDelete, KeepsTheHighest) {
  const std::vector<Generation> existing = {{2, 40}, {1, 10}, {2, 30}, {1, 20}};
  EXPECT_THAT(GenerationsToDelete(existing, {2, 40}, 2),
              ElementsAre(Generation{1, 10}, Generation{1, 20}));
  EXPECT_THAT(GenerationsToDelete(existing, {2, 40}, 3),
              ElementsAre(Generation{1, 10}));
  EXPECT_THAT(GenerationsToDelete(existing, {2, 40}, 4), IsEmpty());
}

TEST(GenerationsToDelete, CountsTheCommittedOneWhetherListedOrNot) {
  const std::vector<Generation> without = {{1, 10}, {1, 20}};
  const std::vector<Generation> with = {{1, 10}, {1, 20}, {1, 30}};
  EXPECT_THAT(GenerationsToDelete(without, {1, 30}, 2),
              ElementsAre(Generation{1, 10}));
  EXPECT_THAT(GenerationsToDelete(with, {1, 30}, 2),
              ElementsAre(Generation{1, 10}));
}

TEST(GenerationsToDelete, AStaleWriterDeletesNothingOfItsSuccessors) {
  const std::vector<Generation> existing = {
      {1, 10}, {1, 20}, {2, 15}, {2, 16}, {2, 17}};
  EXPECT_THAT(GenerationsToDelete(existing, {1, 20}, 2),
              ElementsAre(Generation{1, 10}));
}

TEST(GenerationsToDelete, ALateOneDeletesNothingThatIsHigher) {
  const std::vector<Generation> existing = {{1, 40}, {2, 12}, {2, 14}, {2, 15}};
  EXPECT_THAT(GenerationsToDelete(existing, {2, 6}, 2),
              ElementsAre(Generation{1, 40}));
}

TEST(GenerationsToDelete, NothingExistsNothingGoes) {
  EXPECT_THAT(GenerationsToDelete({}, {1, 10}, 2), IsEmpty());
}

TEST(GenerationsToDelete, HoldsItsRulesForAnyDirectory) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::set<Generation> existing;
    for (size_t n = random() % 12; n > 0; --n) {
      existing.insert({random() % 4, random() % 10});
    }
    const Generation committed{random() % 4, random() % 10};
    const int keep_last = 2 + static_cast<int>(random() % 3);
    const auto deleted = GenerationsToDelete(
        std::vector<Generation>(existing.begin(), existing.end()), committed,
        keep_last);
    existing.insert(committed);
    std::set<Generation> left = existing;
    for (const Generation generation : deleted) {
      EXPECT_EQ(left.erase(generation), 1U);
      EXPECT_LT(generation, committed);
      EXPECT_GE(std::count_if(existing.begin(), existing.end(),
                              [&](Generation g) { return g > generation; }),
                keep_last);
    }
    EXPECT_TRUE(left.contains(committed));
  }
}

TEST(GenerationsToDeleteDeathTest, KeepingOneIsAProgrammingError) {
  EXPECT_DEATH(GenerationsToDelete({}, {1, 10}, 1), "keep_last >= 2");
}

}  // namespace
}  // namespace gavel
