#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "coordinator/policy/policy.h"

namespace gavel {

class Allocation::Form {
 public:
  Form(std::vector<ShareUnit> u, std::vector<uint32_t> of, size_t c,
       std::vector<double> s)
      : units(std::move(u)),
        class_of(std::move(of)),
        columns(c),
        shares(std::move(s)) {
    assert(std::is_sorted(units.begin(), units.end()));
    assert(class_of.empty() || class_of.size() == units.size());
    for (size_t i = 0; i < units.size(); ++i) {
      if (units[i].packed()) by_partner.emplace_back(units[i].partner, i);
    }
    std::sort(by_partner.begin(), by_partner.end());
  }

  // Calls `visit` with the position of each unit that holds `job`.
  template <class Visit>
  void ForEach(JobId job, Visit visit) const {
    auto unit =
        std::lower_bound(units.begin(), units.end(), ShareUnit{job, JobId()});
    for (; unit != units.end() && unit->job == job; ++unit) {
      visit(static_cast<size_t>(unit - units.begin()));
    }
    auto pair = std::lower_bound(by_partner.begin(), by_partner.end(),
                                 std::pair(job, size_t{0}));
    for (; pair != by_partner.end() && pair->first == job; ++pair) {
      visit(pair->second);
    }
  }

  std::span<const double> RowAt(size_t i) const {
    const size_t row = class_of.empty() ? i : class_of[i];
    return {shares.data() + row * columns, columns};
  }

  std::vector<ShareUnit> units;    // ascending
  std::vector<uint32_t> class_of;  // [units]; empty: each has its own row
  size_t columns = 0;
  std::vector<double> shares;  // [rows x columns] row-major
  // (partner, position) of the packed ones, ascending.
  std::vector<std::pair<JobId, size_t>> by_partner;
};

Allocation Allocation::FromRows(std::vector<ShareUnit> units, size_t columns,
                                std::vector<double> shares) {
  shares.resize(units.size() * columns, 0.0);
  return FromClasses(std::move(units), {}, columns, std::move(shares));
}

Allocation Allocation::FromClasses(std::vector<ShareUnit> units,
                                   std::vector<uint32_t> class_of,
                                   size_t columns, std::vector<double> shares) {
  Allocation allocation;
  allocation.form_ = std::make_shared<const Form>(
      std::move(units), std::move(class_of), columns, std::move(shares));
  return allocation;
}

size_t Allocation::columns() const {
  return form_ == nullptr ? 0 : form_->columns;
}

std::span<const ShareUnit> Allocation::units() const {
  if (form_ == nullptr) return {};
  return form_->units;
}

std::optional<size_t> Allocation::Find(const ShareUnit& unit) const {
  const std::span<const ShareUnit> all = units();
  const auto found = std::lower_bound(all.begin(), all.end(), unit);
  if (found == all.end() || *found != unit) return std::nullopt;
  return static_cast<size_t>(found - all.begin());
}

std::span<const double> Allocation::RowAt(size_t position) const {
  return form_->RowAt(position);
}

bool Allocation::Contains(JobId job) const {
  bool found = false;
  if (form_ != nullptr) form_->ForEach(job, [&](size_t) { found = true; });
  return found;
}

std::vector<double> Allocation::Row(const ShareUnit& unit) const {
  const std::optional<size_t> position = Find(unit);
  if (!position.has_value()) return std::vector<double>(columns(), 0.0);
  const std::span<const double> row = RowAt(*position);
  return {row.begin(), row.end()};
}

std::vector<double> Allocation::Row(JobId job) const {
  std::vector<double> row(columns(), 0.0);
  if (form_ == nullptr) return row;
  form_->ForEach(job, [&](size_t i) {
    const std::span<const double> from = form_->RowAt(i);
    for (size_t c = 0; c < row.size(); ++c) row[c] += from[c];
  });
  return row;
}

std::string_view OutcomeName(SolveOutcome outcome) {
  constexpr std::array<std::string_view, 4> kNames = {
      "optimal", "iteration_limit", "infeasible", "failed"};
  const auto index = static_cast<size_t>(outcome);
  return index < kNames.size() ? kNames[index] : "unknown";
}

}  // namespace gavel
