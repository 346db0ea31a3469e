// Text as numbers: byte pair encoding, corpora for language models, sentence
// pairs for translation, and the BLEU score. The same text always gives the
// same numbers.
//
// All are values: copies share their data, which nobody writes after
// construction, so that several threads may read.
#ifndef GAVEL_MODELS_TEXT_H_
#define GAVEL_MODELS_TEXT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/dataset.h"

namespace gavel::models {

// Text as tokens without an unknown token: bytes, and the most frequent pairs
// of tokens, which are merged into one repeatedly. R. Sennrich et al., Neural
// Machine Translation of Rare Words with Subword Units, ACL 2016; on bytes as
// in A. Radford et al., Language Models are Unsupervised Multitask Learners,
// 2019.
//
// A merge never crosses the border of a piece. A piece is a run of letters and
// digits, or of other marks, with the space before it, or a run of white space.
class BytePairEncoding {
 public:
  static constexpr int64_t kBytes = 256;

  // Learns merges until there are `size` tokens, or no pair occurs twice.
  // size <= kBytes: bytes alone.
  static BytePairEncoding Learn(std::string_view text, int64_t size);

  // Ids in [0, size()). Decode(Encode(text)) is the text, byte by byte.
  std::vector<int64_t> Encode(std::string_view text) const;
  // Ids out of range are left out.
  std::string Decode(std::span<const int64_t> ids) const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Tokens by id: 256 bytes, then the merged ones in the order of learning.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  using Pair = std::pair<int64_t, int64_t>;

  BytePairEncoding();
  void EncodePiece(std::string_view piece, std::vector<int64_t>* ids) const;

  std::vector<std::string> tokens_;
  std::map<Pair, int64_t> merged_;  // two neighbours and their token
};

// kWord: runs of letters and digits in lower case, and single punctuation
// marks. kCharacter: bytes as they are. White space separates words, and a run
// of it counts as one character. kBytePair: the tokens of BytePairEncoding,
// which leaves nothing out.
enum class TokenKind { kWord, kCharacter, kBytePair };

struct TextCorpusOptions {
  TokenKind token = TokenKind::kWord;
  // Words and characters that are rarer than this in the training part become
  // <unk>. >= 1.
  int64_t count_min = 2;
  int64_t byte_pairs = 4096;  // kBytePair: tokens at most, 256 bytes included
  // The last part of the text, held out. In (0, 1).
  double validation_fraction = 0.1;
  int64_t window = 1;  // tokens that TextWindows will be made with
};

// A text as token ids with a vocabulary, split into a training and a validation
// part.
class TextCorpus {
 public:
  // INVALID_ARGUMENT: too little text for a window in both parts.
  static absl::StatusOr<TextCorpus> FromText(std::string_view text,
                                             const TextCorpusOptions& options);

  // Reads one file, or all regular files of a folder in the order of their
  // names (not below it, not through symbolic links). NOT_FOUND: no such path.
  // The other errors, which name the path, are those of FromText.
  static absl::StatusOr<TextCorpus> Read(const std::string& path,
                                         const TextCorpusOptions& options);

  // Token ids, one-dimensional int64, each in [0, vocabulary().size()).
  const at::Tensor& train() const { return train_; }
  const at::Tensor& validation() const { return validation_; }
  // By token id: 0 is "<unk>", then the most frequent tokens first; or those of
  // the byte pairs.
  const std::vector<std::string>& vocabulary() const { return vocabulary_; }

 private:
  TextCorpus() = default;

  at::Tensor train_;
  at::Tensor validation_;
  std::vector<std::string> vocabulary_;
};

// A text cut into windows of `length` tokens that do not overlap; what is left
// over at the end is not used.
class TextWindows {
 public:
  // `tokens`: one-dimensional, of more than `length` > 0 tokens.
  TextWindows(at::Tensor tokens, int64_t length);

  size_t size() const { return static_cast<size_t>(inputs_.size(0)); }

  // [length] tokens, and the [length] tokens that follow each of them.
  Example get(size_t index) const;

  // All of them, [size(), length] each.
  Example all() const { return {inputs_, targets_}; }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
};

// Generates text for trainers without any: sentences of seven words and a full
// stop. An adjective determines the noun that follows, a noun restricts the
// verb to three. The text is a function of the arguments. A program that prints
// a result on it says that it is synthetic.
std::string MadeUpText(int64_t sentences, uint64_t seed);

// The perplexity of `validation` for a model that knows only how frequent each
// token is in `train` (each counted once more): what a model must undercut.
double UnigramPerplexity(const TextCorpus& corpus);

// Sentence pairs in two languages come from two text files that correspond line
// by line. Both languages share one vocabulary.

// The special tokens of every vocabulary; those of the text come after them.
inline constexpr int64_t kPad = 0;
inline constexpr int64_t kBegin = 1;
inline constexpr int64_t kEnd = 2;
inline constexpr int64_t kMarks = 3;

// Token ids without marks; neither is empty.
struct SentencePair {
  std::vector<int64_t> source;
  std::vector<int64_t> target;
};

struct ParallelTextOptions {
  int64_t vocabulary = 8000;  // tokens at most, marks and 256 bytes included
  int64_t length_max = 64;    // tokens of a sentence; longer pairs are left out
  // The last pairs, held out. In (0, 1).
  double validation_fraction = 0.1;
};

// Two texts, one sentence a line, and what to call them in messages.
struct ParallelLines {
  std::string source;
  std::string target;
  std::string source_name = "source";
  std::string target_name = "target";
};

class ParallelText {
 public:
  // INVALID_ARGUMENT, as "NAME:17: ...": a line without a partner, or one that
  // is empty while its partner is not; fewer than two pairs that are short
  // enough. Lines that are empty in both are left out.
  static absl::StatusOr<ParallelText> FromLines(
      const ParallelLines& lines, const ParallelTextOptions& options);

  // Also NOT_FOUND; the names are the paths.
  static absl::StatusOr<ParallelText> Read(const std::string& source_path,
                                           const std::string& target_path,
                                           const ParallelTextOptions& options);

  std::span<const SentencePair> train() const;
  std::span<const SentencePair> validation() const;
  int64_t vocabulary() const { return kMarks + encoding_.size(); }
  // Pairs that were longer than length_max.
  int64_t left_out() const { return left_out_; }
  const BytePairEncoding& encoding() const { return encoding_; }
  // Up to the first end mark, without marks.
  std::string Decode(std::span<const int64_t> ids) const;

 private:
  explicit ParallelText(BytePairEncoding encoding)
      : encoding_(std::move(encoding)) {}

  BytePairEncoding encoding_;
  std::shared_ptr<const std::vector<SentencePair>> pairs_;
  size_t train_size_ = 0;
  int64_t left_out_ = 0;
};

// A dataset over sentences that live longer.
class SentencePairs {
 public:
  explicit SentencePairs(std::span<const SentencePair> pairs) : pairs_(pairs) {}
  size_t size() const { return pairs_.size(); }
  SentencePair get(size_t index) const { return pairs_[index]; }

 private:
  std::span<const SentencePair> pairs_;
};

// A batch as the Transformer takes it, int64, filled up with kPad to the
// longest of it. pairs: at least one.
struct SentenceBatch {
  at::Tensor source;      // [batch, longest source + 1]: ..., kEnd
  at::Tensor target_in;   // [batch, longest target + 1]: kBegin, ...
  at::Tensor target_out;  // the same shape: ..., kEnd
};
SentenceBatch PadBatch(std::span<const SentencePair> pairs, at::Device device);

// Generates sentence pairs for trainers without any data. Each source line has
// 3 to `words_max` words out of 20; the target line is the same words reversed.
ParallelLines ReverseLanguage(int64_t lines, int64_t words_max, uint64_t seed);

// BLEU-4 of a whole corpus, with one reference for each candidate, in [0, 1].
// K. Papineni et al., BLEU: a Method for Automatic Evaluation of Machine
// Translation, ACL 2002. It is the geometric mean of the clipped precisions of
// 1 to 4 words, times the brevity penalty. White space separates words, so pass
// tokenized text. There is no smoothing: the result is 0 when no 4 words in a
// row are right. Both spans have the same size.
double CorpusBleu(std::span<const std::string> candidates,
                  std::span<const std::string> references);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_TEXT_H_
