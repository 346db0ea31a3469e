// Names and order of checkpoints ("generations"), without touching a disk.
// runtime/checkpoint and the lease machine use it; values, thread-safe.
// Design section 6: latest is by (epoch, step), never by time.
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

// "generation-000000000007-000000001200": fixed width, so that names sort as
// generations do.
std::string GenerationName(Generation generation);

// The inverse of GenerationName; nothing else is accepted.
std::optional<Generation> ParseGenerationName(std::string_view name);

// Which of `existing` may be deleted once `committed` is durable: all but the
// `keep_last` highest, and never one higher than `committed` (who is late must
// not delete what was written since: the highest may be damaged).
// Requires keep_last >= 2.
std::vector<Generation> GenerationsToDelete(
    std::span<const Generation> existing, Generation committed, int keep_last);

}  // namespace gavel

#endif  // GAVEL_CORE_GENERATION_H_
