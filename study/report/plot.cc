#include "study/report/plot.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/cli/table.h"
#include "core/text.h"
#include "study/report/plot_scale.h"

namespace gavel {
namespace {

constexpr double kWidth = 640;
constexpr double kPlotHeight = 300;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 30;
constexpr double kAxisHeight = 46;  // tick labels and the name of the axis
constexpr double kLegendLine = 20;
constexpr double kLetter = 6.6;       // width of one, about
constexpr size_t kTitleLetters = 66;  // that fit beside the left axis
constexpr size_t kColors = 10;

std::string Coordinate(double value) { return absl::StrFormat("%.1f", value); }

std::string ClassOf(const PlotSeries& series) {
  return StrCat("c", series.color % kColors, " d", series.color % 4,
                series.mark == PlotMark::kSteps ? " steps" : "");
}

// The dot of a series: a circle, square, diamond or triangle by its colour.
std::string Dot(double x, double y, size_t color, double radius) {
  switch (color % 4) {
    case 0:
      return StrCat("<circle cx=\"", Coordinate(x), "\" cy=\"", Coordinate(y),
                    "\" r=\"", Coordinate(radius), "\"/>");
    case 1:
      return StrCat("<rect x=\"", Coordinate(x - radius), "\" y=\"",
                    Coordinate(y - radius), "\" width=\"",
                    Coordinate(2 * radius), "\" height=\"",
                    Coordinate(2 * radius), "\"/>");
    case 2:
      return absl::StrFormat(
          "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x,
          y - 1.3 * radius, 1.3 * radius, 1.3 * radius, -1.3 * radius,
          1.3 * radius, -1.3 * radius, -1.3 * radius);
    default:
      return absl::StrFormat("<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x,
                             y - 1.2 * radius, 1.2 * radius, 2.2 * radius,
                             -2.4 * radius);
  }
}

std::string Cross(double x, double y) {
  return absl::StrFormat("<path d=\"M%.1f %.1fl8 8m-8 0l8 -8\"/>", x - 4,
                         y - 4);
}

std::string WithNote(std::string shape, const std::string& note) {
  if (note.empty()) return shape;
  return StrCat("<g>", shape, "<title>", EscapeHtml(note), "</title></g>");
}

// Where legend entries go: line after line, as many as fit.
struct LegendEntry {
  const PlotSeries* series;
  double x;
  double y;
};

std::vector<LegendEntry> LayLegend(const Plot& plot, double top,
                                   double* bottom) {
  std::vector<LegendEntry> entries;
  double x = kLeft;
  double y = top;
  for (const PlotSeries& series : plot.series) {
    if (series.name.empty() || series.mark == PlotMark::kCrosses) continue;
    const double width = 44 + kLetter * static_cast<double>(series.name.size());
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      y += kLegendLine;
    }
    entries.push_back({&series, x, y});
    x += width;
  }
  *bottom = entries.empty() ? top : y + kLegendLine;
  return entries;
}

std::string RenderLegend(const std::vector<LegendEntry>& entries) {
  std::string svg;
  for (const LegendEntry& entry : entries) {
    const PlotSeries& series = *entry.series;
    const double y = entry.y + kLegendLine / 2;
    StrAppend(&svg, "<g class=\"", ClassOf(series), "\">");
    if (series.mark != PlotMark::kDots) {
      StrAppend(&svg, "<path class=\"line\" d=\"M", Coordinate(entry.x), " ",
                Coordinate(y), "h24\"/>");
    }
    if (series.mark == PlotMark::kDots ||
        series.mark == PlotMark::kLineAndDots) {
      StrAppend(&svg, "<g class=\"dot\">",
                Dot(entry.x + 12, y, series.color, 3.5), "</g>");
    }
    StrAppend(&svg, "</g><text x=\"", Coordinate(entry.x + 30), "\" y=\"",
              Coordinate(y + 4), "\">", EscapeHtml(series.name), "</text>");
  }
  return svg;
}

PlotScale MakeScale(const PlotAxis& axis, const PlotRange& range) {
  if (axis.min && axis.max) return PlotScale::Fixed(*axis.min, *axis.max);
  return axis.log ? PlotScale::Log(range)
                  : PlotScale::Linear(range, axis.from_zero);
}

std::string RenderXAxis(const PlotScale& x, const std::string& label,
                        double top, double bottom) {
  std::string svg = "<g class=\"grid\">";
  for (const PlotTick& tick : x.ticks()) {
    const std::string at = Coordinate(x.At(tick.value));
    StrAppend(&svg, "<path d=\"M", at, " ", Coordinate(top), "V",
              Coordinate(bottom), "\"/>");
  }
  svg += "</g><g class=\"tick\" text-anchor=\"middle\">";
  for (const PlotTick& tick : x.ticks()) {
    if (tick.label.empty()) continue;
    StrAppend(&svg, "<text x=\"", Coordinate(x.At(tick.value)), "\" y=\"",
              Coordinate(bottom + 17), "\">", tick.label, "</text>");
  }
  StrAppend(&svg, "</g><text class=\"axis\" text-anchor=\"middle\" x=\"",
            Coordinate((kLeft + kWidth - kRight) / 2), "\" y=\"",
            Coordinate(bottom + 37), "\">", EscapeHtml(label), "</text>");
  return svg;
}

std::string RenderYAxis(const PlotScale& y, const std::string& label,
                        double top, double bottom) {
  std::string svg = "<g class=\"grid\">";
  for (const PlotTick& tick : y.ticks()) {
    StrAppend(&svg, "<path d=\"M", Coordinate(kLeft), " ",
              Coordinate(y.At(tick.value)), "H", Coordinate(kWidth - kRight),
              "\"/>");
  }
  svg += "</g><g class=\"tick\" text-anchor=\"end\">";
  for (const PlotTick& tick : y.ticks()) {
    if (tick.label.empty()) continue;
    StrAppend(&svg, "<text x=\"", Coordinate(kLeft - 8), "\" y=\"",
              Coordinate(y.At(tick.value) + 4), "\">", tick.label, "</text>");
  }
  StrAppend(&svg,
            "</g><text class=\"axis\" text-anchor=\"middle\" "
            "transform=\"translate(15 ",
            Coordinate((top + bottom) / 2), ") rotate(-90)\">",
            EscapeHtml(label), "</text>");
  return svg;
}

std::string RenderFrame(double top, double bottom, double left = kLeft) {
  return StrCat("<path class=\"frame\" d=\"M", Coordinate(left), " ",
                Coordinate(top), "V", Coordinate(bottom), "H",
                Coordinate(kWidth - kRight), "\"/>");
}

std::string PathOf(const PlotSeries& series, const PlotScale& x,
                   const PlotScale& y) {
  std::string path;
  bool pen_down = false;
  for (const PlotPoint& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) {
      pen_down = false;
      continue;
    }
    const std::string at_x = Coordinate(x.At(point.x));
    const std::string at_y = Coordinate(y.At(point.y));
    if (!pen_down) {
      StrAppend(&path, "M", at_x, " ", at_y);
    } else if (series.mark == PlotMark::kSteps) {
      StrAppend(&path, "H", at_x, "V", at_y);
    } else {
      StrAppend(&path, "L", at_x, " ", at_y);
    }
    pen_down = true;
  }
  return path;
}

std::string RenderDots(const PlotSeries& series, const PlotScale& x,
                       const PlotScale& y) {
  const bool crosses = series.mark == PlotMark::kCrosses;
  const double radius = series.mark == PlotMark::kDots ? 2.5 : 3.5;
  std::string svg = crosses ? "<g class=\"cross\">" : "<g class=\"dot\">";
  for (const PlotPoint& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    const double at_x = x.At(point.x);
    const double at_y = y.At(point.y);
    svg += WithNote(
        crosses ? Cross(at_x, at_y) : Dot(at_x, at_y, series.color, radius),
        point.note);
  }
  return svg + "</g>";
}

std::string RenderSeries(const PlotSeries& series, const PlotScale& x,
                         const PlotScale& y) {
  std::string svg = StrCat("<g class=\"series ", ClassOf(series), "\">");
  const bool line =
      series.mark != PlotMark::kDots && series.mark != PlotMark::kCrosses;
  if (line) {
    StrAppend(&svg, "<path class=\"line\" d=\"", PathOf(series, x, y), "\"/>");
  }
  if (series.mark == PlotMark::kLineAndDots || !line) {
    svg += RenderDots(series, x, y);
  }
  return svg + "</g>";
}

std::string Begin(double height, const std::string& title) {
  const std::string whole = EscapeHtml(title);
  const std::string shown = EscapeHtml(Cut(title, kTitleLetters));
  return StrCat("<svg class=\"plot\" viewBox=\"0 0 ", Coordinate(kWidth), " ",
                Coordinate(height), "\" role=\"img\" aria-label=\"", whole,
                "\"><text class=\"title\" x=\"", Coordinate(kLeft),
                "\" y=\"18\">", shown, "<title>", whole, "</title></text>");
}

// A dark blue over green to yellow, as most eyes can tell them apart.
std::string MapColor(double value) {
  constexpr double kStops[][3] = {{68, 1, 84},
                                  {59, 82, 139},
                                  {33, 145, 140},
                                  {94, 201, 98},
                                  {253, 231, 37}};
  const double at = std::clamp(value, 0.0, 1.0) * 4;
  const auto low = std::min<size_t>(3, static_cast<size_t>(at));
  const double part = at - static_cast<double>(low);
  int mixed[3];
  for (size_t i = 0; i < 3; ++i) {
    mixed[i] = static_cast<int>(std::lround(
        kStops[low][i] + part * (kStops[low + 1][i] - kStops[low][i])));
  }
  return absl::StrFormat("#%02x%02x%02x", mixed[0], mixed[1], mixed[2]);
}

// The colours of a map from 0 to 1, as a bar with its ends named.
std::string RenderColorBar(double x, double y, double width) {
  constexpr int kParts = 32;
  std::string svg;
  for (int i = 0; i < kParts; ++i) {
    StrAppend(&svg, absl::StrFormat(
                        "<path fill=\"%s\" d=\"M%.1f %.1fh%.1fv10h-%.1fz\"/>",
                        MapColor((i + 0.5) / kParts), x + width * i / kParts, y,
                        width / kParts + 0.3, width / kParts + 0.3));
  }
  StrAppend(&svg, "<g class=\"tick\" text-anchor=\"middle\">");
  for (const double value : {0.0, 0.5, 1.0}) {
    StrAppend(&svg, "<text x=\"", Coordinate(x + width * value), "\" y=\"",
              Coordinate(y + 24), "\">", PlotNumber(value), "</text>");
  }
  return svg + "</g>";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += letter;
    }
  }
  return escaped;
}

std::string RenderPlot(const Plot& plot) {
  PlotRange x_range;
  PlotRange y_range;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      x_range.Add(point.x);
      y_range.Add(point.y);
    }
  }
  const double bottom = kTop + kPlotHeight;
  PlotScale x = MakeScale(plot.x, x_range);
  PlotScale y = MakeScale(plot.y, y_range);
  x.Place(kLeft, kWidth - kRight);
  y.Place(bottom, kTop);
  double height = 0;
  const auto legend = LayLegend(plot, bottom + kAxisHeight, &height);
  std::string svg = Begin(height + 4, plot.title);
  StrAppend(&svg, RenderXAxis(x, plot.x.label, kTop, bottom),
            RenderYAxis(y, plot.y.label, kTop, bottom),
            RenderFrame(kTop, bottom));
  if (plot.diagonal) {
    StrAppend(&svg, "<path class=\"diagonal\" d=\"M", Coordinate(x.At(x.min())),
              " ", Coordinate(y.At(x.min())), "L", Coordinate(x.At(x.max())),
              " ", Coordinate(y.At(x.max())), "\"/>");
  }
  for (const PlotSeries& series : plot.series) {
    svg += RenderSeries(series, x, y);
  }
  return svg + RenderLegend(legend) + "</svg>";
}

std::string RenderBars(const BarChart& chart) {
  size_t rows = 0;
  double edge = kLeft;  // with room for the longest name
  for (const auto& [name, count] : chart.groups) {
    rows += count;
    edge = std::max(edge, kLetter * static_cast<double>(name.size()) + 16);
  }
  const double row_height = std::clamp(
      kPlotHeight / static_cast<double>(std::max<size_t>(rows, 1)), 4.0, 18.0);
  const double bottom = kTop + row_height * static_cast<double>(rows);
  PlotScale x = PlotScale::Fixed(0, chart.x_max);
  x.Place(edge, kWidth - kRight);
  std::string svg = Begin(bottom + kAxisHeight, chart.title);
  svg += RenderXAxis(x, chart.x_label, kTop, bottom);
  double y = kTop;
  for (const auto& [name, count] : chart.groups) {
    const double height = row_height * static_cast<double>(count);
    StrAppend(&svg, "<text class=\"tick\" text-anchor=\"end\" x=\"",
              Coordinate(edge - 8), "\" y=\"", Coordinate(y + height / 2 + 4),
              "\">", EscapeHtml(name), "</text><path class=\"frame\" d=\"M",
              Coordinate(edge), " ", Coordinate(y), "H",
              Coordinate(kWidth - kRight), "\"/>");
    y += height;
  }
  svg += RenderFrame(kTop, bottom, edge) + "<g class=\"bars\">";
  for (const BarChart::Bar& bar : chart.bars) {
    const double left = x.At(bar.from);
    const double width = std::max(0.5, x.At(bar.to) - left);
    const double top = kTop + row_height * static_cast<double>(bar.row);
    svg += WithNote(
        absl::StrFormat(
            "<path class=\"b%d\" d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"/>",
            bar.color % kColors, left, top + 0.5, width, row_height - 1, width),
        bar.note);
  }
  return svg + "</g></svg>";
}

std::string RenderHeatMap(const HeatMap& map) {
  constexpr double kNames = 190;
  const size_t count = map.names.size();
  const double cell =
      (kWidth - kNames) / static_cast<double>(std::max<size_t>(count, 1));
  const double bottom = kTop + cell * static_cast<double>(count);
  std::string svg = Begin(bottom + kNames, map.title);
  for (size_t i = 0; i < count; ++i) {
    const double at = cell * (static_cast<double>(i) + 0.5);
    const std::string name = EscapeHtml(map.names[i]);
    StrAppend(&svg, "<text class=\"small\" text-anchor=\"end\" x=\"",
              Coordinate(kNames - 6), "\" y=\"", Coordinate(kTop + at + 3),
              "\">", name,
              "</text><text class=\"small\" text-anchor=\"end\" "
              "transform=\"translate(",
              Coordinate(kNames + at + 3), " ", Coordinate(bottom + 6),
              ") rotate(-60)\">", name, "</text>");
  }
  for (size_t i = 0; i < map.values.size() && count > 0; ++i) {
    const double value = map.values[i];
    const bool none = !std::isfinite(value);
    const std::string square = absl::StrFormat(
        "<path fill=\"%s\" d=\"M%.2f %.2fh%.2fv%.2fh-%.2fz\"/>",
        none ? "#777" : MapColor(value),
        kNames + cell * static_cast<double>(i % count),
        kTop + cell * static_cast<double>(i / count), cell, cell, cell);
    svg += WithNote(square,
                    StrCat(map.names[i / count], " with ", map.names[i % count],
                           ": ", none ? "can't share" : PlotNumber(value, 3)));
  }
  return svg + RenderColorBar(20, bottom + 40, 130) + "</svg>";
}

}  // namespace gavel
