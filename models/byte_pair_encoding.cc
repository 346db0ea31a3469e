#include "models/byte_pair_encoding.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <set>

namespace gavel::models {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// Longer pieces are cut, since the time to encode one grows with its square.
constexpr size_t kPieceBytesMax = 64;

enum class Kind { kSpace, kWord, kMark };

Kind KindOf(char byte) {
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return Kind::kSpace;
  const bool word = (byte >= 'a' && byte <= 'z') ||
                    (byte >= 'A' && byte <= 'Z') ||
                    (byte >= '0' && byte <= '9') || byte == '\'' ||
                    static_cast<unsigned char>(byte) > 127;
  return word ? Kind::kWord : Kind::kMark;
}

// The first piece of a text that is not empty.
std::string_view FirstPiece(std::string_view text) {
  size_t begin = 0;
  if (text.size() > 1 && text[0] == ' ' && KindOf(text[1]) != Kind::kSpace) {
    begin = 1;
  }
  const Kind kind = KindOf(text[begin]);
  size_t end = begin + 1;
  while (end < text.size() && end < kPieceBytesMax &&
         KindOf(text[end]) == kind) {
    ++end;
  }
  // The last space belongs to the word behind it.
  if (kind == Kind::kSpace && end < text.size() && end > begin + 1 &&
      text[end - 1] == ' ' && KindOf(text[end]) != Kind::kSpace) {
    --end;
  }
  return text.substr(0, end);
}

struct Word {
  std::vector<int64_t> ids;
  int64_t count = 0;
};

// The different pieces of a text, in order, and how often each occurs.
std::vector<Word> WordsOf(std::string_view text) {
  std::map<std::string_view, int64_t> counts;
  while (!text.empty()) {
    const std::string_view piece = FirstPiece(text);
    ++counts[piece];
    text.remove_prefix(piece.size());
  }
  std::vector<Word> words;
  for (const auto& [piece, count] : counts) {
    Word word{.ids = {}, .count = count};
    for (const char byte : piece) {
      word.ids.push_back(static_cast<unsigned char>(byte));
    }
    words.push_back(std::move(word));
  }
  return words;
}

void Merge(Pair pair, int64_t merged, std::vector<int64_t>* ids) {
  size_t to = 0;
  for (size_t from = 0; from < ids->size(); ++from, ++to) {
    const bool here = from + 1 < ids->size() && (*ids)[from] == pair.first &&
                      (*ids)[from + 1] == pair.second;
    (*ids)[to] = here ? merged : (*ids)[from];
    if (here) ++from;
  }
  ids->resize(to);
}

// How often each pair of neighbours occurs, kept up to date over merges.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    std::set<Pair> changed;
    for (size_t index = 0; index < words_.size(); ++index) {
      Count(index, words_[index].count, &changed);
    }
    Announce(changed);
  }

  // The most frequent pair, of several the first; false: none occurs twice.
  bool Best(Pair* pair) {
    while (!queue_.empty()) {
      const auto [count, negated] = queue_.top();
      *pair = {-negated.first, -negated.second};
      const int64_t now = pairs_[*pair].count;
      if (now < 2) {
        queue_.pop();
      } else if (now == count) {
        return true;
      } else {  // it has become rarer since
        queue_.pop();
        queue_.push({now, negated});
      }
    }
    return false;
  }

  void Replace(Pair pair, int64_t merged) {
    std::set<Pair> changed;
    const std::set<size_t> words = std::move(pairs_[pair].words);
    for (const size_t index : words) {
      Count(index, -words_[index].count, &changed);
      Merge(pair, merged, &words_[index].ids);
      Count(index, words_[index].count, &changed);
    }
    pairs_.erase(pair);
    changed.erase(pair);
    Announce(changed);
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::set<size_t> words;  // where it occurs, or has occurred
  };

  void Count(size_t index, int64_t count, std::set<Pair>* changed) {
    const std::vector<int64_t>& ids = words_[index].ids;
    for (size_t at = 0; at + 1 < ids.size(); ++at) {
      const Pair pair{ids[at], ids[at + 1]};
      Entry& entry = pairs_[pair];
      entry.count += count;
      if (count > 0) entry.words.insert(index);
      changed->insert(pair);
    }
  }

  void Announce(const std::set<Pair>& changed) {
    for (const Pair& pair : changed) {
      queue_.push({pairs_[pair].count, {-pair.first, -pair.second}});
    }
  }

  std::vector<Word> words_;
  std::map<Pair, Entry> pairs_;
  // Never below the present count; ids negated, so that the first pair wins.
  std::priority_queue<std::pair<int64_t, Pair>> queue_;
};

}  // namespace

BytePairEncoding::BytePairEncoding() {
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    tokens_.emplace_back(1, static_cast<char>(byte));
  }
}

BytePairEncoding BytePairEncoding::Learn(std::string_view text, int64_t size) {
  BytePairEncoding encoding;
  if (size <= kBytes) return encoding;
  PairCounts counts(WordsOf(text));
  Pair pair;
  while (encoding.size() < size && counts.Best(&pair)) {
    const int64_t id = encoding.size();
    counts.Replace(pair, id);
    encoding.merged_[pair] = id;
    encoding.tokens_.push_back(encoding.tokens_[pair.first] +
                               encoding.tokens_[pair.second]);
  }
  return encoding;
}

void BytePairEncoding::EncodePiece(std::string_view piece,
                                   std::vector<int64_t>* ids) const {
  std::vector<int64_t> part;
  for (const char byte : piece) {
    part.push_back(static_cast<unsigned char>(byte));
  }
  while (true) {
    // What was learnt first is merged first.
    auto first = merged_.end();
    for (size_t at = 0; at + 1 < part.size(); ++at) {
      const auto found = merged_.find({part[at], part[at + 1]});
      if (found != merged_.end() &&
          (first == merged_.end() || found->second < first->second)) {
        first = found;
      }
    }
    if (first == merged_.end()) break;
    Merge(first->first, first->second, &part);
  }
  ids->insert(ids->end(), part.begin(), part.end());
}

std::vector<int64_t> BytePairEncoding::Encode(std::string_view text) const {
  std::vector<int64_t> ids;
  std::map<std::string_view, std::vector<int64_t>> known;
  while (!text.empty()) {
    const std::string_view piece = FirstPiece(text);
    const auto [entry, is_new] = known.try_emplace(piece);
    if (is_new) EncodePiece(piece, &entry->second);
    ids.insert(ids.end(), entry->second.begin(), entry->second.end());
    text.remove_prefix(piece.size());
  }
  return ids;
}

std::string BytePairEncoding::Decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    if (id >= 0 && id < size()) text += tokens_[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace gavel::models
