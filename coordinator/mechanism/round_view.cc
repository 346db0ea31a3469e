#include "coordinator/mechanism/round_view.h"

#include <numeric>
#include <utility>

namespace gavel {

RoundView::RoundView(const Cluster& cluster, const RoundTable& table,
                     std::vector<int> capacity)
    : cluster_(cluster),
      table_(table),
      capacity_(std::move(capacity)),
      types_(std::min(cluster.types().size(), table.types())),
      type_of_(cluster.usable_types()),
      plain_(table.ascending() && !table.packed()) {
  static_assert(Cluster::kUnusable == kNoIndex);
  held_.reserve(table.held().size());
  for (const RoundTable::Held& held : table.held()) {
    held_.push_back(TypeHeld(held));
  }
  if (plain_) {
    jobs_ = table.size();
  } else {
    Number();
  }
}

uint32_t RoundView::TypeHeld(const RoundTable::Held& held) const {
  const std::vector<AcceleratorId>& ids = held.accelerators;
  const int scale_factor = table_.scale_factor(held.unit);
  if (scale_factor < 1 || ids.size() != static_cast<size_t>(scale_factor)) {
    return kNoIndex;
  }
  const uint32_t type = TypeOf(ids.front());
  const bool one_type =
      std::all_of(ids.begin(), ids.end(),
                  [&](AcceleratorId id) { return TypeOf(id) == type; });
  return one_type ? type : kNoIndex;
}

void RoundView::Number() {
  order_.resize(table_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  if (!table_.ascending()) {
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      return table_.unit(a) < table_.unit(b);
    });
  }
  const std::vector<JobId> ids = JobsInOrder();
  jobs_ = ids.size();
  rows_.resize(table_.size());
  size_t job = 0;  // of the last unit: they ascend
  for (uint32_t position = 0; position < order_.size(); ++position) {
    const ShareUnit& unit = table_.unit(order_[position]);
    while (ids[job] != unit.job) ++job;
    Row& row = rows_[order_[position]];
    row.position = position;
    row.job = row.partner = static_cast<uint32_t>(job);
    if (!unit.packed()) continue;
    row.partner = static_cast<uint32_t>(
        std::lower_bound(ids.begin(), ids.end(), unit.partner) - ids.begin());
  }
}

// Every job of the units once, ascending.
std::vector<JobId> RoundView::JobsInOrder() const {
  std::vector<JobId> jobs;
  jobs.reserve(table_.size());
  bool ascending = true;
  const auto add = [&](JobId job) {
    if (!jobs.empty() && jobs.back() == job) return;
    ascending = ascending && (jobs.empty() || jobs.back() < job);
    jobs.push_back(job);
  };
  for (const uint32_t u : order_) {
    add(table_.unit(u).job);
    if (table_.unit(u).packed()) add(table_.unit(u).partner);
  }
  if (ascending) return jobs;
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

}  // namespace gavel
