// Names and order of checkpoints ("generations"), without access to a disk.
// Used by runtime/checkpoint and the lease machine. The types are values, and
// the functions are thread-safe. The latest generation is the highest by
// (epoch, step), never the newest by time.
#ifndef GAVEL_CORE_GENERATION_H_
#define GAVEL_CORE_GENERATION_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gavel {

// One committed checkpoint: the lease epoch that it was written under and the
// number of steps done. Ordered by (epoch, step).
struct Generation {
  uint64_t epoch = 0;
  uint64_t step = 0;
  friend bool operator==(const Generation&, const Generation&) = default;
  friend auto operator<=>(const Generation&, const Generation&) = default;
};

// Returns, for instance, "generation-000000000007-000000001200". The width is
// fixed, so that names sort in the order of their generations.
std::string GenerationName(Generation generation);

// The inverse of GenerationName. Returns nullopt for any other name.
std::optional<Generation> ParseGenerationName(std::string_view name);

// Returns the generations of `existing` that may be deleted once `committed` is
// durable: those that are not among the `keep_last` highest and are lower than
// `committed`. A late worker must not delete generations that were written
// since then, because the highest one may be damaged. Requires keep_last >= 2.
std::vector<Generation> GenerationsToDelete(
    std::span<const Generation> existing, Generation committed, int keep_last);

// Which checkpoints stay beside the newest ones, without touching a disk.
// runtime/checkpoint and the iterator use it; values and pure functions,
// thread-safe.

// The generation with the lowest (or highest) value of a scalar that the job
// reports. An empty name: none.
struct BestBy {
  std::string scalar;
  bool highest = false;
};
// "min:loss" or "max:accuracy"; "" is none. Nothing for other texts.
std::optional<BestBy> ParseBestBy(std::string_view text);

struct ScoredGeneration {
  Generation generation;
  std::optional<double> score;  // the scalar of BestBy, where it is known
};

// Which of `existing` stay whatever GenerationsToDelete says: of each
// `every_steps` steps (0: none) the first at or after them, and the best; of
// equal ones the first, since a scalar is of some time before its generation.
std::vector<Generation> GenerationsToPreserve(
    std::span<const ScoredGeneration> existing, uint64_t every_steps,
    bool highest_is_best);

}  // namespace gavel

#endif  // GAVEL_CORE_GENERATION_H_
