#include "coordinator/mechanism/round_table.h"

#include <algorithm>
#include <numeric>

#include "coordinator/mechanism/placement.h"
#include "core/ids.h"

namespace gavel {
namespace {

// Indices of the units, ascending by ShareUnit; equal ones as they came.
std::vector<uint32_t> Ascending(const std::vector<RoundUnit>& units) {
  std::vector<uint32_t> order(units.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [&](uint32_t a, uint32_t b) {
    return units[a].unit < units[b].unit;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  return order;
}

// Every job of the units once, ascending.
std::vector<JobId> JobsOf(const std::vector<RoundUnit>& units,
                          const std::vector<uint32_t>& order) {
  std::vector<JobId> jobs;
  jobs.reserve(units.size());
  bool ascending = true;
  const auto add = [&](JobId job) {
    if (!jobs.empty() && jobs.back() == job) return;
    ascending = ascending && (jobs.empty() || jobs.back() < job);
    jobs.push_back(job);
  };
  for (const uint32_t u : order) {
    add(units[u].unit.job);
    if (units[u].unit.packed()) add(units[u].unit.partner);
  }
  if (ascending) return jobs;
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

}  // namespace

RoundTable::RoundTable(const Cluster& the_cluster,
                       const std::vector<RoundUnit>& the_units)
    : cluster(the_cluster),
      units(the_units),
      rows(the_units.size()),
      order(Ascending(the_units)) {
  const std::vector<JobId> ids = JobsOf(units, order);
  jobs = ids.size();
  size_t job = 0;  // of the last unit: they ascend
  for (uint32_t position = 0; position < order.size(); ++position) {
    const RoundUnit& unit = units[order[position]];
    while (ids[job] != unit.unit.job) ++job;
    RoundRow& row = rows[order[position]];
    row.position = position;
    row.job = row.partner = static_cast<uint32_t>(job);
    if (unit.unit.packed()) {
      packed = true;
      row.partner = static_cast<uint32_t>(
          std::lower_bound(ids.begin(), ids.end(), unit.unit.partner) -
          ids.begin());
    }
    const std::optional<size_t> held = TypeHeld(cluster, unit);
    if (held.has_value()) row.held = static_cast<uint32_t>(*held);
  }
}

}  // namespace gavel
