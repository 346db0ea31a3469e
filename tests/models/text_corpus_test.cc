#include <filesystem>

#include "models/text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

std::string Repeated(const std::string& text, int count) {
  std::string result;
  for (int index = 0; index < count; ++index) result += text;
  return result;
}

// The tokens as text again, between bars.
std::string Rendered(const TextCorpus& corpus, const at::Tensor& tokens) {
  std::string text;
  for (int64_t index = 0; index < tokens.size(0); ++index) {
    text += corpus.vocabulary()[tokens[index].item<int64_t>()] + "|";
  }
  return text;
}

TEST(TextCorpus, WordsAreLowerCaseRunsAndPunctuationMarks) {
  ASSERT_OK_AND_ASSIGN(
      const TextCorpus corpus,
      TextCorpus::FromText(Repeated("The cat,\n   the CAT2; ", 40), {}));
  EXPECT_EQ(Rendered(corpus, corpus.train().narrow(0, 0, 6)),
            "the|cat|,|the|cat2|;|");
}

TEST(TextCorpus, CharactersKeepTheirCaseAndSpacesCollapse) {
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus,
                       TextCorpus::FromText(Repeated("Ab \n\t c.", 40),
                                            {.token = TokenKind::kCharacter}));
  EXPECT_EQ(Rendered(corpus, corpus.train().narrow(0, 0, 5)), "A|b| |c|.|");
}

TEST(TextCorpus, BytePairsAreTheWholeText) {
  const std::string text = Repeated("The cat,\n\t THE cat. ", 40);
  ASSERT_OK_AND_ASSIGN(
      const TextCorpus corpus,
      TextCorpus::FromText(text,
                           {.token = TokenKind::kBytePair, .byte_pairs = 260}));
  EXPECT_EQ(corpus.vocabulary().size(), 260);
  std::string read;
  for (const at::Tensor& tokens : {corpus.train(), corpus.validation()}) {
    for (int64_t at = 0; at < tokens.size(0); ++at) {
      read += corpus.vocabulary()[tokens[at].item<int64_t>()];
    }
  }
  EXPECT_EQ(read, text);
}

TEST(TextCorpus, VocabularyIsOrderedByCountAndThenByText) {
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus,
                       TextCorpus::FromText(Repeated("b a c c ", 40), {}));
  EXPECT_THAT(corpus.vocabulary(), ElementsAre("<unk>", "c", "a", "b"));
}

TEST(TextCorpus, RareTokensAreUnknown) {
  const std::string text = "seldom " + Repeated("often ", 200);
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus, TextCorpus::FromText(text, {}));
  EXPECT_EQ(Rendered(corpus, corpus.train().narrow(0, 0, 2)), "<unk>|often|");
  ASSERT_OK_AND_ASSIGN(const TextCorpus all,
                       TextCorpus::FromText(text, {.count_min = 1}));
  EXPECT_EQ(Rendered(all, all.train().narrow(0, 0, 2)), "seldom|often|");
}

TEST(TextCorpus, ValidationIsTheEndAndAddsNothingToTheVocabulary) {
  const std::string text = Repeated("seen ", 180) + Repeated("unseen ", 20);
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus, TextCorpus::FromText(text, {}));
  EXPECT_EQ(corpus.train().size(0), 180);
  EXPECT_EQ(corpus.validation().size(0), 20);
  EXPECT_THAT(corpus.vocabulary(), ElementsAre("<unk>", "seen"));
  EXPECT_EQ(corpus.validation().sum().item<int64_t>(), 0);
}

TEST(TextCorpus, ReadsTheFilesOfAFolderByNameWithoutLinks) {
  const TemporaryFolder folder;
  folder.Write("b", Repeated("second ", 100));
  folder.Write("a", Repeated("first ", 100));
  std::filesystem::create_symlink("a", folder.PathOf("c"));
  std::filesystem::create_directory(folder.PathOf("d"));
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus,
                       TextCorpus::Read(folder.path(), {}));
  EXPECT_EQ(corpus.train().size(0) + corpus.validation().size(0), 200);
  EXPECT_EQ(Rendered(corpus, corpus.train().narrow(0, 99, 2)), "first|second|");
}

TEST(TextCorpus, NamesWhatIsMissingOrTooShort) {
  EXPECT_THAT(TextCorpus::Read("/no/such/text", {}),
              StatusIs(kNotFound, "/no/such/text: no such file; give a text"));
  const TemporaryFolder folder;
  EXPECT_THAT(TextCorpus::Read(folder.path(), {}),
              IsInvalid(folder.path() + ": has 0 tokens"));
}

TEST(TextCorpus, NeedsMoreThanAWindowInBothParts) {
  const std::string text = Repeated("a ", 200);
  EXPECT_OK(TextCorpus::FromText(text, {.window = 19}));
  EXPECT_THAT(
      TextCorpus::FromText(text, {.window = 20}),
      IsInvalid("has 180 tokens to train on and 20 to hold out, too few "
                "for windows of 20; make them shorter"));
}

TEST(TextWindows, EachInputIsFollowedByItsTarget) {
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus,
                       TextCorpus::FromText(Repeated("a b c ", 50), {}));
  const TextWindows windows(corpus.train(), 10);
  EXPECT_EQ(windows.size(), 13);  // 134 times a target, by 10
  for (size_t index = 0; index < windows.size(); ++index) {
    const auto [input, target] = windows.get(index);
    const auto start = static_cast<int64_t>(index) * 10;
    EXPECT_TRUE(input.equal(corpus.train().narrow(0, start, 10)));
    EXPECT_TRUE(target.equal(corpus.train().narrow(0, start + 1, 10)));
  }
}

TEST(UnigramPerplexity, OfTwoEquallyFrequentTokensIsTwo) {
  ASSERT_OK_AND_ASSIGN(const TextCorpus corpus,
                       TextCorpus::FromText(Repeated("a b ", 5000), {}));
  EXPECT_NEAR(UnigramPerplexity(corpus), 2, 0.01);
}

}  // namespace
}  // namespace gavel::models
