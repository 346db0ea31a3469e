// The expected values are sacrebleu's (tokenize none, smoothing none) and, for
// the sentences from NLTK's documentation, NLTK's.
#include <cmath>

#include "models/text.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

using Lines = std::vector<std::string>;

const char kGuide[] =
    "It is a guide to action which ensures that the military always obeys the "
    "commands of the party";
const char kGuideReference[] =
    "It is a guide to action that ensures that the military will forever heed "
    "Party commands";
const char kHistory[] =
    "he read the book because he was interested in world history";
const char kHistoryReference[] =
    "he was interested in world history because he read the book";

TEST(CorpusBleu, GivesThePublishedValues) {
  EXPECT_NEAR(CorpusBleu(Lines{kGuide}, Lines{kGuideReference}),
              0.41180376356915765, 1e-12);
  EXPECT_NEAR(CorpusBleu(Lines{kHistory}, Lines{kHistoryReference}),
              0.7400828044922857, 1e-12);
}

TEST(CorpusBleu, CountsOverTheCorpusAndNotByLine) {
  EXPECT_NEAR(CorpusBleu(Lines{kGuide, kHistory},
                         Lines{kGuideReference, kHistoryReference}),
              0.5314082679468588, 1e-12);
}

TEST(CorpusBleu, PenalizesWhatIsTooShort) {
  EXPECT_NEAR(
      CorpusBleu(Lines{"the cat sat on the", "a b c d e f g"},
                 Lines{"the cat sat on the mat today", "a b c x d e f g h"}),
      0.5461395359710308, 1e-12);
  // All runs are right, and 4 of 8 words are there.
  EXPECT_NEAR(CorpusBleu(Lines{"a b c d"}, Lines{"a b c d e f g h"}),
              std::exp(-1), 1e-12);
}

TEST(CorpusBleu, IsOneForTheReferenceAndZeroWithoutFourWordsInARow) {
  EXPECT_DOUBLE_EQ(CorpusBleu(Lines{kGuide, "a b"}, Lines{kGuide, "a b"}), 1);
  // Papineni et al., section 2.1, example 2: two of seven after clipping.
  EXPECT_EQ(CorpusBleu(Lines{"the the the the the the the"},
                       Lines{"the cat is on the mat"}),
            0);
  EXPECT_EQ(CorpusBleu(Lines{""}, Lines{"the cat is on the mat"}), 0);
  EXPECT_EQ(CorpusBleu(Lines{}, Lines{}), 0);
}

}  // namespace
}  // namespace gavel::models
