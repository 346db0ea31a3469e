#include "study/report_page.h"

#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/pages/pages.h"
#include "coordinator/workload/json_fields.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel::study {
namespace {

// A section's CSV beyond that is left to --csv.
constexpr size_t kEmbeddedBytesMax = size_t{512} * 1024;

// The value with six digits, as many as a chart can show; null for one that is
// not finite.
Json ChartNumber(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(absl::StrFormat("%.6g", value).c_str(), nullptr);
}

Json AxisJson(const PlotAxis& axis) {
  Json json = {
      {"label", axis.label}, {"log", axis.log}, {"from_zero", axis.from_zero}};
  if (axis.min && axis.max) {
    json["min"] = *axis.min;
    json["max"] = *axis.max;
  }
  return json;
}

std::string_view MarkName(PlotMark mark) {
  switch (mark) {
    case PlotMark::kLine:
      return "line";
    case PlotMark::kSteps:
      return "steps";
    case PlotMark::kDots:
      return "dots";
    case PlotMark::kCrosses:
      return "crosses";
  }
  return "";
}

Json PointJson(const PlotPoint& point) {
  Json json = {ChartNumber(point.x), ChartNumber(point.y)};
  const bool has_bar = std::isfinite(point.low) && std::isfinite(point.high);
  if (has_bar || !point.note.empty()) json.push_back(point.note);
  if (has_bar) {
    json.push_back(ChartNumber(point.low));
    json.push_back(ChartNumber(point.high));
  }
  return json;
}

Json FigureJson(const Plot& plot) {
  Json all = Json::array();
  for (const PlotSeries& series : plot.series) {
    Json points = Json::array();
    for (const PlotPoint& point : series.points) {
      points.push_back(PointJson(point));
    }
    all.push_back({{"name", series.name},
                   {"color", series.color},
                   {"mark", MarkName(series.mark)},
                   {"points", std::move(points)}});
  }
  return {{"kind", "lines"},           {"title", plot.title},
          {"x", AxisJson(plot.x)},     {"y", AxisJson(plot.y)},
          {"diagonal", plot.diagonal}, {"series", std::move(all)}};
}

Json FigureJson(const BarChart& chart) {
  Json bars = Json::array();
  for (const BarChart::Bar& bar : chart.bars) {
    bars.push_back({bar.row, ChartNumber(bar.from), ChartNumber(bar.to),
                    bar.color, bar.note});
  }
  return {{"kind", "bars"},         {"title", chart.title},
          {"unit", chart.unit},     {"to", chart.x_max},
          {"rows", chart.rows},     {"names", chart.names},
          {"bars", std::move(bars)}};
}

Json FigureJson(const HeatMap& map) {
  Json values = Json::array();
  for (const double value : map.values) values.push_back(ChartNumber(value));
  return {{"kind", "map"},
          {"title", map.title},
          {"names", map.names},
          {"values", std::move(values)},
          {"none", map.none}};
}

Json SectionJson(const ReportSection& section) {
  Json figures = Json::array();
  for (const Figure& figure : section.figures) {
    figures.push_back(
        std::visit([](const auto& one) { return FigureJson(one); }, figure));
  }
  Json csv = section.csv.empty() ? "" : section.csv.text();
  if (section.csv.text().size() > kEmbeddedBytesMax) csv = nullptr;
  return {{"id", section.id},
          {"title", section.title},
          {"text", section.text},
          {"csv", std::move(csv)},
          {"notes", section.notes},
          {"figures", std::move(figures)},
          {"table",
           {{"titles", section.table.titles}, {"rows", section.table.rows}}}};
}

std::string_view CompiledPage(std::string_view name) {
  for (const Page& page : CompiledPages()) {
    if (page.name == name) return page.bytes;
  }
  return "";
}

}  // namespace

std::string RenderText(const ReportTable& table, const std::vector<bool>& right,
                       size_t width, size_t width_max) {
  std::vector<Column> columns;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    columns.push_back({table.titles[i], right[i], width_max});
  }
  return RenderTable(columns, table.rows, width);
}

std::string RenderMarkdown(const ReportTable& table,
                           const std::vector<bool>& right) {
  std::string text = StrCat("| ", absl::StrJoin(table.titles, " | "), " |\n|");
  for (const bool of_column : right) text += of_column ? "---:|" : "---|";
  text += "\n";
  for (const auto& row : table.rows) {
    StrAppend(&text, "| ", absl::StrJoin(row, " | "), " |\n");
  }
  return text;
}

void Csv::Add(const std::vector<std::string>& cells) {
  const char* comma = "";
  for (const std::string& cell : cells) {
    const bool plain = cell.find_first_of(",\"\r\n") == std::string::npos;
    StrAppend(&text_, comma,
              plain ? cell
                    : StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}),
                             "\""));
    comma = ",";
  }
  text_ += "\n";
  ++rows_;
}

std::string RenderPage(const ReportPage& page) {
  Json sections = Json::array();
  for (const ReportSection& section : page.sections) {
    sections.push_back(SectionJson(section));
  }
  const Json json = {{"title", page.title},
                     {"summary", page.summary},
                     {"sections", std::move(sections)}};
  // Text that is not UTF-8 has come from users. No name of theirs can end the
  // element that the data is in.
  const std::string data = absl::StrReplaceAll(
      json.dump(-1, ' ', false, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
  return StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src "
      "data:\"><meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>",
      absl::StrReplaceAll(page.title, {{"&", "&amp;"}, {"<", "&lt;"}}),
      "</title>\n<style>\n", CompiledPage("style.css"),
      "</style></head>\n<body><main id=\"main\" class=\"page "
      "report\"><noscript>"
      "The report needs JavaScript.</noscript></main>\n<script>",
      CompiledPage("chart.umd.js"),
      "</script>\n<script type=\"application/json\" id=\"report\">", data,
      "</script>\n<script type=\"module\">\n", CompiledPage("report.js"),
      "</script></body></html>\n");
}

}  // namespace gavel::study
