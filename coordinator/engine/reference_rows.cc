#include "coordinator/engine/reference_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gavel {

ReferenceRows::ReferenceRows(std::shared_ptr<const ThroughputTable> table,
                             int models)
    : table_(std::move(table)) {
  std::map<int, std::vector<ThroughputTable::Row>> all;
  for (ThroughputTable::Row row = 0; row < table_->rows(); ++row) {
    all[table_->NameOf(row).second].push_back(row);
  }
  for (const auto& [scale_factor, rows] : all) {
    std::vector<ThroughputTable::Row> chosen;
    for (const size_t i :
         ChooseReferences(JobsOf(rows), static_cast<size_t>(models))) {
      chosen.push_back(rows[i]);
    }
    ThroughputEstimator estimator(table_->types().size(), JobsOf(chosen));
    scales_.emplace(scale_factor,
                    Scale{std::move(chosen), std::move(estimator)});
  }
}

std::vector<ReferenceJob> ReferenceRows::JobsOf(
    const std::vector<ThroughputTable::Row>& rows) const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<ReferenceJob> jobs;
  for (const ThroughputTable::Row row : rows) {
    ReferenceJob& job = jobs.emplace_back();
    for (size_t type = 0; type < table_->types().size(); ++type) {
      const double alone = table_->Alone(row, type).value_or(kUnknown);
      job.alone.push_back(alone);
      for (const ThroughputTable::Row other : rows) {
        const auto together = table_->Together(row, other, type);
        job.kept.push_back(alone > 0 && together.has_value()
                               ? together->first / alone
                               : kUnknown);
      }
    }
  }
  return jobs;
}

std::optional<ReferenceRows::Match> ReferenceRows::Find(
    int scale_factor, const std::vector<ProfiledCell>& cells) const {
  const auto found = scales_.find(scale_factor);
  if (found == scales_.end()) return std::nullopt;
  const Scale& scale = found->second;
  std::vector<ThroughputEstimator::Cell> known;
  for (const ProfiledCell& cell : cells) {
    const std::optional<size_t> type = table_->FindType(cell.type);
    if (!type.has_value()) continue;
    size_t partner = ThroughputEstimator::kAlone;
    if (!cell.beside.empty()) {
      const auto row = table_->FindRow(cell.beside, scale_factor);
      const auto place =
          std::find(scale.rows.begin(), scale.rows.end(), row.value_or(-1));
      if (place == scale.rows.end()) continue;
      partner = static_cast<size_t>(place - scale.rows.begin());
    }
    known.push_back({*type, partner, cell.value});
  }
  const auto match = scale.estimator.Find(known);
  if (!match.has_value()) return std::nullopt;
  return Match{scale.rows[match->reference], match->speed};
}

const std::vector<ThroughputTable::Row>& ReferenceRows::RowsOf(
    int scale_factor) const {
  static const std::vector<ThroughputTable::Row> kNone;
  const auto found = scales_.find(scale_factor);
  return found == scales_.end() ? kNone : found->second.rows;
}

bool ReferenceRows::CanShare(int scale_factor) const {
  const auto found = scales_.find(scale_factor);
  if (found == scales_.end()) return false;
  const auto& jobs = found->second.estimator.references();
  return std::any_of(jobs.begin(), jobs.end(), [](const ReferenceJob& job) {
    return std::any_of(job.kept.begin(), job.kept.end(),
                       [](double kept) { return kept > 0; });
  });
}

}  // namespace gavel
