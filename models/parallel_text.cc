#include "models/parallel_text.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "absl/status/status.h"
#include "core/status.h"
#include "models/data_file.h"

namespace gavel::models {
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

BytePairEncoding Learn(std::span<const LinePair> lines, int64_t vocabulary) {
  std::string text;
  for (const auto& [source, target] : lines) {
    text.append(source).append("\n").append(target).append("\n");
  }
  return BytePairEncoding::Learn(text, vocabulary - kMarks);
}

std::vector<int64_t> Ids(const BytePairEncoding& encoding,
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
      Learn(std::span(paired).first(train_lines), options.vocabulary));
  std::vector<SentencePair> pairs;
  for (size_t index = 0; index < paired.size(); ++index) {
    SentencePair pair{Ids(text.encoding_, paired[index].first),
                      Ids(text.encoding_, paired[index].second)};
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

}  // namespace gavel::models
