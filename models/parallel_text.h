// Pairs of sentences in two languages, from two text files that belong together
// line by line, as numbers of one vocabulary for both. Examples and tests call
// it. The same text always gives the same numbers.
//
// A value: copies share the sentences, which nobody writes after construction,
// so that several threads may read.
#ifndef GAVEL_MODELS_PARALLEL_TEXT_H_
#define GAVEL_MODELS_PARALLEL_TEXT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/byte_pair_encoding.h"

namespace gavel::models {

// Token ids of every vocabulary here; what the text itself has comes after.
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

// A language to learn without any data: each source line is 3 to `words_max`
// words of 20, the target line the same words from back to front.
ParallelLines ReverseLanguage(int64_t lines, int64_t words_max, uint64_t seed);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_PARALLEL_TEXT_H_
