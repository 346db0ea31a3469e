#include "models/bleu.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <vector>

namespace gavel::models {
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
