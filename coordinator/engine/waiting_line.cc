#include "coordinator/engine/waiting_line.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <variant>

#include "coordinator/mechanism/mechanism.h"

namespace gavel {

WaitingLine::WaitingLine(const RoundTable& rows, std::vector<std::string> types,
                         double round_duration_s)
    : types_(std::move(types)) {
  const std::vector<std::vector<double>> priorities =
      Priorities(rows, HeadStartSeconds(round_duration_s));
  // By type, of units that hold nothing, the highest first.
  std::vector<std::vector<double>> waiting(rows.types());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows.holds(row).empty()) continue;
    for (size_t type = 0; type < waiting.size(); ++type) {
      waiting[type].push_back(priorities[row][type]);
    }
  }
  for (std::vector<double>& of_type : waiting) {
    std::ranges::sort(of_type, std::greater<>());
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<double>& own = priorities[row];
    if (rows.unit(row).packed() || own.empty()) continue;
    const auto best = std::max_element(own.begin(), own.end());
    const auto type = static_cast<size_t>(best - own.begin());
    const auto before =
        std::ranges::lower_bound(waiting[type], *best, std::greater<>());
    places_.push_back(
        {rows.unit(row).job,
         {type, 1 + static_cast<int>(before - waiting[type].begin())}});
  }
  std::ranges::sort(places_, {}, &std::pair<JobId, Place>::first);
}

void WaitingLine::Tell(JobId job, Reason* reason) const {
  auto* in_line = std::get_if<reason::Priority>(reason);
  if (in_line == nullptr) return;
  const auto found = std::ranges::lower_bound(places_, job, {},
                                              &std::pair<JobId, Place>::first);
  if (found == places_.end() || found->first != job ||
      found->second.type >= types_.size()) {
    *reason = reason::NotInAllocation();
    return;
  }
  in_line->type = types_[found->second.type];
  in_line->place = found->second.number;
}

}  // namespace gavel
