// English text as numbers: words or characters with a vocabulary, split into a
// training and a validation part, and cut into windows for a language model.
// Examples and tests call it. The same text always gives the same numbers.
//
// Values: copies share the tensors, which nobody writes after construction, so
// that several threads may read.
#ifndef GAVEL_MODELS_TEXT_CORPUS_H_
#define GAVEL_MODELS_TEXT_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/example.h"

namespace gavel::models {

// kWord: runs of letters and digits in lower case, and single punctuation
// marks. kCharacter: bytes as they are. White space separates words, and a run
// of it counts as one character. kBytePair: byte_pair_encoding.h, which leaves
// nothing out.
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

// A made-up language, for trainers without any text: sentences of seven words
// and a full stop, whose adjectives tell which noun follows, and whose nouns
// which verb. A function of its arguments; whoever prints a result on it says
// that it is synthetic.
std::string MadeUpText(int64_t sentences, uint64_t seed);

// The perplexity of `validation` for a model that knows only how frequent each
// token is in `train` (each counted once more): what a model must undercut.
double UnigramPerplexity(const TextCorpus& corpus);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_TEXT_CORPUS_H_
