#include "study/reproduce/reproduce_analyses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "coordinator/cli/progress_bar.h"
#include "coordinator/workload/price_series.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "study/report/plot.h"

namespace gavel::study {
namespace {

absl::StatusOr<size_t> TypeOf(const ThroughputTable& throughputs,
                              const char* type) {
  const auto found = throughputs.FindType(type);
  if (found) return *found;
  return absl::InvalidArgumentError(
      StrCat("the throughputs have no accelerator type ", type,
             "; give those that Gavel published"));
}

// What was said of two job types in print.
std::string PublishedSpeedUp(const std::string& job_type) {
  if (job_type.starts_with("ResNet-50")) return "about 10";
  return job_type == "A3C" ? "about 2" : "";
}

// Job types of the table that run alone on one accelerator.
std::vector<ThroughputTable::Row> RowsOfOne(
    const ThroughputTable& throughputs) {
  std::vector<ThroughputTable::Row> rows;
  for (const JobTemplate& job : GavelJobTable()) {
    if (const auto row = throughputs.FindRow(job.type, 1)) {
      rows.push_back(*row);
    }
  }
  return rows;
}

// The part of its throughput that `row` keeps beside `other`; NaN: they can't
// share.
double Kept(const ThroughputTable& throughputs, ThroughputTable::Row row,
            ThroughputTable::Row other, size_t type) {
  const double alone = throughputs.Alone(row, type).value_or(0);
  const auto together = throughputs.Together(row, other, type);
  return alone > 0 && together.has_value() && together->first > 0
             ? together->first / alone
             : kNaN;
}

// A map for the terminal: two letters a cell, darker is less.
std::string DrawMap(const HeatMap& map) {
  constexpr std::array<const char*, 5> kShades = {"  ", "░░", "▒▒", "▓▓", "██"};
  const size_t count = map.names.size();
  std::string drawing =
      "  kept: ██ above 80 %  ▓▓ above 60 %  ▒▒ above 40 %  ░░ above 20 %  "
      "·· can't share\n";
  for (size_t i = 0; i < count; ++i) {
    StrAppend(&drawing, absl::StrFormat("  %-32s ", map.names[i]));
    for (size_t j = 0; j < count; ++j) {
      const double value = map.values[i * count + j];
      drawing +=
          std::isfinite(value)
              ? kShades[std::min<size_t>(4, static_cast<size_t>(value * 5))]
              : "··";
    }
    drawing += "\n";
  }
  return drawing;
}

// "ResNet-18 (batch size 64)" is of the family "ResNet-18".
std::string FamilyOf(const std::string& job_type) {
  return job_type.substr(0, job_type.find(" ("));
}

struct FamilyCount {
  size_t pairs = 0;
  size_t fit = 0;
  size_t gain = 0;  // together they do more than taking turns
  double best = 0;
};

}  // namespace

absl::StatusOr<ExperimentTable> AnalyzeThroughputRatios(
    const ThroughputTable& throughputs) {
  std::array<size_t, 3> types{};
  std::array<double, 3> price{};
  GAVEL_ASSIGN_OR_RETURN(const auto prices, PriceSeries::Constant("gcp"));
  for (size_t j = 0; j < kPaperTypes.size(); ++j) {
    GAVEL_ASSIGN_OR_RETURN(types[j], TypeOf(throughputs, kPaperTypes[j]));
    price[j] = prices.At(kPaperTypes[j], 0);
  }
  ExperimentTable table;
  table.titles = {"JOB TYPE",       "P100/K80",       "V100/K80",
                  "P100/K80 PER $", "V100/K80 PER $", "PUBLISHED V100/K80"};
  for (const ThroughputTable::Row row : RowsOfOne(throughputs)) {
    const auto ratio = [&](size_t j) {
      const double base = throughputs.Alone(row, types[0]).value_or(0);
      const double value = throughputs.Alone(row, types[j]).value_or(0);
      return base > 0 ? value / base : kNaN;
    };
    const std::string& name = throughputs.NameOf(row).first;
    table.rows.push_back({name, FormatNumber(ratio(1), 2),
                          FormatNumber(ratio(2), 2),
                          FormatNumber(ratio(1) * price[0] / price[1], 2),
                          FormatNumber(ratio(2) * price[0] / price[2], 2),
                          PublishedSpeedUp(name)});
  }
  return table;
}

absl::StatusOr<ExperimentTable> AnalyzeColocation(
    const ThroughputTable& throughputs) {
  GAVEL_ASSIGN_OR_RETURN(const size_t type, TypeOf(throughputs, "p100"));
  const std::vector<ThroughputTable::Row> rows = RowsOfOne(throughputs);
  HeatMap map;
  map.title = "Part of its throughput that a row keeps beside a column (P100)";
  std::map<std::string, FamilyCount> families;
  for (const ThroughputTable::Row row : rows) {
    map.names.push_back(throughputs.NameOf(row).first);
    FamilyCount& family = families[FamilyOf(map.names.back())];
    for (const ThroughputTable::Row other : rows) {
      const double kept = Kept(throughputs, row, other, type);
      const double sum = kept + Kept(throughputs, other, row, type);
      map.values.push_back(kept);
      ++family.pairs;
      if (!std::isfinite(sum)) continue;
      ++family.fit;
      if (sum > 1) ++family.gain;
      family.best = std::max(family.best, sum);
    }
  }
  ExperimentTable table;
  table.titles = {"MODEL", "PAIRS", "CAN SHARE", "SHARING DOES MORE",
                  "BEST SUM OF PARTS KEPT"};
  for (const auto& [name, family] : families) {
    table.rows.push_back({name, StrCat(family.pairs), StrCat(family.fit),
                          StrCat(family.gain), FormatNumber(family.best, 2)});
  }
  table.drawing = DrawMap(map);
  table.figures.push_back(RenderHeatMap(map));
  return table;
}

}  // namespace gavel::study
