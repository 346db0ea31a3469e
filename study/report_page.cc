#include "study/report_page.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel::study {
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

std::string ClassOf(const PlotSeries& series) {
  return StrCat("c", series.color % kColors, " d", series.color % 4,
                series.mark == PlotMark::kSteps ? " steps" : "");
}

// The dot of a series: a circle, square, diamond or triangle by its colour.
std::string Dot(double x, double y, size_t color, double radius) {
  switch (color % 4) {
    case 0:
      return absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x,
                             y, radius);
    case 1:
      return absl::StrFormat(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
          x - radius, y - radius, 2 * radius, 2 * radius);
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

// The legend below `top`, line after line, as many entries in each as fit.
std::string RenderLegend(const Plot& plot, double top, double* bottom) {
  std::string svg;
  double x = kLeft;
  double y = top + kLegendLine / 2;
  for (const PlotSeries& series : plot.series) {
    if (series.name.empty() || series.mark == PlotMark::kCrosses) continue;
    const double width = 44 + kLetter * static_cast<double>(series.name.size());
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      y += kLegendLine;
    }
    StrAppend(&svg, "<g class=\"", ClassOf(series), "\">");
    if (series.mark != PlotMark::kDots) {
      absl::StrAppendFormat(&svg, "<path class=\"line\" d=\"M%.1f %.1fh24\"/>",
                            x, y);
    }
    if (series.mark == PlotMark::kDots ||
        series.mark == PlotMark::kLineAndDots) {
      StrAppend(&svg, "<g class=\"dot\">", Dot(x + 12, y, series.color, 3.5),
                "</g>");
    }
    absl::StrAppendFormat(&svg, "</g><text x=\"%.1f\" y=\"%.1f\">%s</text>",
                          x + 30, y + 4, EscapeHtml(series.name));
    x += width;
  }
  *bottom = svg.empty() ? top : y + kLegendLine / 2;
  return svg;
}

PlotScale MakeScale(const PlotAxis& axis, const PlotRange& range) {
  if (axis.min && axis.max) return PlotScale::Fixed(*axis.min, *axis.max);
  return axis.log ? PlotScale::Log(range)
                  : PlotScale::Linear(range, axis.from_zero);
}

// The grid and the labels of an axis. `line` draws the line of the grid at a
// position, `label` says where its label is.
template <class Line, class Label>
std::string RenderTicks(const PlotScale& scale, const char* anchor,
                        const Line& line, const Label& label) {
  std::string svg = "<g class=\"grid\">";
  for (const PlotTick& tick : scale.ticks()) svg += line(scale.At(tick.value));
  StrAppend(&svg, "</g><g class=\"tick\" text-anchor=\"", anchor, "\">");
  for (const PlotTick& tick : scale.ticks()) {
    if (tick.label.empty()) continue;
    const auto [x, y] = label(scale.At(tick.value));
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", x, y,
                          tick.label);
  }
  return svg + "</g>";
}

std::string RenderXAxis(const PlotScale& x, const std::string& label,
                        double top, double bottom) {
  return RenderTicks(
             x, "middle",
             [&](double at) {
               return absl::StrFormat("<path d=\"M%.1f %.1fV%.1f\"/>", at, top,
                                      bottom);
             },
             [&](double at) { return std::pair(at, bottom + 17); }) +
         absl::StrFormat(
             "<text class=\"axis\" text-anchor=\"middle\" x=\"%.1f\" "
             "y=\"%.1f\">%s</text>",
             (kLeft + kWidth - kRight) / 2, bottom + 37, EscapeHtml(label));
}

std::string RenderYAxis(const PlotScale& y, const std::string& label,
                        double top, double bottom) {
  return RenderTicks(
             y, "end",
             [](double at) {
               return absl::StrFormat("<path d=\"M%.1f %.1fH%.1f\"/>", kLeft,
                                      at, kWidth - kRight);
             },
             [](double at) { return std::pair(kLeft - 8, at + 4); }) +
         absl::StrFormat(
             "<text class=\"axis\" text-anchor=\"middle\" "
             "transform=\"translate(15 %.1f) rotate(-90)\">%s</text>",
             (top + bottom) / 2, EscapeHtml(label));
}

std::string RenderFrame(double top, double bottom, double left = kLeft) {
  return absl::StrFormat("<path class=\"frame\" d=\"M%.1f %.1fV%.1fH%.1f\"/>",
                         left, top, bottom, kWidth - kRight);
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
    const double at_x = x.At(point.x);
    const double at_y = y.At(point.y);
    if (pen_down && series.mark == PlotMark::kSteps) {
      absl::StrAppendFormat(&path, "H%.1fV%.1f", at_x, at_y);
    } else {
      absl::StrAppendFormat(&path, "%c%.1f %.1f", pen_down ? 'L' : 'M', at_x,
                            at_y);
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

std::string RenderErrorBars(const PlotSeries& series, const PlotScale& x,
                            const PlotScale& y) {
  constexpr double kCap = 4;  // half the width of its ends
  std::string path;
  for (const PlotPoint& point : series.points) {
    if (!std::isfinite(point.low) || !std::isfinite(point.high)) continue;
    const double left = x.At(point.x) - kCap;
    absl::StrAppendFormat(&path, "M%.1f %.1fh%.1fm%.1f 0V%.1fm%.1f 0h%.1f",
                          left, y.At(point.low), 2 * kCap, -kCap,
                          y.At(point.high), -kCap, 2 * kCap);
  }
  return path.empty() ? "" : StrCat("<path class=\"error\" d=\"", path, "\"/>");
}

std::string RenderSeries(const PlotSeries& series, const PlotScale& x,
                         const PlotScale& y) {
  std::string svg = StrCat("<g class=\"series ", ClassOf(series), "\">",
                           RenderErrorBars(series, x, y));
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
  return absl::StrFormat(
      "<svg class=\"plot\" viewBox=\"0 0 %.1f %.1f\" role=\"img\" "
      "aria-label=\"%s\"><text class=\"title\" x=\"%.1f\" "
      "y=\"18\">%s<title>%s</title></text>",
      kWidth, height, whole, kLeft, EscapeHtml(Cut(title, kTitleLetters)),
      whole);
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
    absl::StrAppendFormat(&svg,
                          "<path fill=\"%s\" d=\"M%.1f %.1fh%.1fv10h-%.1fz\"/>",
                          MapColor((i + 0.5) / kParts), x + width * i / kParts,
                          y, width / kParts + 0.3, width / kParts + 0.3);
  }
  StrAppend(&svg, "<g class=\"tick\" text-anchor=\"middle\">");
  for (const double value : {0.0, 0.5, 1.0}) {
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\">%s</text>",
                          x + width * value, y + 24, PlotNumber(value));
  }
  return svg + "</g>";
}

constexpr double kTicksWanted = 6;

// 1, 2, 2.5 or 5 times a power of ten.
double NiceStep(double span) {
  const double raw = span / kTicksWanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

}  // namespace

void PlotRange::Add(double value) {
  if (!std::isfinite(value)) return;
  min = empty ? value : std::min(min, value);
  max = empty ? value : std::max(max, value);
  empty = false;
}

std::string PlotNumber(double value, int digits) {
  if (std::abs(value) < 1e-12) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-4)
    return absl::StrFormat("%.*g", digits, value);
  const int whole = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string text =
      absl::StrFormat("%.*f", std::clamp(digits - whole, 0, 9), value);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

PlotScale::PlotScale(double min, double max, bool log)
    : min_(min), max_(max), log_(log) {}

PlotScale PlotScale::Linear(PlotRange range, bool from_zero) {
  double min = range.empty ? 0 : range.min;
  double max = range.empty ? 1 : range.max;
  if (from_zero) min = std::min(0.0, min);
  if (max - min < 1e-9 * std::max(1.0, std::abs(max))) {
    max += std::max(1.0, std::abs(max) * 0.1);
  }
  const double step = NiceStep(max - min);
  PlotScale scale(std::floor(min / step + 1e-9) * step,
                  std::ceil(max / step - 1e-9) * step, false);
  scale.MakeLinearTicks(step);
  return scale;
}

PlotScale PlotScale::Fixed(double min, double max) {
  if (!(max > min)) max = min + 1;
  PlotScale scale(min, max, false);
  scale.MakeLinearTicks(NiceStep(max - min));
  return scale;
}

PlotScale PlotScale::Log(PlotRange range) {
  const double least = range.empty || range.max <= 0 ? 0.1 : range.max * 1e-6;
  const double min = std::max(range.empty ? 1.0 : range.min, least);
  const double max = std::max(range.empty ? 10.0 : range.max, min * 1.01);
  // Ends at 1, 2 or 5 times a power of ten.
  const auto end = [](double value, bool up) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    double best = up ? 10 * power : power;
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = factor * power;
      if (up && at >= value * 0.9999) best = std::min(best, at);
      if (!up && at <= value * 1.0001) best = std::max(best, at);
    }
    return best;
  };
  PlotScale scale(end(min, false), end(max, true), true);
  scale.MakeLogTicks();
  return scale;
}

void PlotScale::MakeLinearTicks(double step) {
  const double first = std::ceil(min_ / step - 1e-9);
  const double last = std::floor(max_ / step + 1e-9);
  for (double i = first; i <= last; ++i) {
    ticks_.push_back({i * step, PlotNumber(i * step)});
  }
}

void PlotScale::MakeLogTicks() {
  const bool few = max_ / min_ < 150;
  const double first = std::floor(std::log10(min_) + 1e-9);
  for (double power = first; std::pow(10, power) <= max_ * 1.0001; ++power) {
    for (int factor = 1; factor <= 9; ++factor) {
      const double value = factor * std::pow(10, power);
      if (value < min_ * 0.9999 || value > max_ * 1.0001) continue;
      const bool named = factor == 1 || (few && (factor == 2 || factor == 5));
      ticks_.push_back({value, named ? PlotNumber(value) : ""});
    }
  }
}

void PlotScale::Place(double low, double high) {
  low_ = low;
  high_ = high;
}

double PlotScale::Forward(double value) const {
  if (!log_) return value;
  return std::log10(std::max(value, min_));
}

double PlotScale::At(double value) const {
  const double from = Forward(min_);
  const double part = (Forward(value) - from) / (Forward(max_) - from);
  return low_ + std::clamp(part, -0.01, 1.01) * (high_ - low_);
}

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(
      ToAbsl(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string RenderPlot(const Plot& plot) {
  PlotRange x_range;
  PlotRange y_range;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      x_range.Add(point.x);
      y_range.Add(point.y);
      y_range.Add(point.low);
      y_range.Add(point.high);
    }
  }
  const double bottom = kTop + kPlotHeight;
  PlotScale x = MakeScale(plot.x, x_range);
  PlotScale y = MakeScale(plot.y, y_range);
  x.Place(kLeft, kWidth - kRight);
  y.Place(bottom, kTop);
  double height = 0;
  const std::string legend = RenderLegend(plot, bottom + kAxisHeight, &height);
  std::string svg = Begin(height + 4, plot.title);
  StrAppend(&svg, RenderXAxis(x, plot.x.label, kTop, bottom),
            RenderYAxis(y, plot.y.label, kTop, bottom),
            RenderFrame(kTop, bottom));
  if (plot.diagonal) {
    absl::StrAppendFormat(
        &svg, "<path class=\"diagonal\" d=\"M%.1f %.1fL%.1f %.1f\"/>",
        x.At(x.min()), y.At(x.min()), x.At(x.max()), y.At(x.max()));
  }
  for (const PlotSeries& series : plot.series) {
    svg += RenderSeries(series, x, y);
  }
  return svg + legend + "</svg>";
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
    absl::StrAppendFormat(
        &svg,
        "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s"
        "</text><path class=\"frame\" d=\"M%.1f %.1fH%.1f\"/>",
        edge - 8, y + height / 2 + 4, EscapeHtml(name), edge, y,
        kWidth - kRight);
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
    absl::StrAppendFormat(
        &svg,
        "<text class=\"small\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s"
        "</text><text class=\"small\" text-anchor=\"end\" "
        "transform=\"translate(%.1f %.1f) rotate(-60)\">%s</text>",
        kNames - 6, kTop + at + 3, name, kNames + at + 3, bottom + 6, name);
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

// ---- tables and pages

namespace {

// A section's CSV beyond that is left to --csv.
constexpr size_t kEmbeddedBytesMax = size_t{512} * 1024;

// Okabe and Ito's colours, which colour-blind eyes tell apart; lighter ones on
// dark ground.
constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--bg:#fff;--card:#fff;--ink:#1c2330;--soft:#5b6675;
--line:#e3e7ee;--edge:#9aa5b4;--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b5489a;
--s4:#c28a00;--s5:#3f9fd6;--s6:#6b4fbb;--s7:#7a5230;--s8:#c0392b;--s9:#566573}
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--card:#181d26;--ink:#e6eaf1;
--soft:#9aa7b8;--line:#29313d;--edge:#5d6a7c;--s0:#56a8e8;--s1:#f28b3c;--s2:#3cc9a0;
--s3:#e07cc4;--s4:#f0c23b;--s5:#8ecdf5;--s6:#a78bfa;--s7:#c79a6b;--s8:#ff7b6b;
--s9:#aab7c4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1400px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:26px;margin:0 0 2px}h2{font-size:19px;margin:40px 0 2px}
p{margin:2px 0 12px;color:var(--soft);max-width:80ch}
nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin:10px 0 0}
a{color:var(--s0);text-decoration:none}a:hover{text-decoration:underline}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));
gap:18px}
figure{margin:0;padding:12px 12px 6px;border:1px solid var(--line);border-radius:8px;
background:var(--card)}
figure:only-child{max-width:860px}
svg.plot{display:block;width:100%;height:auto;font-size:12px}
svg text{fill:var(--ink)}svg .title{font-size:14px;font-weight:600}
svg .tick,svg .tick text{fill:var(--soft);font-size:11.5px}svg .small{font-size:9px}
svg .axis{fill:var(--ink);font-size:12.5px}
svg .grid path{stroke:var(--line);fill:none}svg .frame{stroke:var(--edge);fill:none}
svg .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
svg .error{fill:none;stroke:var(--c);stroke-width:1.2;opacity:.7}
svg .dot{fill:var(--c)}svg .cross path{fill:none;stroke:var(--c);stroke-width:2}
svg .diagonal{stroke:var(--edge);stroke-dasharray:4 4;fill:none}
svg .d1 .line{stroke-dasharray:7 3}svg .d2 .line{stroke-dasharray:2 3}
svg .d3 .line{stroke-dasharray:8 3 2 3}
svg .steps .line{stroke-width:1.4;stroke-dasharray:none}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;
width:fit-content;max-width:100%}
.figures+.scroll{margin-top:18px}
table{border-collapse:collapse;font-size:13px;background:var(--card)}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
th{cursor:pointer;color:var(--soft);font-weight:600;position:sticky;top:0;
background:var(--card)}
th:hover{color:var(--ink)}td.text,th.text{text-align:left}
tr:last-child td{border-bottom:0}td.bad{color:var(--s8);font-weight:600}
)css";

// Sorts a table by the column whose title is clicked; again: the other way.
constexpr char kScript[] = R"js(
document.querySelectorAll("table").forEach(t=>{const b=t.tBodies[0];
t.querySelectorAll("th").forEach((h,i)=>h.addEventListener("click",()=>{
const d=h.dataset.d=h.dataset.d==="1"?"-1":"1";
const v=r=>{const x=r.cells[i].textContent,n=parseFloat(x);
return isNaN(n)?x:n};
[...b.rows].sort((p,q)=>{const x=v(p),y=v(q);
const c=typeof x===typeof y?(x<y?-1:x>y?1:0):(typeof x==="number"?-1:1);
return c*d}).forEach(r=>b.append(r))}))});
)js";

bool IsNumber(const std::string& cell) {
  return !cell.empty() && (cell.find_first_of("0123456789") == 0 ||
                           (cell[0] == '-' && cell.size() == 1));
}

// Left-aligned unless all of its cells are numbers.
bool IsTextColumn(const ReportTable& table, size_t column) {
  for (const auto& row : table.rows) {
    if (!IsNumber(row[column])) return true;
  }
  return false;
}

std::string RenderHtmlTable(const ReportTable& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  std::vector<bool> text;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    text.push_back(IsTextColumn(table, i));
    StrAppend(&html, text[i] ? "<th class=\"text\">" : "<th>",
              EscapeHtml(table.titles[i]), "</th>");
  }
  html += "</tr></thead><tbody>";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool bad =
          row[i] == "cannot_drain" || row[i] == "error" || row[i] == "timeout";
      StrAppend(&html,
                bad       ? "<td class=\"text bad\">"
                : text[i] ? "<td class=\"text\">"
                          : "<td>",
                EscapeHtml(row[i]), "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string CsvLink(const ReportSection& section) {
  if (section.csv.empty()) return "";
  if (section.csv.text().size() > kEmbeddedBytesMax) {
    return " Its data: gavel report --csv.";
  }
  std::string data;
  absl::Base64Escape(section.csv.text(), &data);
  return StrCat(" <a download=\"", section.id,
                ".csv\" href=\"data:text/csv;base64,", data, "\">CSV</a>");
}

std::string RenderSection(const ReportSection& section) {
  std::string html =
      StrCat("<section id=\"", section.id, "\"><h2>", EscapeHtml(section.title),
             "</h2><p>", EscapeHtml(section.text), CsvLink(section), "</p>\n");
  for (const std::string& note : section.notes) {
    StrAppend(&html, "<p class=\"note\">", EscapeHtml(note), "</p>\n");
  }
  if (!section.figures.empty()) {
    html += "<div class=\"figures\">";
    for (const std::string& figure : section.figures) {
      StrAppend(&html, "<figure>", figure, "</figure>\n");
    }
    html += "</div>";
  }
  if (!section.table.titles.empty()) html += RenderHtmlTable(section.table);
  return html + "</section>\n";
}

// The colours of series and bars, by number.
std::string ColorRules() {
  std::string css;
  for (int i = 0; i < 10; ++i) {
    StrAppend(&css, ".c", i, "{--c:var(--s", i, ")}.b", i, "{fill:var(--s", i,
              ")}\n");
  }
  return css;
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
  std::string html = StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><link "
      "rel=\"icon\" href=\"data:,\"><title>",
      EscapeHtml(page.title), "</title><style>", kStyle, ColorRules(),
      "</style></head>\n<body><main><h1>", EscapeHtml(page.title), "</h1><p>",
      EscapeHtml(page.summary), "</p><nav>");
  for (const ReportSection& section : page.sections) {
    StrAppend(&html, "<a href=\"#", section.id, "\">",
              EscapeHtml(section.title), "</a>");
  }
  html += "</nav>\n";
  for (const ReportSection& section : page.sections) {
    html += RenderSection(section);
  }
  return StrCat(html, "</main><script>", kScript, "</script></body></html>\n");
}

}  // namespace gavel::study
