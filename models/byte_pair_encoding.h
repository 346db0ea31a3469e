// Text as numbers without an unknown token: bytes, and the most frequent pairs
// of tokens merged into one, again and again. R. Sennrich et al., Neural
// Machine Translation of Rare Words with Subword Units, ACL 2016; on bytes as
// in A. Radford et al., Language Models are Unsupervised Multitask Learners,
// 2019. The same text always gives the same tokens.
//
// A merge never crosses the border of a piece: a run of letters and digits, or
// of other marks, with the space before it, or a run of white space. A value;
// thread-safe as one.
#ifndef GAVEL_MODELS_BYTE_PAIR_ENCODING_H_
#define GAVEL_MODELS_BYTE_PAIR_ENCODING_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gavel::models {

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
  // By id: 256 bytes, then what was merged, in the order of learning.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  using Pair = std::pair<int64_t, int64_t>;

  BytePairEncoding();
  void EncodePiece(std::string_view piece, std::vector<int64_t>* ids) const;

  std::vector<std::string> tokens_;
  std::map<Pair, int64_t> merged_;  // two neighbours and their token
};

}  // namespace gavel::models

#endif  // GAVEL_MODELS_BYTE_PAIR_ENCODING_H_
