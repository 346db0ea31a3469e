#include <sstream>

#include "models/text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

TEST(ParallelText, KeepsThePairsInOrderAndHoldsOutTheLast) {
  const ParallelLines lines = ReverseLanguage(200, 8, 1);
  ASSERT_OK_AND_ASSIGN(const ParallelText text,
                       ParallelText::FromLines(lines, {.vocabulary = 300}));
  EXPECT_EQ(text.train().size(), 180);
  EXPECT_EQ(text.validation().size(), 20);
  EXPECT_LE(text.vocabulary(), 300);
  std::istringstream source(lines.source);
  std::istringstream target(lines.target);
  for (const auto part : {text.train(), text.validation()}) {
    for (const SentencePair& pair : part) {
      std::string line;
      std::getline(source, line);
      EXPECT_EQ(text.Decode(pair.source), line);
      std::getline(target, line);
      EXPECT_EQ(text.Decode(pair.target), line);
    }
  }
}

TEST(ParallelText, LearnsItsVocabularyFromTheTrainingPartAlone) {
  ParallelLines lines;
  for (int line = 0; line < 90; ++line) {
    lines.source += "seen\n";
    lines.target += "gesehen\n";
  }
  for (int line = 0; line < 10; ++line) {
    lines.source += "unknown\n";
    lines.target += "unbekannt\n";
  }
  ASSERT_OK_AND_ASSIGN(const ParallelText text,
                       ParallelText::FromLines(lines, {}));
  EXPECT_EQ(text.train()[0].source.size(), 1);
  EXPECT_EQ(text.train()[0].target.size(), 1);
  EXPECT_GE(text.validation()[0].source.size(), 6);
}

TEST(ParallelText, LeavesLongPairsOutAndCountsThem) {
  ParallelLines lines = ReverseLanguage(50, 4, 1);
  lines.source = "short\n" + lines.source;
  lines.target = std::string(2000, 'x') + "\n" + lines.target;
  ASSERT_OK_AND_ASSIGN(
      const ParallelText text,
      ParallelText::FromLines(lines, {.vocabulary = 0, .length_max = 20}));
  EXPECT_EQ(text.left_out(), 1);
  EXPECT_EQ(text.train().size() + text.validation().size(), 50);
}

TEST(ParallelText, ReadsTwoFilesWithLineEndsOfAllKinds) {
  const TemporaryFolder folder;
  folder.Write("en", "one\r\n\r\ntwo\r\nthree\r\n");
  folder.Write("de", "eins\n\nzwei\ndrei");
  ASSERT_OK_AND_ASSIGN(
      const ParallelText text,
      ParallelText::Read(folder.PathOf("en"), folder.PathOf("de"), {}));
  ASSERT_EQ(text.train().size(), 2);
  EXPECT_EQ(text.Decode(text.train()[1].source), "two");
  EXPECT_EQ(text.Decode(text.validation()[0].target), "drei");
}

TEST(ParallelText, NamesTheFileAndLineWithoutAPartner) {
  const TemporaryFolder folder;
  folder.Write("en", "one\ntwo\nthree\n");
  folder.Write("de", "eins\nzwei\n");
  const std::string en = folder.PathOf("en");
  const std::string de = folder.PathOf("de");
  EXPECT_THAT(ParallelText::Read(en, de, {}),
              IsInvalid(en + ":3: the other file has no such line; give two"));
  EXPECT_THAT(ParallelText::Read(de, en, {}),
              IsInvalid(en + ":3: the other file has no"));
  folder.Write("de", "eins\n\ndrei\n");
  EXPECT_THAT(ParallelText::Read(en, de, {}),
              IsInvalid(de + ":2: is empty, but not in the other file"));
  EXPECT_THAT(ParallelText::Read(en, "/no/such/text", {}),
              StatusIs(kNotFound, "/no/such/text: no such file; give two"));
  folder.Write("empty", "");
  const std::string empty = folder.PathOf("empty");
  EXPECT_THAT(ParallelText::Read(empty, empty, {}),
              IsInvalid(empty + ": has 0 pairs of at most 64"));
}

TEST(PadBatch, MarksSentencesAndFillsThemUp) {
  const std::vector<SentencePair> pairs{{{5, 6}, {7}}, {{8}, {9, 10, 11}}};
  const SentenceBatch batch = PadBatch(pairs, at::kCPU);
  const auto row = [](const at::Tensor& tensor, int64_t index) {
    const auto* data =
        tensor.const_data_ptr<int64_t>() + index * tensor.size(1);
    return std::vector<int64_t>(data, data + tensor.size(1));
  };
  EXPECT_THAT(row(batch.source, 0), ElementsAre(5, 6, kEnd));
  EXPECT_THAT(row(batch.source, 1), ElementsAre(8, kEnd, kPad));
  EXPECT_THAT(row(batch.target_in, 0), ElementsAre(kBegin, 7, kPad, kPad));
  EXPECT_THAT(row(batch.target_out, 0), ElementsAre(7, kEnd, kPad, kPad));
  EXPECT_THAT(row(batch.target_in, 1), ElementsAre(kBegin, 9, 10, 11));
  EXPECT_THAT(row(batch.target_out, 1), ElementsAre(9, 10, 11, kEnd));
}

TEST(ReverseLanguage, IsTheSameForASeedAndReversesItsWords) {
  const ParallelLines lines = ReverseLanguage(100, 6, 7);
  EXPECT_EQ(lines.source, ReverseLanguage(100, 6, 7).source);
  EXPECT_NE(lines.source, ReverseLanguage(100, 6, 8).source);
  std::istringstream source(lines.source);
  std::istringstream target(lines.target);
  std::string from;
  std::string to;
  while (std::getline(source, from) && std::getline(target, to)) {
    std::istringstream words(from);
    std::string reversed;
    int count = 0;
    for (std::string word; words >> word; ++count) {
      reversed = reversed.empty() ? word : word + " " + reversed;
    }
    EXPECT_EQ(to, reversed);
    EXPECT_GE(count, 3);
    EXPECT_LE(count, 6);
  }
}

}  // namespace
}  // namespace gavel::models
