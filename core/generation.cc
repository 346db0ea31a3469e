#include "core/generation.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {

namespace {

constexpr std::string_view kPrefix = "generation-";

}  // namespace

std::string GenerationName(Generation generation) {
  return absl::StrFormat("%s%012d-%012d", ToAbsl(kPrefix), generation.epoch,
                         generation.step);
}

std::optional<Generation> ParseGenerationName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view numbers = name.substr(kPrefix.size());
  const size_t dash = numbers.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  Generation generation;
  if (!absl::SimpleAtoi(ToAbsl(numbers.substr(0, dash)), &generation.epoch) ||
      !absl::SimpleAtoi(ToAbsl(numbers.substr(dash + 1)), &generation.step)) {
    return std::nullopt;
  }
  // Numbers in another width, with a sign or with blanks are not ours.
  if (GenerationName(generation) != name) return std::nullopt;
  return generation;
}

std::vector<Generation> GenerationsToDelete(
    std::span<const Generation> existing, Generation committed, int keep_last) {
  assert(keep_last >= 2);
  std::vector<Generation> all(existing.begin(), existing.end());
  all.push_back(committed);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const size_t kept = std::min(all.size(), static_cast<size_t>(keep_last));
  all.resize(all.size() - kept);
  std::erase_if(all, [committed](Generation generation) {
    return generation >= committed;
  });
  return all;
}

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
    if (!one.score || std::isnan(*one.score)) continue;
    const bool better =
        best == nullptr || (highest_is_best ? *one.score > *best->score
                                            : *one.score < *best->score);
    if (better) best = &one;
  }
  if (best != nullptr) preserved.push_back(best->generation);
  return preserved;
}

}  // namespace gavel
