#include "models/text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::models {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// Longer pieces are cut, since the time to encode one grows with its square.
constexpr size_t kPieceBytesMax = 64;

enum class ByteKind { kSpace, kWord, kMark };

ByteKind ByteKindOf(char byte) {
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return ByteKind::kSpace;
  const bool word = (byte >= 'a' && byte <= 'z') ||
                    (byte >= 'A' && byte <= 'Z') ||
                    (byte >= '0' && byte <= '9') || byte == '\'' ||
                    static_cast<unsigned char>(byte) > 127;
  return word ? ByteKind::kWord : ByteKind::kMark;
}

// The first piece of a text that is not empty.
std::string_view FirstPiece(std::string_view text) {
  size_t begin = 0;
  if (text.size() > 1 && text[0] == ' ' &&
      ByteKindOf(text[1]) != ByteKind::kSpace) {
    begin = 1;
  }
  const ByteKind kind = ByteKindOf(text[begin]);
  size_t end = begin + 1;
  while (end < text.size() && end < kPieceBytesMax &&
         ByteKindOf(text[end]) == kind) {
    ++end;
  }
  // The last space belongs to the word behind it.
  if (kind == ByteKind::kSpace && end < text.size() && end > begin + 1 &&
      text[end - 1] == ' ' && ByteKindOf(text[end]) != ByteKind::kSpace) {
    --end;
  }
  return text.substr(0, end);
}

struct CountedPiece {
  std::vector<int64_t> ids;
  int64_t count = 0;
};

// The different pieces of a text, in order, and how often each occurs.
std::vector<CountedPiece> CountPieces(std::string_view text) {
  std::map<std::string_view, int64_t> counts;
  while (!text.empty()) {
    const std::string_view piece = FirstPiece(text);
    ++counts[piece];
    text.remove_prefix(piece.size());
  }
  std::vector<CountedPiece> pieces;
  for (const auto& [piece, count] : counts) {
    CountedPiece counted{.ids = {}, .count = count};
    for (const char byte : piece) {
      counted.ids.push_back(static_cast<unsigned char>(byte));
    }
    pieces.push_back(std::move(counted));
  }
  return pieces;
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
  explicit PairCounts(std::vector<CountedPiece> pieces)
      : pieces_(std::move(pieces)) {
    std::set<Pair> changed;
    for (size_t index = 0; index < pieces_.size(); ++index) {
      Count(index, pieces_[index].count, &changed);
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
    const std::set<size_t> pieces = std::move(pairs_[pair].pieces);
    for (const size_t index : pieces) {
      Count(index, -pieces_[index].count, &changed);
      Merge(pair, merged, &pieces_[index].ids);
      Count(index, pieces_[index].count, &changed);
    }
    pairs_.erase(pair);
    changed.erase(pair);
    Announce(changed);
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::set<size_t> pieces;  // where it occurs, or has occurred
  };

  void Count(size_t index, int64_t count, std::set<Pair>* changed) {
    const std::vector<int64_t>& ids = pieces_[index].ids;
    for (size_t at = 0; at + 1 < ids.size(); ++at) {
      const Pair pair{ids[at], ids[at + 1]};
      Entry& entry = pairs_[pair];
      entry.count += count;
      if (count > 0) entry.pieces.insert(index);
      changed->insert(pair);
    }
  }

  void Announce(const std::set<Pair>& changed) {
    for (const Pair& pair : changed) {
      queue_.push({pairs_[pair].count, {-pair.first, -pair.second}});
    }
  }

  std::vector<CountedPiece> pieces_;
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
  PairCounts counts(CountPieces(text));
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
    // The merge that was learnt first is applied first.
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

namespace {

// A text of fewer tokens is too short for windows in both parts.
constexpr int64_t kTokensMin = 100;
constexpr std::string_view kUnknown = "<unk>";
constexpr std::string_view kTextRemedy = "give a text file or a folder of them";

// White space in the C locale, whatever the host's locale is.
bool IsSpace(char byte) {
  return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

bool IsWord(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || static_cast<unsigned char>(byte) > 127;
}

char Lower(char byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a')
                                    : byte;
}

std::vector<std::string> LowerCaseWords(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  for (const char byte : text) {
    if (IsWord(byte)) {
      if (!in_word) words.emplace_back();
      words.back().push_back(Lower(byte));
    } else if (!IsSpace(byte)) {
      words.emplace_back(1, byte);
    }
    in_word = IsWord(byte);
  }
  return words;
}

std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> characters;
  bool in_space = false;
  for (const char byte : text) {
    if (!IsSpace(byte)) {
      characters.emplace_back(1, byte);
    } else if (!in_space) {
      characters.emplace_back(" ");
    }
    in_space = IsSpace(byte);
  }
  return characters;
}

// Sorted by count, then text, so that no order of a hash map shows.
std::vector<std::string> Vocabulary(std::span<const std::string> tokens,
                                    int64_t count_min) {
  std::unordered_map<std::string_view, int64_t> counts;
  for (const std::string& token : tokens) ++counts[token];
  std::vector<std::pair<int64_t, std::string_view>> ranked;
  for (const auto& [token, count] : counts) {
    if (count >= count_min) ranked.emplace_back(-count, token);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> vocabulary{std::string(kUnknown)};
  for (const auto& entry : ranked) vocabulary.emplace_back(entry.second);
  return vocabulary;
}

at::Tensor WordIds(std::span<const std::string> tokens,
                   std::span<const std::string> vocabulary) {
  std::unordered_map<std::string_view, int64_t> id_of;
  for (size_t id = 1; id < vocabulary.size(); ++id) {
    id_of[vocabulary[id]] = static_cast<int64_t>(id);
  }
  std::vector<int64_t> ids;
  ids.reserve(tokens.size());
  for (const std::string& token : tokens) {
    const auto found = id_of.find(token);
    ids.push_back(found == id_of.end() ? 0 : found->second);
  }
  return at::tensor(ids, at::kLong);
}

// The files that Read() joins, in order.
std::vector<std::string> TextFiles(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator entry(path, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->symlink_status(error).type() ==
        std::filesystem::file_type::regular) {
      files.push_back(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<TextCorpus> TextCorpus::FromText(
    std::string_view text, const TextCorpusOptions& options) {
  const auto train_part = [&options](size_t size) {
    return static_cast<size_t>(static_cast<double>(size) *
                               (1 - options.validation_fraction));
  };
  TextCorpus corpus;
  if (options.token == TokenKind::kBytePair) {
    const auto train_text = text.substr(0, train_part(text.size()));
    const auto encoding =
        BytePairEncoding::Learn(train_text, options.byte_pairs);
    corpus.vocabulary_ = encoding.tokens();
    corpus.train_ = at::tensor(encoding.Encode(train_text), at::kLong);
    corpus.validation_ =
        at::tensor(encoding.Encode(text.substr(train_text.size())), at::kLong);
  } else {
    const std::vector<std::string> tokens = options.token == TokenKind::kWord
                                                ? LowerCaseWords(text)
                                                : Characters(text);
    const auto train_tokens =
        std::span(tokens).first(train_part(tokens.size()));
    corpus.vocabulary_ = Vocabulary(train_tokens, options.count_min);
    corpus.train_ = WordIds(train_tokens, corpus.vocabulary_);
    corpus.validation_ = WordIds(std::span(tokens).subspan(train_tokens.size()),
                                 corpus.vocabulary_);
  }
  const int64_t train = corpus.train_.size(0);
  const int64_t held_out = corpus.validation_.size(0);
  if (train + held_out < kTokensMin) {
    return absl::InvalidArgumentError(StrCat("has ", train + held_out,
                                             " tokens and needs ", kTokensMin,
                                             " at least; ", kTextRemedy));
  }
  if (std::min(train, held_out) <= options.window) {
    return absl::InvalidArgumentError(
        StrCat("has ", train, " tokens to train on and ", held_out,
               " to hold out, too few for windows of ", options.window,
               "; make them shorter, or give more text"));
  }
  return corpus;
}

absl::StatusOr<TextCorpus> TextCorpus::Read(const std::string& path,
                                            const TextCorpusOptions& options) {
  std::string text;
  for (const std::string& file : TextFiles(path)) {
    GAVEL_ASSIGN_OR_RETURN(const std::string part,
                           ReadDataFile(file, kTextRemedy));
    text += part;
    text += '\n';
  }
  absl::StatusOr<TextCorpus> corpus = FromText(text, options);
  if (!corpus.ok()) return Annotate(corpus.status(), path);
  return corpus;
}

TextWindows::TextWindows(at::Tensor tokens, int64_t length) {
  const int64_t used = (tokens.size(0) - 1) / length * length;
  inputs_ = tokens.narrow(0, 0, used).view({-1, length});
  targets_ = tokens.narrow(0, 1, used).view({-1, length});
}

Example TextWindows::get(size_t index) const {
  const auto row = static_cast<int64_t>(index);
  return {inputs_[row], targets_[row]};
}

std::string MadeUpText(int64_t sentences, uint64_t seed) {
  constexpr uint64_t kNouns = 60;
  constexpr uint64_t kChoices = 3;
  constexpr std::array<std::string_view, 10> kSyllables = {
      "ba", "do", "fe", "gi", "ku", "la", "mo", "ne", "ri", "tu"};
  std::mt19937_64 engine(seed);
  // All words of one kind have the same ending.
  const auto word = [&](uint64_t number, std::string_view ending) {
    return StrCat(kSyllables[number / 100 % 10], kSyllables[number / 10 % 10],
                  kSyllables[number % 10], ending);
  };
  std::string text;
  for (int64_t sentence = 0; sentence < sentences; ++sentence) {
    for (const bool subject : {true, false}) {
      const uint64_t noun = engine() % kNouns;
      const uint64_t adjective = kChoices * noun + engine() % kChoices;
      StrAppend(&text, "the ", word(adjective, "s"), " ", word(noun, "n"));
      if (!subject) break;
      const uint64_t verb = kChoices * noun + engine() % kChoices;
      StrAppend(&text, " ", word(verb, "r"), " ");
    }
    text += ".\n";
  }
  return text;
}

double UnigramPerplexity(const TextCorpus& corpus) {
  const auto vocabulary = static_cast<int64_t>(corpus.vocabulary().size());
  const at::Tensor counts =
      at::bincount(corpus.train(), {}, vocabulary).to(at::kDouble).add_(1);
  const at::Tensor log_probabilities = counts.div(counts.sum()).log();
  const at::Tensor of_validation =
      log_probabilities.index_select(0, corpus.validation());
  return std::exp(-of_validation.mean().item<double>());
}

namespace {

constexpr std::string_view kPairsRemedy =
    "give two text files, each line of one translating that of the other";

using LinePair = std::pair<std::string_view, std::string_view>;

// Takes the first line, without its end, from the text.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

absl::Status Unpaired(std::string_view name, int64_t line,
                      std::string_view why) {
  return absl::InvalidArgumentError(
      StrCat(name, ":", line, ": ", why, "; ", kPairsRemedy));
}

absl::StatusOr<std::vector<LinePair>> Paired(const ParallelLines& lines) {
  std::vector<LinePair> pairs;
  std::string_view source = lines.source;
  std::string_view target = lines.target;
  for (int64_t line = 1; !source.empty() || !target.empty(); ++line) {
    if (source.empty() || target.empty()) {
      return Unpaired(source.empty() ? lines.target_name : lines.source_name,
                      line, "the other file has no such line");
    }
    const std::string_view from = TakeLine(&source);
    const std::string_view to = TakeLine(&target);
    if (from.empty() != to.empty()) {
      return Unpaired(from.empty() ? lines.source_name : lines.target_name,
                      line, "is empty, but not in the other file");
    }
    if (!from.empty()) pairs.emplace_back(from, to);
  }
  return pairs;
}

BytePairEncoding LearnEncoding(std::span<const LinePair> lines,
                               int64_t vocabulary) {
  std::string text;
  for (const auto& [source, target] : lines) {
    text.append(source).append("\n").append(target).append("\n");
  }
  return BytePairEncoding::Learn(text, vocabulary - kMarks);
}

std::vector<int64_t> SentenceIds(const BytePairEncoding& encoding,
                                 std::string_view line) {
  std::vector<int64_t> ids = encoding.Encode(line);
  for (int64_t& id : ids) id += kMarks;
  return ids;
}

}  // namespace

absl::StatusOr<ParallelText> ParallelText::FromLines(
    const ParallelLines& lines, const ParallelTextOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<LinePair> paired, Paired(lines));
  const auto train_lines = static_cast<size_t>(
      static_cast<double>(paired.size()) * (1 - options.validation_fraction));
  ParallelText text(
      LearnEncoding(std::span(paired).first(train_lines), options.vocabulary));
  std::vector<SentencePair> pairs;
  for (size_t index = 0; index < paired.size(); ++index) {
    SentencePair pair{SentenceIds(text.encoding_, paired[index].first),
                      SentenceIds(text.encoding_, paired[index].second)};
    if (std::max(pair.source.size(), pair.target.size()) >
        static_cast<size_t>(options.length_max)) {
      ++text.left_out_;
      continue;
    }
    pairs.push_back(std::move(pair));
    if (index < train_lines) text.train_size_ = pairs.size();
  }
  if (text.train_size_ == 0 || text.train_size_ == pairs.size()) {
    return absl::InvalidArgumentError(
        StrCat(lines.source_name, ": has ", pairs.size(), " pairs of at most ",
               options.length_max,
               " tokens, too few to train on some and hold out others; ",
               kPairsRemedy));
  }
  text.pairs_ =
      std::make_shared<const std::vector<SentencePair>>(std::move(pairs));
  return text;
}

absl::StatusOr<ParallelText> ParallelText::Read(
    const std::string& source_path, const std::string& target_path,
    const ParallelTextOptions& options) {
  ParallelLines lines{.source = {},
                      .target = {},
                      .source_name = source_path,
                      .target_name = target_path};
  GAVEL_ASSIGN_OR_RETURN(lines.source, ReadDataFile(source_path, kPairsRemedy));
  GAVEL_ASSIGN_OR_RETURN(lines.target, ReadDataFile(target_path, kPairsRemedy));
  return FromLines(lines, options);
}

std::span<const SentencePair> ParallelText::train() const {
  return std::span(*pairs_).first(train_size_);
}

std::span<const SentencePair> ParallelText::validation() const {
  return std::span(*pairs_).subspan(train_size_);
}

std::string ParallelText::Decode(std::span<const int64_t> ids) const {
  std::vector<int64_t> text;
  for (const int64_t id : ids) {
    if (id == kEnd) break;
    if (id >= kMarks) text.push_back(id - kMarks);
  }
  return encoding_.Decode(text);
}

SentenceBatch PadBatch(std::span<const SentencePair> pairs, at::Device device) {
  size_t source_length = 0;
  size_t target_length = 0;
  for (const SentencePair& pair : pairs) {
    source_length = std::max(source_length, pair.source.size() + 1);
    target_length = std::max(target_length, pair.target.size() + 1);
  }
  const auto filled = [&](size_t length) {
    return at::full(
        {static_cast<int64_t>(pairs.size()), static_cast<int64_t>(length)},
        kPad, at::kLong);
  };
  SentenceBatch batch{filled(source_length), filled(target_length),
                      filled(target_length)};
  auto* source = batch.source.mutable_data_ptr<int64_t>();
  auto* target_in = batch.target_in.mutable_data_ptr<int64_t>();
  auto* target_out = batch.target_out.mutable_data_ptr<int64_t>();
  for (const SentencePair& pair : pairs) {
    *std::copy(pair.source.begin(), pair.source.end(), source) = kEnd;
    *target_in = kBegin;
    std::copy(pair.target.begin(), pair.target.end(), target_in + 1);
    *std::copy(pair.target.begin(), pair.target.end(), target_out) = kEnd;
    source += source_length;
    target_in += target_length;
    target_out += target_length;
  }
  return {batch.source.to(device), batch.target_in.to(device),
          batch.target_out.to(device)};
}

ParallelLines ReverseLanguage(int64_t lines, int64_t words_max, uint64_t seed) {
  constexpr std::string_view kConsonants = "bdfgklmnpr";
  constexpr std::string_view kVowels = "ao";
  std::mt19937_64 engine(seed);
  const auto below = [&engine](int64_t limit) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(limit));
  };
  ParallelLines text;
  for (int64_t line = 0; line < lines; ++line) {
    std::string source;
    std::string target;
    for (int64_t word = 3 + below(words_max - 2); word > 0; --word) {
      const std::string syllable{kConsonants[below(10)], kVowels[below(2)]};
      source += (source.empty() ? "" : " ") + syllable;
      target = syllable + (target.empty() ? "" : " ") + target;
    }
    text.source += source + "\n";
    text.target += target + "\n";
  }
  return text;
}

namespace {

constexpr size_t kOrderMax = 4;

std::vector<std::string> WordsOfLine(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

using Run = std::span<const std::string>;

struct RunBefore {
  bool operator()(Run a, Run b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

// How often each run of `order` words occurs.
std::map<Run, int64_t, RunBefore> Runs(Run words, size_t order) {
  std::map<Run, int64_t, RunBefore> runs;
  for (size_t at = 0; at + order <= words.size(); ++at) {
    ++runs[words.subspan(at, order)];
  }
  return runs;
}

// Section 2.1: a run counts at most as often as the reference has it.
int64_t ClippedMatches(Run candidate, Run reference, size_t order) {
  const auto of_reference = Runs(reference, order);
  int64_t matches = 0;
  for (const auto& [run, count] : Runs(candidate, order)) {
    const auto found = of_reference.find(run);
    if (found != of_reference.end()) matches += std::min(count, found->second);
  }
  return matches;
}

}  // namespace

double CorpusBleu(std::span<const std::string> candidates,
                  std::span<const std::string> references) {
  assert(candidates.size() == references.size());
  std::array<int64_t, kOrderMax> matches{};
  std::array<int64_t, kOrderMax> runs{};
  size_t candidate_length = 0;
  size_t reference_length = 0;
  for (size_t line = 0; line < candidates.size(); ++line) {
    const auto candidate = WordsOfLine(candidates[line]);
    const auto reference = WordsOfLine(references[line]);
    candidate_length += candidate.size();
    reference_length += reference.size();
    for (size_t order = 1; order <= kOrderMax; ++order) {
      matches[order - 1] += ClippedMatches(candidate, reference, order);
      if (candidate.size() >= order) {
        runs[order - 1] += static_cast<int64_t>(candidate.size() + 1 - order);
      }
    }
  }
  double log_precision = 0;
  for (size_t order = 0; order < kOrderMax; ++order) {
    if (matches[order] == 0) return 0;
    log_precision += std::log(static_cast<double>(matches[order]) /
                              static_cast<double>(runs[order])) /
                     kOrderMax;
  }
  const double ratio = static_cast<double>(reference_length) /
                       static_cast<double>(candidate_length);
  return std::exp(log_precision + std::min(0.0, 1 - ratio));
}

}  // namespace gavel::models
