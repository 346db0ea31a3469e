#include "coordinator/workload/throughput_table.h"

#include <algorithm>
#include <set>

#include "coordinator/workload/throughput_reader.h"
#include "core/status.h"

namespace gavel {
namespace {

constexpr std::string_view kUnconsolidated = "_unconsolidated";
constexpr double kNoFigure = -1;

bool IsUnconsolidated(std::string_view worker_type) {
  return worker_type.ends_with(kUnconsolidated) &&
         worker_type.size() > kUnconsolidated.size();
}

std::string_view TypeOf(std::string_view worker_type) {
  if (IsUnconsolidated(worker_type)) {
    worker_type.remove_suffix(kUnconsolidated.size());
  }
  return worker_type;
}

}  // namespace

absl::StatusOr<ThroughputTable> ThroughputTable::Parse(
    std::string_view json, std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(ThroughputFigures figures,
                         ReadThroughputs(json, source));
  return ThroughputTable(std::move(figures));
}

ThroughputTable::ThroughputTable(ThroughputFigures figures)
    : names_(std::move(figures.names)) {
  std::set<std::string_view> types;
  for (const std::string& name : figures.worker_types) {
    types.insert(TypeOf(name));
    has_unconsolidated_ = has_unconsolidated_ || IsUnconsolidated(name);
  }
  types_.assign(types.begin(), types.end());
  for (Row row = 0; row < names_.size(); ++row) row_of_[names_[row]] = row;

  std::vector<size_t> table_of;  // by worker type, as TableOf()
  for (const std::string& name : figures.worker_types) {
    table_of.push_back(
        TableOf(*FindType(TypeOf(name)), !IsUnconsolidated(name)));
  }
  alone_.assign(types_.size() * 2 * rows(), kNoFigure);
  for (const ThroughputFigures::Alone& figure : figures.alone) {
    alone_[table_of[figure.worker_type] * rows() + figure.row] =
        figure.steps_per_s;
  }
  partners_.resize(types_.size() * 2 * rows());
  for (const ThroughputFigures::Pair& figure : figures.pairs) {
    partners_[table_of[figure.worker_type] * rows() + figure.row].push_back(
        {figure.other, figure.steps_per_s});
  }
  for (std::vector<Partner>& partners : partners_) {
    std::sort(partners.begin(), partners.end(),
              [](const Partner& a, const Partner& b) { return a.row < b.row; });
  }
  has_pairs_ = !figures.pairs.empty();
}

std::optional<ThroughputTable::Row> ThroughputTable::FindRow(
    std::string_view job_type, int scale_factor) const {
  const auto found = row_of_.find(std::pair(job_type, scale_factor));
  if (found == row_of_.end()) return std::nullopt;
  return found->second;
}

std::optional<size_t> ThroughputTable::FindType(std::string_view type) const {
  const auto found = std::lower_bound(types_.begin(), types_.end(), type);
  if (found == types_.end() || *found != type) return std::nullopt;
  return static_cast<size_t>(found - types_.begin());
}

std::optional<double> ThroughputTable::Alone(Row row, size_t type,
                                             bool consolidated) const {
  const double steps_per_s = alone_[TableOf(type, consolidated) * rows() + row];
  if (steps_per_s == kNoFigure) return std::nullopt;
  return steps_per_s;
}

std::optional<std::pair<double, double>> ThroughputTable::Together(
    Row row, Row other, size_t type, bool consolidated) const {
  const std::vector<Partner>& partners =
      partners_[TableOf(type, consolidated) * rows() + row];
  const auto found = std::lower_bound(
      partners.begin(), partners.end(), other,
      [](const Partner& partner, Row wanted) { return partner.row < wanted; });
  if (found == partners.end() || found->row != other) return std::nullopt;
  const auto& [own, others] = found->steps_per_s;
  if (own == 0 || others == 0) return {{0, 0}};
  return found->steps_per_s;
}

ThroughputTable::Figures ThroughputTable::ToFigures() const {
  Figures figures{types_, names_, alone_, {}, has_unconsolidated_};
  for (const std::vector<Partner>& partners : partners_) {
    auto& row = figures.partners.emplace_back();
    for (const Partner& partner : partners) {
      row.emplace_back(partner.row, partner.steps_per_s);
    }
  }
  return figures;
}

absl::StatusOr<ThroughputTable> ThroughputTable::FromFigures(Figures figures) {
  ThroughputTable table;
  const size_t rows = figures.names.size();
  const size_t cells = figures.types.size() * 2 * rows;
  const bool match = figures.alone.size() == cells &&
                     figures.partners.size() == cells &&
                     std::is_sorted(figures.types.begin(), figures.types.end());
  if (!match) {
    return absl::InvalidArgumentError(
        "a throughput table whose figures do not match its rows");
  }
  for (const auto& row : figures.partners) {
    std::vector<Partner>& partners = table.partners_.emplace_back();
    for (const auto& [other, steps_per_s] : row) {
      if (other >= rows ||
          (!partners.empty() && partners.back().row >= other)) {
        return absl::InvalidArgumentError(
            "a throughput table with a pair that is not there");
      }
      partners.push_back({static_cast<Row>(other), steps_per_s});
      table.has_pairs_ = true;
    }
  }
  table.types_ = std::move(figures.types);
  table.names_ = std::move(figures.names);
  table.alone_ = std::move(figures.alone);
  table.has_unconsolidated_ = figures.has_unconsolidated;
  for (Row row = 0; row < rows; ++row) table.row_of_[table.names_[row]] = row;
  return table;
}

}  // namespace gavel
