#include "models/text_corpus.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <random>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"
#include "models/byte_pair_encoding.h"
#include "models/data_file.h"

namespace gavel::models {
namespace {

// Fewer than this, and neither part is worth a window.
constexpr int64_t kTokensMin = 100;
constexpr std::string_view kUnknown = "<unk>";
constexpr std::string_view kTextRemedy = "give a text file or a folder of them";

// The C locale's, whatever the host's.
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

std::vector<std::string> Words(std::string_view text) {
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

at::Tensor Ids(std::span<const std::string> tokens,
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
    const std::vector<std::string> tokens =
        options.token == TokenKind::kWord ? Words(text) : Characters(text);
    const auto train_tokens =
        std::span(tokens).first(train_part(tokens.size()));
    corpus.vocabulary_ = Vocabulary(train_tokens, options.count_min);
    corpus.train_ = Ids(train_tokens, corpus.vocabulary_);
    corpus.validation_ =
        Ids(std::span(tokens).subspan(train_tokens.size()), corpus.vocabulary_);
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
  // Of one kind all end alike.
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

}  // namespace gavel::models
