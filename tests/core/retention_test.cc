#include <cmath>

#include "core/generation.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(GenerationsToPreserve, OfEachSoManyStepsTheFirst) {
  const std::vector<ScoredGeneration> existing = {
      {{1, 30}, {}},  {{1, 99}, {}},  {{1, 100}, {}}, {{2, 120}, {}},
      {{2, 199}, {}}, {{3, 350}, {}}, {{3, 390}, {}}};
  EXPECT_THAT(GenerationsToPreserve(existing, 100, false),
              ElementsAre(Generation{1, 100}, Generation{3, 350}));
  EXPECT_THAT(GenerationsToPreserve(existing, 0, false), IsEmpty());
  EXPECT_THAT(GenerationsToPreserve(existing, 1000, false), IsEmpty());
}

TEST(GenerationsToPreserve, TheBestAndOfEqualOnesTheFirst) {
  const std::vector<ScoredGeneration> existing = {{{1, 40}, 3.0},
                                                  {{1, 10}, 0.5},
                                                  {{1, 20}, {}},
                                                  {{1, 30}, 0.5},
                                                  {{1, 50}, 3.0}};
  EXPECT_THAT(GenerationsToPreserve(existing, 0, /*highest_is_best=*/false),
              ElementsAre(Generation{1, 10}));
  EXPECT_THAT(GenerationsToPreserve(existing, 0, /*highest_is_best=*/true),
              ElementsAre(Generation{1, 40}));
  const std::vector<ScoredGeneration> unknown = {{{1, 20}, {}}};
  EXPECT_THAT(GenerationsToPreserve(unknown, 0, false), IsEmpty());
}

TEST(GenerationsToPreserve, WhatIsNotANumberIsNeverTheBest) {
  const double none = std::nan("");
  const std::vector<ScoredGeneration> existing = {
      {{1, 10}, none}, {{1, 20}, 0.5}, {{1, 30}, none}};
  for (const bool highest : {false, true}) {
    EXPECT_THAT(GenerationsToPreserve(existing, 0, highest),
                ElementsAre(Generation{1, 20}));
  }
}

TEST(BestBy, IsReadFromText) {
  EXPECT_EQ(ParseBestBy("min:loss")->scalar, "loss");
  EXPECT_FALSE(ParseBestBy("min:loss")->highest);
  EXPECT_EQ(ParseBestBy("max:top:5")->scalar, "top:5");
  EXPECT_TRUE(ParseBestBy("max:top:5")->highest);
  EXPECT_EQ(ParseBestBy("")->scalar, "");
  for (const char* bad : {"loss", "min", "min:", ":loss", "least:loss"}) {
    EXPECT_FALSE(ParseBestBy(bad)) << bad;
  }
}

}  // namespace
}  // namespace gavel
