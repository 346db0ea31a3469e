// An allocation as it is written: to the journal at every solve, and to
// snapshots. Units with equal shares have one row, and jobs that follow each
// other with equal shares one entry: 10,000 jobs of a few kinds take some tens
// of kilobytes, alike ones some bytes. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ALLOCATION_ROWS_H_
#define GAVEL_COORDINATOR_ENGINE_ALLOCATION_ROWS_H_

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "coordinator/policy/policy.h"
#include "core/fields.h"
#include "core/share_unit.h"

namespace gavel {

struct AllocationRows {
  uint64_t columns = 0;
  // As older coordinators wrote it: `shares` [units x columns]. Empty where the
  // next ones say it.
  std::vector<ShareUnit> units;
  // [rows x columns], each row once, in the order of the units.
  std::vector<double> shares;
  // Three numbers an entry, ascending: how far its first job is behind the last
  // one of the entry before, how many jobs that follow each other, their row.
  std::vector<uint64_t> alone;
  // Three numbers a pair: both jobs, and the row.
  std::vector<uint64_t> pairs;
};

auto Fields(As<AllocationRows> auto& r) {
  return std::tie(r.columns, r.units, r.shares, r.alone, r.pairs);
}

// The same for the same shares, bit for bit, however the allocation keeps them.
AllocationRows ToAllocationRows(const Allocation& allocation);

// Jobs, or pairs of jobs, ascending.
bool AreUnits(const std::vector<ShareUnit>& units);

// Of `alone` and `pairs`. nullopt: they do not fit each other, or name more
// units than kAllocationUnitsMax.
inline constexpr uint64_t kAllocationUnitsMax = uint64_t{1} << 22;
std::optional<Allocation> FromAllocationRows(const AllocationRows& rows);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ALLOCATION_ROWS_H_
