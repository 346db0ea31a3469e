#include "coordinator/engine/rounds/allocation_table.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace gavel::engine {

bool AllocationTable::IsAllocated(const Job& job) const {
  if (result_.is_assignment) return job.target_share > 0;
  return options_.reset_interval_s > 0 || result_.allocation.Contains(job.id);
}

std::span<const double> AllocationTable::Allocated(
    const ShareUnit& unit) const {
  const std::optional<size_t> position = result_.allocation.Find(unit);
  if (!position.has_value()) return {};
  const std::span<const double> row = result_.allocation.RowAt(*position);
  return IsShare(row) ? row : std::span<const double>();
}

uint32_t AllocationTable::Chosen(const Job& job) const {
  return job.chosen < cluster_.types().size() ? job.chosen : kNoIndex;
}

uint32_t AllocationTable::Chosen(const ShareUnit& unit) const {
  if (!unit.packed()) {
    const Job* job = jobs_.Find(unit.job);
    return job == nullptr ? kNoIndex : Chosen(*job);
  }
  const auto found =
      std::lower_bound(result_.assignment.begin(), result_.assignment.end(),
                       unit, [](const TypeAssignment& a, const ShareUnit& key) {
                         return a.unit < key;
                       });
  return found != result_.assignment.end() && found->unit == unit &&
                 found->type < cluster_.types().size()
             ? static_cast<uint32_t>(found->type)
             : kNoIndex;
}

void AllocationTable::NoteChosen(std::span<const TypeAssignment> entries) {
  for (const TypeAssignment& entry : entries) {
    Job* job = entry.unit.packed() ? nullptr : jobs_.Find(entry.unit.job);
    if (job != nullptr) job->chosen = static_cast<uint32_t>(entry.type);
  }
}

bool AllocationTable::HasShare(const ShareUnit& unit) const {
  return !Allocated(unit).empty() || Chosen(unit) != kNoIndex;
}

void AllocationTable::Replace(const PolicyResult& result) {
  for (const TypeAssignment& entry : result_.assignment) {
    if (Job* job = jobs_.Find(entry.unit.job)) job->chosen = kNoIndex;
  }
  result_ = result;
  std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  NoteChosen(result_.assignment);
}

void AllocationTable::Succeed(const PolicyResult& result,
                              std::vector<TypeAssignment> assignment) {
  assert(result.is_assignment && result_.is_assignment);
  result_ = result;
  if (!assignment.empty()) result_.assignment = std::move(assignment);
}

void AllocationTable::Rebuild() {
  // Older snapshots have assignments as they came.
  if (result_.is_assignment) {
    std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  }
  NoteChosen(result_.assignment);
}

}  // namespace gavel::engine
