#include "core/text.h"

#include <string>

#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("name", "name"), 0u);
  EXPECT_EQ(EditDistance("name", "names"), 1u);
  EXPECT_EQ(EditDistance("name", "ame"), 1u);
  EXPECT_EQ(EditDistance("name", "nape"), 1u);
  EXPECT_EQ(EditDistance("name", "nmae"), 1u);
  EXPECT_EQ(EditDistance("abcd", "badc"), 2u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(EditDistance, OfAnEmptyWordIsTheLengthOfTheOther) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "app"), 3u);
  EXPECT_EQ(EditDistance("app", ""), 3u);
}

TEST(EditDistance, EditsNoLetterTwice) {
  EXPECT_EQ(EditDistance("ca", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", "ca"), 3u);
}

TEST(EditDistance, IsTheSameInBothDirections) {
  const std::string words[] = {"submit", "sumbit", "submti", "queue",
                               "qeueu",  "",       "uqeue",  "drain"};
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      EXPECT_EQ(EditDistance(a, b), EditDistance(b, a)) << a << ' ' << b;
    }
  }
}

}  // namespace
}  // namespace gavel
