#include <random>

#include "models/text.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

std::string Licence() {
  std::string text;
  for (int line = 0; line < 200; ++line) {
    text += "the newest of the lowest, and the widest: line " +
            std::to_string(line) + "\n";
  }
  return text;
}

// The example of Sennrich et al., algorithm 1: e s, then es t, are the most
// frequent pairs; their third, l o, is as frequent as o w, and comes first.
TEST(BytePairEncoding, MergesTheMostFrequentPairsFirst) {
  std::string text;
  for (const auto& [word, count] :
       {std::pair("low", 5), {"lower", 2}, {"newest", 6}, {"widest", 3}}) {
    for (int time = 0; time < count; ++time) text += std::string(word) + "\n";
  }
  const auto encoding = BytePairEncoding::Learn(text, 256 + 4);
  EXPECT_THAT(
      std::vector(encoding.tokens().begin() + 256, encoding.tokens().end()),
      ElementsAre("es", "est", "lo", "low"));
  EXPECT_THAT(encoding.Encode("lowest"), ElementsAre(259, 257));
}

TEST(BytePairEncoding, DecodesToTheTextByteByByte) {
  const auto encoding = BytePairEncoding::Learn(Licence(), 400);
  std::mt19937 engine(1);
  for (int round = 0; round < 50; ++round) {
    std::string text;
    for (auto size = engine() % 300; size > 0; --size) {
      text.push_back(static_cast<char>(engine() % (round % 2 ? 256 : 64)));
    }
    EXPECT_EQ(encoding.Decode(encoding.Encode(text)), text);
  }
  EXPECT_THAT(encoding.Encode(""), ElementsAre());
  const std::vector<int64_t> unknown{-1, 97, 1'000'000};
  EXPECT_EQ(encoding.Decode(unknown), "a");
}

TEST(BytePairEncoding, SpacesBelongToTheWordBehindThem) {
  const auto encoding = BytePairEncoding::Learn(Licence(), 500);
  const std::string text = "lowest  the";
  std::vector<std::string> tokens;
  for (const int64_t id : encoding.Encode(text)) {
    tokens.push_back(encoding.tokens()[static_cast<size_t>(id)]);
  }
  EXPECT_EQ(tokens.back(), " the");
  EXPECT_EQ(tokens[tokens.size() - 2], " ");
}

TEST(BytePairEncoding, MakesTheSameTokensOfTheSameTextAndFewerOfIt) {
  const auto first = BytePairEncoding::Learn(Licence(), 400);
  const auto second = BytePairEncoding::Learn(Licence(), 400);
  EXPECT_EQ(first.tokens(), second.tokens());
  EXPECT_EQ(first.Encode(Licence()), second.Encode(Licence()));
  EXPECT_LT(first.Encode(Licence()).size(), Licence().size() / 3);
}

TEST(BytePairEncoding, StopsWhenNoPairOccursTwice) {
  EXPECT_EQ(BytePairEncoding::Learn("abcdef", 1000).size(), 256);
  EXPECT_EQ(BytePairEncoding::Learn("", 1000).size(), 256);
  EXPECT_EQ(BytePairEncoding::Learn("ab\nab", 1000).size(), 257);
  EXPECT_EQ(BytePairEncoding::Learn(Licence(), 0).size(), 256);
}

TEST(BytePairEncoding, TakesAMegabyteWithoutAnySpace) {
  const std::string text(1 << 20, 'a');
  const auto encoding = BytePairEncoding::Learn(text, 300);
  EXPECT_EQ(encoding.Decode(encoding.Encode(text)), text);
}

}  // namespace
}  // namespace gavel::models
