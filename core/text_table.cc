#include "core/text_table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kNone[] = "-";

bool IsContinuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

size_t Width(std::string_view text) {
  return text.size() -
         static_cast<size_t>(std::ranges::count_if(text, IsContinuation));
}

std::vector<size_t> Widths(const std::vector<Column>& columns,
                           const TableRows& rows, size_t width) {
  std::vector<size_t> widths;
  size_t used = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    size_t wanted = Width(columns[i].title);
    for (const auto& row : rows) wanted = std::max(wanted, Width(row[i]));
    if (columns[i].width_max != 0 && width != kUncut) {
      wanted = std::min(wanted, columns[i].width_max);
    }
    if (i + 1 == columns.size()) {
      const size_t left = width > used ? width - used : 1;
      wanted = std::min(wanted, left);
    }
    widths.push_back(wanted);
    used += wanted + 1;
  }
  return widths;
}

std::string RenderLine(const std::vector<Column>& columns,
                       const std::vector<size_t>& widths,
                       const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string cell = Cut(cells[i], widths[i]);
    const std::string padding(widths[i] - Width(cell), ' ');
    if (i > 0) line += ' ';
    line += columns[i].right ? padding + cell : cell + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Cut(std::string_view text, size_t width) {
  if (Width(text) <= width) return std::string(text);
  if (width == 0) return "";
  size_t bytes = 0;
  for (size_t left = width; bytes < text.size(); ++bytes) {
    if (IsContinuation(text[bytes])) continue;
    if (--left == 0) break;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string RenderTable(const std::vector<Column>& columns,
                        const TableRows& rows, size_t width) {
  const std::vector<size_t> widths = Widths(columns, rows, width);
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  std::string text = RenderLine(columns, widths, titles);
  for (const auto& row : rows) text += RenderLine(columns, widths, row);
  return text;
}

std::string FormatCount(uint64_t count) {
  if (count < 100'000) return StrCat(count);
  const double value = static_cast<double>(count);
  if (count < 1'000'000) return absl::StrFormat("%.0fk", value / 1e3);
  if (count < 1'000'000'000) return absl::StrFormat("%.2fM", value / 1e6);
  if (count < 1'000'000'000'000) return absl::StrFormat("%.2fG", value / 1e9);
  return absl::StrFormat("%.3g", value);
}

std::string FormatSteps(uint64_t done, uint64_t total) {
  return total == 0 ? FormatCount(done)
                    : StrCat(FormatCount(done), "/", FormatCount(total));
}

std::string FormatRate(double steps_per_s) {
  if (!(steps_per_s > 0)) return kNone;
  if (steps_per_s < 10) return absl::StrFormat("%.2f", steps_per_s);
  if (steps_per_s < 100) return absl::StrFormat("%.1f", steps_per_s);
  if (steps_per_s < 1e5) return absl::StrFormat("%.0f", steps_per_s);
  return absl::StrFormat("%.0fk", steps_per_s / 1e3);
}

std::string FormatScalar(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  if (std::abs(value) < 10 && std::abs(value) >= 0.001) {
    return absl::StrFormat("%.3f", value);
  }
  return absl::StrFormat("%.4g", value);
}

std::optional<double> ParseDuration(std::string_view text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr double kUnits_s[] = {1, 60, 3600, 86400};
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  while (!text.empty()) {
    const size_t digits = text.find_first_not_of("0123456789.");
    double count = 0;
    if (digits == std::string_view::npos) return std::nullopt;
    if (!absl::SimpleAtod(ToAbsl(text.substr(0, digits)), &count)) {
      return std::nullopt;
    }
    const size_t unit = kUnits.find(text[digits]);
    if (unit == std::string_view::npos) return std::nullopt;
    seconds += count * kUnits_s[unit];
    text.remove_prefix(digits + 1);
  }
  return std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.5) return absl::StrFormat("%.0f s", seconds);
  const double minutes = seconds / 60;
  if (minutes < 59.5) {
    const long whole = std::lround(seconds);
    return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  }
  const long whole_minutes = std::lround(minutes);
  if (whole_minutes < 48 * 60) {
    return absl::StrFormat("%d h %02d min", whole_minutes / 60,
                           whole_minutes % 60);
  }
  return absl::StrFormat("%.1f days", minutes / 60 / 24);
}

std::string FormatHours(double seconds) {
  const double hours = seconds / 3600;
  if (!std::isfinite(hours)) return "-";
  return absl::StrFormat(std::abs(hours) < 99.995 ? "%.2f h" : "%.1f h", hours);
}

std::string FormatPercent(double fraction) {
  if (!std::isfinite(fraction)) return "-";
  return absl::StrFormat("%.1f %%", 100 * fraction);
}

std::string FormatNumber(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  return absl::StrFormat("%.*f", decimals, value);
}

std::string SizeText(uint64_t bytes) {
  constexpr double kStep = 1024;
  const char* unit = "KiB";
  double size = static_cast<double>(bytes) / kStep;
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (size < kStep) break;
    size /= kStep;
    unit = larger;
  }
  return absl::StrFormat("%.1f %s", size, unit);
}

}  // namespace gavel
