#include "core/retention.h"

#include <algorithm>
#include <set>

namespace gavel {

std::optional<BestBy> ParseBestBy(std::string_view text) {
  if (text.empty()) return BestBy{};
  const std::string_view way = text.substr(0, text.find(':'));
  const std::string_view scalar =
      text.substr(std::min(way.size() + 1, text.size()));
  if ((way != "min" && way != "max") || scalar.empty()) return std::nullopt;
  return BestBy{std::string(scalar), way == "max"};
}

std::vector<Generation> GenerationsToPreserve(
    std::span<const ScoredGeneration> existing, uint64_t every_steps,
    bool highest_is_best) {
  std::vector<ScoredGeneration> all(existing.begin(), existing.end());
  std::ranges::stable_sort(all, {}, &ScoredGeneration::generation);
  std::vector<Generation> preserved;
  std::set<uint64_t> begun;  // multiples of every_steps
  const ScoredGeneration* best = nullptr;
  for (const ScoredGeneration& one : all) {
    const uint64_t multiple =
        every_steps == 0 ? 0 : one.generation.step / every_steps;
    if (multiple > 0 && begun.insert(multiple).second) {
      preserved.push_back(one.generation);
    }
    if (!one.score) continue;
    const bool better =
        best == nullptr || (highest_is_best ? *one.score > *best->score
                                            : *one.score < *best->score);
    if (better) best = &one;
  }
  if (best != nullptr) preserved.push_back(best->generation);
  return preserved;
}

}  // namespace gavel
