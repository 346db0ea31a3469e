// The units of a round as the greedy choice and the placement see them: dense
// indices instead of ids. Used inside the round mechanism only; a value.
#ifndef GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_
#define GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"

namespace gavel {

// An index that means "none": of a type, or of a job.
inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A share below this is dust of the solver: a unit that has received nothing
// would be given a whole round for it.
inline constexpr double kShareMin = 1e-9;

// Rows may end before the last type, and what isn't a number is nothing.
inline double At(const std::vector<double>& row, size_t type) {
  return type < row.size() && std::isfinite(row[type]) ? row[type] : 0.0;
}

struct RoundRow {
  uint32_t position = 0;  // in the order of units
  uint32_t job = 0;       // dense index of its job
  uint32_t partner = 0;   // of the other one; the same as `job` when alone
  uint32_t held = kNone;  // type of what it holds and may keep
};

struct RoundTable {
  // Borrows both, which must outlive it and not change.
  RoundTable(const Cluster& cluster, const std::vector<RoundUnit>& units);

  const Cluster& cluster;
  const std::vector<RoundUnit>& units;
  std::vector<RoundRow> rows;   // by unit
  std::vector<uint32_t> order;  // units ascending by ShareUnit
  size_t jobs = 0;              // dense indices are below it
  bool packed = false;          // there is a pair
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_ROUND_TABLE_H_
