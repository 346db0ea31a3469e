#include "coordinator/engine/allocation_rows.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace gavel {
namespace {

constexpr size_t kNumbersPerEntry = 3;

// The bits: 0 and -0 are two rows.
std::string_view BytesOf(std::span<const double> row) {
  return {reinterpret_cast<const char*>(row.data()), row.size_bytes()};
}

// Where `rows` says of units alone; false: it can't be.
bool AddAlone(const AllocationRows& rows, uint64_t classes,
              std::vector<std::pair<ShareUnit, uint32_t>>* out) {
  uint64_t last = 0;
  for (size_t i = 0; i < rows.alone.size(); i += kNumbersPerEntry) {
    const uint64_t gap = rows.alone[i];
    const uint64_t count = rows.alone[i + 1];
    const uint64_t row = rows.alone[i + 2];
    if (gap == 0 || count == 0 || row >= classes) return false;
    if (count > kAllocationUnitsMax - out->size()) return false;
    const uint64_t room = ~uint64_t{0} - last;
    if (gap > room || count - 1 > room - gap) return false;
    for (uint64_t job = last + gap; job < last + gap + count; ++job) {
      out->push_back({{JobId(job), JobId()}, static_cast<uint32_t>(row)});
    }
    last += gap + count - 1;
  }
  return true;
}

}  // namespace

AllocationRows ToAllocationRows(const Allocation& allocation) {
  AllocationRows rows;
  rows.columns = allocation.columns();
  if (rows.columns == 0) return rows;
  absl::flat_hash_map<std::string_view, uint64_t> row_of;
  uint64_t last = 0;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const ShareUnit& unit = allocation.units()[u];
    const std::span<const double> shares = allocation.RowAt(u);
    const auto [found, is_new] =
        row_of.try_emplace(BytesOf(shares), row_of.size());
    const uint64_t row = found->second;
    if (is_new) {
      rows.shares.insert(rows.shares.end(), shares.begin(), shares.end());
    }
    const uint64_t job = unit.job.value();
    if (unit.packed()) {
      rows.pairs.insert(rows.pairs.end(), {job, unit.partner.value(), row});
    } else if (!rows.alone.empty() && job == last + 1 &&
               rows.alone.back() == row) {
      ++rows.alone[rows.alone.size() - 2];
      last = job;
    } else {
      rows.alone.insert(rows.alone.end(), {job - last, 1, row});
      last = job;
    }
  }
  return rows;
}

bool AreUnits(const std::vector<ShareUnit>& units) {
  return std::ranges::adjacent_find(units, std::greater_equal<>()) ==
             units.end() &&
         (units.empty() || units.front().job.valid());
}

std::optional<Allocation> FromAllocationRows(const AllocationRows& rows) {
  if (!rows.units.empty() || rows.columns == 0 ||
      rows.shares.size() % rows.columns != 0 ||
      rows.alone.size() % kNumbersPerEntry != 0 ||
      rows.pairs.size() % kNumbersPerEntry != 0) {
    return std::nullopt;
  }
  const uint64_t classes = rows.shares.size() / rows.columns;
  std::vector<std::pair<ShareUnit, uint32_t>> units;
  if (!AddAlone(rows, classes, &units)) return std::nullopt;
  for (size_t i = 0; i < rows.pairs.size(); i += kNumbersPerEntry) {
    if (rows.pairs[i + 1] == 0 || rows.pairs[i + 2] >= classes) {
      return std::nullopt;
    }
    units.push_back({{JobId(rows.pairs[i]), JobId(rows.pairs[i + 1])},
                     static_cast<uint32_t>(rows.pairs[i + 2])});
  }
  if (!rows.pairs.empty()) std::ranges::sort(units);
  std::vector<ShareUnit> ordered;
  std::vector<uint32_t> class_of;
  ordered.reserve(units.size());
  class_of.reserve(units.size());
  for (const auto& [unit, row] : units) {
    ordered.push_back(unit);
    class_of.push_back(row);
  }
  if (!AreUnits(ordered)) return std::nullopt;
  return Allocation::FromClasses(std::move(ordered), std::move(class_of),
                                 rows.columns, rows.shares);
}

}  // namespace gavel
