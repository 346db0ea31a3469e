// Which checkpoints stay beside the newest ones, without touching a disk.
// runtime/checkpoint and the iterator use it; values and pure functions,
// thread-safe.
#ifndef GAVEL_CORE_RETENTION_H_
#define GAVEL_CORE_RETENTION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/generation.h"

namespace gavel {

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

#endif  // GAVEL_CORE_RETENTION_H_
