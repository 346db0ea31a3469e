#include <ATen/ops/tensor.h>

#include <cmath>

#include "core/text.h"
#include "models/recommendation.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

const char kHeader[] = "userId,movieId,rating,timestamp\n";

// `users` users who like the movies 10, 20, ... of which there are `movies`.
std::string Table(int users, int movies) {
  std::string text = kHeader;
  for (int user = 1; user <= users; ++user) {
    for (int movie = 1; movie <= movies; ++movie) {
      StrAppend(&text, user, ",", 10 * movie, ",4.5,964982703\n");
    }
  }
  return text;
}

TEST(Ratings, CountLikesAndHoldUsersOut) {
  // User 99 likes too little, user 98 nothing of it enough.
  std::string text = Table(20, 6) + "99,10,5.0,1\n";
  for (int movie = 1; movie <= 6; ++movie) {
    StrAppend(&text, "98,", 10 * movie, ",3.5,1\n");
  }
  ASSERT_OK_AND_ASSIGN(const Ratings ratings,
                       Ratings::FromText(text, "name", {}));
  EXPECT_EQ(ratings.items(), 6);
  ASSERT_EQ(ratings.train().size(), 18);
  ASSERT_EQ(ratings.held_out().size(), 2);
  EXPECT_THAT(ratings.train()[0], ElementsAre(0, 1, 2, 3, 4, 5));
  for (const HeldOutUser& user : ratings.held_out()) {
    EXPECT_EQ(user.hidden.size(), 1);
    LikedItems all = user.seen;
    all.insert(all.end(), user.hidden.begin(), user.hidden.end());
    std::sort(all.begin(), all.end());
    EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST(Ratings, TakeColumnsInAnyOrderAndARatingThatIsGivenTwice) {
  std::string text = "rating,extra,movieId,userId\r\n";
  for (int user = 1; user <= 10; ++user) {
    for (const int movie : {7, 5, 7}) {
      StrAppend(&text, "5,x,", movie, ",", user, "\r\n");
    }
  }
  ASSERT_OK_AND_ASSIGN(const Ratings ratings,
                       Ratings::FromText(text, "name", {.likes_min = 2}));
  EXPECT_EQ(ratings.items(), 2);
  EXPECT_THAT(ratings.train()[0], ElementsAre(0, 1));
}

TEST(Ratings, NameTheFileAndLineOfWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("ratings.csv");
  const auto error_of = [&](const std::string& text) {
    folder.Write("ratings.csv", text);
    return Ratings::Read(path, {});
  };
  EXPECT_THAT(error_of("userId,movieId,stars\n1,2,3\n"),
              IsInvalid(path + ":1: no column rating; give"));
  EXPECT_THAT(error_of(Table(1, 2) + "1,2,3\n"),
              IsInvalid(path + ":4: 3 fields instead of 4"));
  EXPECT_THAT(
      error_of(Table(1, 2) + "1,2,good,4\n"),
      IsInvalid(path + ":4: userId, movieId or rating is not a number"));
  EXPECT_THAT(error_of(Table(1, 2) + "1,2,4,1\n1,9999999999999999999,4,1\n"),
              IsInvalid(path + ":5: userId, movieId"));
  EXPECT_THAT(error_of(""), IsInvalid("is empty"));
  EXPECT_THAT(error_of(kHeader), IsInvalid(path + ": has 0 users with 5"));
  EXPECT_THAT(Ratings::Read("/no/such/ratings.csv", {}),
              StatusIs(kNotFound, "/no/such/ratings.csv: no such file"));
}

TEST(Ratings, AreTheSameForTheSameTableAndSeed) {
  const std::string text = LowRankRatings(60, 80, 3);
  EXPECT_EQ(text, LowRankRatings(60, 80, 3));
  EXPECT_NE(text, LowRankRatings(60, 80, 4));
  ASSERT_OK_AND_ASSIGN(const Ratings first, Ratings::FromText(text, "a", {}));
  ASSERT_OK_AND_ASSIGN(const Ratings second, Ratings::FromText(text, "b", {}));
  ASSERT_OK_AND_ASSIGN(const Ratings other,
                       Ratings::FromText(text, "c", {.seed = 2}));
  EXPECT_TRUE(std::ranges::equal(first.train(), second.train()));
  EXPECT_FALSE(std::ranges::equal(first.train(), other.train()));
}

TEST(LowRankRatings, FewItemsAreRatedByMost) {
  ASSERT_OK_AND_ASSIGN(
      const Ratings ratings,
      Ratings::FromText(LowRankRatings(600, 300, 1), "made", {}));
  const at::Tensor counts =
      std::get<0>(DenseLikes(ratings.train(), ratings.items(), at::kCPU)
                      .sum(0)
                      .sort(0, /*descending=*/true));
  const auto share = [&](int64_t items) {
    return counts.narrow(0, 0, items).sum().item<double>() /
           counts.sum().item<double>();
  };
  EXPECT_GT(share(ratings.items() / 10), 0.2);  // a tenth, twice its share
  EXPECT_LT(share(ratings.items() / 10), 0.9);
}

TEST(NormalizedGain, IsThatOfTheDefinition) {
  // Places 1 and 3 of 5 are relevant.
  const at::Tensor scores =
      at::tensor({0.9F, 0.5F, 0.7F, 0.1F, 0.3F}).unsqueeze(0);
  const at::Tensor hidden =
      at::tensor({1.0F, 1.0F, 0.0F, 0.0F, 0.0F}).unsqueeze(0);
  const double found = 1 / std::log2(2) + 1 / std::log2(4);
  const double ideal = 1 / std::log2(2) + 1 / std::log2(3);
  EXPECT_NEAR(NormalizedGain(scores, hidden, 5), found / ideal, 1e-12);
  EXPECT_NEAR(NormalizedGain(scores, hidden, 100), found / ideal, 1e-12);
  EXPECT_NEAR(NormalizedGain(scores, hidden, 2), 1 / ideal, 1e-12);
  // The most that one place can hold is one.
  EXPECT_NEAR(NormalizedGain(scores, hidden, 1), 1, 1e-12);
  EXPECT_NEAR(NormalizedGain(-scores, hidden, 1), 0, 1e-12);
}

}  // namespace
}  // namespace gavel::models
